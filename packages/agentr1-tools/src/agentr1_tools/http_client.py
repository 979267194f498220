"""HttpClient: JSON to one address and back, with a limit on time and size, and failures as `ToolError`.

It knows no protocol: what the JSON means is the business of `remote` and `retriever`.
"""

import json
import os
import time
from typing import Any

import httpx

from agentr1_tools.errors import ErrorCode, ToolConfigError, ToolError

MAX_BYTES = 64 * 1024 * 1024
_ATTEMPTS = 2
_LIMITS = httpx.Limits(max_connections=256, max_keepalive_connections=32)
_JSON = {"Content-Type": "application/json"}


class HttpClient:
    """A pool of connections to one address, shared by threads. `what` names the other side in messages."""

    def __init__(self, url: str, what: str) -> None:
        self.url = _checked(url, what)
        self._what = what
        self._client: tuple[int, httpx.Client] | None = None

    def open(self) -> None:
        """Make the pool; connections are made when they are needed."""
        self._pool()

    def close(self) -> None:
        """Close the pool; a later request opens it again."""
        if self._client is not None:
            owner, client = self._client
            self._client = None
            if owner == os.getpid():
                client.close()

    def get(self, path: str, seconds: float) -> tuple[int, Any]:
        """Status and JSON value of a GET; see `post`."""
        return self._ask("GET", path, None, seconds)

    def post(self, path: str, body: Any, seconds: float) -> tuple[int, Any]:
        """Status and JSON value of a POST, within so many seconds.

        A connection that is refused or breaks is tried a second time within the limit. Raises ToolError: TIMEOUT, or
        NETWORK_ERROR for no connection and for an answer that is too long or no JSON.
        """
        return self._ask("POST", path, json.dumps(body).encode(), seconds)

    def _ask(self, method: str, path: str, content: bytes | None, seconds: float) -> tuple[int, Any]:
        deadline = time.monotonic() + seconds
        problem: Exception | None = None
        for _ in range(_ATTEMPTS):
            try:
                status, body = self._send(method, path, content, deadline)
            except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
                problem = error
                continue
            except (httpx.TimeoutException, TimeoutError):
                raise ToolError(ErrorCode.TIMEOUT, f"{self._what} gave no answer within {seconds:g} s") from None
            except (httpx.HTTPError, ValueError) as error:
                raise self._failed(error) from None
            try:
                return status, json.loads(body)
            except (ValueError, RecursionError) as error:
                raise self._failed(f"answer {status} is not JSON ({error})") from None
        raise self._failed(problem) from None

    def _send(self, method: str, path: str, content: bytes | None, deadline: float) -> tuple[int, bytes]:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        body = bytearray()
        url = f"{self.url}{path}"
        with self._pool().stream(method, url, content=content, headers=_JSON, timeout=left) as response:
            for part in response.iter_bytes():
                body += part
                if len(body) > MAX_BYTES:
                    raise ValueError(f"the answer has more than {MAX_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError
        return response.status_code, bytes(body)

    def _pool(self) -> httpx.Client:
        """This process's pool: a connection that a forked child shared with its parent would serve neither."""
        if self._client is None or self._client[0] != os.getpid():
            self._client = os.getpid(), httpx.Client(limits=_LIMITS, trust_env=not is_local(self.url))
        return self._client[1]

    def _failed(self, problem: object) -> ToolError:
        return ToolError(ErrorCode.NETWORK_ERROR, f"{self._what} at {self.url} cannot be used: {problem}")


def is_local(url: str) -> bool:
    """True for this machine's own addresses, to which the environment's proxy does not lead."""
    return httpx.URL(url).host in ("127.0.0.1", "localhost", "::1")


def _checked(url: str, what: str) -> str:
    try:
        parts = httpx.URL(url)
        legal = parts.scheme in ("http", "https") and bool(parts.host)
    except (httpx.InvalidURL, TypeError):
        legal = False
    if not legal:
        raise ToolConfigError(f"{what}: {url!r} is no address of a server; give one such as http://127.0.0.1:8000")
    return url.rstrip("/")
