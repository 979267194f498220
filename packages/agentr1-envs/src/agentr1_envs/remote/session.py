"""RemoteSession: one session at a server, over as many connections as it takes.

What is asked is numbered. When a connection breaks, another is made, the session is taken up by its id, and the same
number is asked again: the server answers from what it kept, or as soon as the environment is done. A session that is
gone at the server is gone here too; what then happens to the episode is not decided here.
"""

import os
import time
from collections.abc import Mapping
from typing import Any, cast

from agentr1_envs.errors import RemoteError, SessionLostError, WireError
from agentr1_envs.remote.connection import Connection, DroppedError
from agentr1_envs.wire import dumps, loads
from agentr1_envs.wire_errors import unpack_error
from agentr1_envs.wire_protocol import PROTOCOL

_CONNECT_SECONDS = 10.0
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)
_TRIES = 5


class RemoteSession:
    """An open session. Not for several threads at the same time, as no environment is."""

    def __init__(
        self, url: str, token: str, env_id: str, render_mode: str | None, *, reconnect_seconds: float, wait: bool
    ) -> None:
        """Open a session.

        Args:
            url: address of the server.
            token: what the server may ask for; empty is none.
            env_id: what it is to serve.
            render_mode: of the environment there.
            reconnect_seconds: how long to try again when the server cannot be reached.
            wait: whether that holds for the first connection, too.

        Raises:
            RemoteError: the server cannot be reached, or refuses. Exception: what making the environment raised there.
        """
        self._url, self._token, self._reconnect_seconds = url, token, reconnect_seconds
        self._number = 0
        self._gone = ""
        self._process = os.getpid()
        self._connection: Connection | None = self._connect(reconnect_seconds if wait else 0.0)
        opening = {"do": "open", "protocol": PROTOCOL, "env_id": env_id, "render_mode": render_mode}
        try:
            self.description = self._result(self._read(self._connection.ask(dumps(opening))))
        except DroppedError as error:
            raise RemoteError(f"The server at {url} hung up before the session began: {error}.") from None
        except BaseException:
            self._connection.close()
            raise
        self._id, self._max_bytes = str(self.description["session"]), int(self.description["max_message_bytes"])

    def ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What the server answers: ``{"result": {...}}``, or ``{"error": ...}`` of the environment's (`unpack_error`).

        Raises:
            SessionLostError: the session is gone. RemoteError: the server cannot be reached.
            WireError: what is asked cannot travel; it has not been sent.
        """
        self._require()
        text = dumps({**asked, "number": self._number + 1}, "what is sent to the environment")
        if len(text) > self._max_bytes:
            raise WireError(
                f"What is sent has {len(text)} bytes, and the server at {self._url} takes {self._max_bytes} at most; "
                "serve with a larger --max-message-bytes."
            )
        self._number += 1
        try:
            answer = self._exchange(text)
        except SessionLostError as error:
            self._gone = str(error)
            raise
        except BaseException as error:  # such as Ctrl-C: what the environment has done by now nobody knows
            self.abandon(f"its last call was interrupted ({type(error).__name__})")
            raise
        if answer.get("final"):
            self._gone = f"{unpack_error(answer['error'])}"
        return answer

    def abandon(self, reason: str) -> None:
        """Leave the session without waiting; the server ends it."""
        self._gone = self._gone or reason
        connection, self._connection = self._connection, None
        if connection is not None and self._process == os.getpid():
            connection.tell(dumps({"do": "close"}))
            connection.close()

    def close(self) -> None:
        """End the session; the server has let go of it on return, if it can be reached."""
        connection, self._connection = self._connection, None
        open_here = connection is not None and not self._gone and self._process == os.getpid()
        self._gone = self._gone or "it was closed"
        if connection is None or self._process != os.getpid():
            return
        try:
            if open_here:
                connection.ask(dumps({"do": "close"}))
        except DroppedError:
            pass
        finally:
            connection.close()

    def _require(self) -> None:
        if self._process != os.getpid():
            self._connection, self._gone = None, "it belongs to the process this one was forked from"
        if self._gone:
            raise SessionLostError(f"The session at {self._url} is over: {self._gone}.")

    def _exchange(self, text: str) -> dict[str, Any]:
        problem = ""
        for _ in range(_TRIES):
            try:
                return self._read(self._resumed().ask(text))
            except DroppedError as error:
                problem = str(error)
                self._drop()
        raise RemoteError(f"The connection to {self._url} broke {_TRIES} times over one call: {problem}.")

    def _resumed(self) -> Connection:
        """The connection, or a new one that has taken up the session."""
        if self._connection is None:
            self._connection = self._connect(self._reconnect_seconds)
            self._result(self._read(self._connection.ask(dumps({"do": "resume", "session": self._id}))))
        return self._connection

    def _connect(self, seconds: float) -> Connection:
        until = time.monotonic() + seconds
        attempt = 0
        while True:
            try:
                return Connection(self._url, self._token, _CONNECT_SECONDS)
            except DroppedError as error:
                if time.monotonic() >= until:
                    tried = f" for {seconds:g} s" if seconds else ""
                    raise RemoteError(
                        f"No environment server answers at {self._url}{tried} ({error}); start one with: "
                        "agentr1-envs serve ID"
                    ) from None
            time.sleep(min(_PAUSES[min(attempt, len(_PAUSES) - 1)], max(0.0, until - time.monotonic())))
            attempt += 1

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _read(self, text: str) -> dict[str, Any]:
        answer = loads(text)
        if not isinstance(answer, dict) or not {"result", "error"} & answer.keys():
            raise RemoteError(f"{self._url} is no environment server: it answered {text[:100]!r}.")
        return cast("dict[str, Any]", answer)

    def _result(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The result; raises the error there is instead."""
        if "error" in answer:
            raise unpack_error(answer["error"])
        return answer["result"]
