"""JSON messages over a socket, with a deadline. Only text crosses a process boundary on the way back: no pickle."""

import json
import socket
import struct
import time
from typing import Any

MAX_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct("!I")


class ChannelClosed(ConnectionError):
    """The other side is gone."""


class Channel:
    """One end of a socket pair. Not safe for two threads at once."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(self, message: Any) -> None:
        """Send one JSON value. Raises ChannelClosed; ValueError for one over `MAX_BYTES`."""
        body = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
        if len(body) > MAX_BYTES:
            raise ValueError(f"a message of {len(body)} bytes; at most {MAX_BYTES} are sent")
        try:
            self._socket.settimeout(None)
            self._socket.sendall(_LENGTH.pack(len(body)) + body)
        except OSError as error:
            raise ChannelClosed(str(error)) from None

    def receive(self, seconds: float | None = None) -> Any:
        """Wait for one JSON value. Raises TimeoutError after `seconds`, ChannelClosed when the other side is gone."""
        deadline = None if seconds is None else time.monotonic() + seconds
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
        return json.loads(self._read(length, deadline).decode("utf-8", "surrogatepass"))

    def shut(self) -> None:
        """Say that no more will be sent; what the other side still sends can be received."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close this end; the other side's `receive` ends."""
        self._socket.close()

    def _read(self, count: int, deadline: float | None) -> bytearray:
        body = bytearray()
        while len(body) < count:
            if deadline is None:
                self._socket.settimeout(None)
            elif (left := deadline - time.monotonic()) > 0:
                self._socket.settimeout(left)
            else:
                raise TimeoutError
            try:
                part = self._socket.recv(min(count - len(body), 1 << 20))
            except TimeoutError:
                raise
            except OSError as error:
                raise ChannelClosed(str(error)) from None
            if not part:
                raise ChannelClosed("the other side closed the channel")
            body += part
        return body
