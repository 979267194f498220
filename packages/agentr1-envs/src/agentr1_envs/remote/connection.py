"""Connection: one WebSocket to a server. The only module that imports `websockets`; it knows text and no sessions."""

from contextlib import ExitStack
from urllib.parse import urlsplit, urlunsplit

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, WebSocketException
from websockets.sync.client import connect

from agentr1_envs.errors import RemoteError, SettingError
from agentr1_envs.wire_protocol import PATH, TOKEN_VARIABLE

_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
_LOCAL = ("127.0.0.1", "localhost", "::1")


class DroppedError(Exception):
    """The server was not reached, or the connection broke: another try may go well."""


class Connection:
    """An open connection. It finds out by itself when the other machine is gone: the two sides ping each other."""

    def __init__(self, url: str, token: str, seconds: float) -> None:
        """Connect.

        Args:
            url: address of the server, with scheme ws, wss, http or https.
            token: what the server may ask for; empty is none.
            seconds: how long it may take.

        Raises:
            DroppedError: nobody answered. RemoteError: the server refuses the connection, or is none.
        """
        self._closing = ExitStack()
        address = socket_address(url)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._socket = self._closing.enter_context(
                connect(
                    address,
                    additional_headers=headers,
                    open_timeout=seconds,
                    close_timeout=1,
                    compression=None,
                    max_size=None,
                    proxy=None if urlsplit(address).hostname in _LOCAL else True,
                )
            )
        except InvalidStatus as error:
            raise RemoteError(
                f"The server at {url} refused the connection: {_reason(error.response.status_code)}"
            ) from None
        except (OSError, EOFError) as error:  # a TimeoutError too
            raise DroppedError(str(error) or type(error).__name__) from None
        except InvalidHandshake as error:
            if isinstance(error.__cause__, EOFError | OSError):  # it hung up before it had answered
                raise DroppedError(str(error.__cause__)) from None
            raise RemoteError(f"{url} is no environment server: {error}.") from None
        except WebSocketException as error:
            raise RemoteError(f"{url} cannot be used: {error}.") from None

    def ask(self, text: str) -> str:
        """Send a text and wait for the next one.

        Raises:
            DroppedError: the connection broke.
        """
        try:
            self._socket.send(text)
            return str(self._socket.recv())
        except (ConnectionClosed, OSError, EOFError) as error:
            raise DroppedError(str(error) or type(error).__name__) from None

    def tell(self, text: str) -> None:
        """Send a text; whether it arrives nobody knows."""
        try:
            self._socket.send(text)
        except (WebSocketException, OSError, EOFError):
            return

    def close(self) -> None:
        """Close the connection, broken or not."""
        self._closing.close()


def socket_address(url: str) -> str:
    """The address of a server's sessions.

    Raises:
        SettingError: `url` is no address.
    """
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.hostname or parts.query or parts.fragment:
        raise SettingError(f"url={url!r} is no address of a server; give one such as ws://127.0.0.1:8002.")
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/") + PATH, "", ""))


def _reason(status: int) -> str:
    if status == 403:
        return f"the token is missing, or is not the server's (token=, or {TOKEN_VARIABLE})."
    return f"it answered {status}; is it one that `agentr1-envs serve` started?"
