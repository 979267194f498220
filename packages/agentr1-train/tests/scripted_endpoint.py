"""A server that speaks OpenAI's protocol over real sockets and misbehaves as it is told.

    python scripted_endpoint.py [ACT ...]        serve until killed; the first line of output is the address

``plan`` says what becomes of the first requests, in the order in which they come: ``ok``, a status (``429``, with
``429:1`` for ``Retry-After: 1``), ``drop`` (the connection ends without an answer), ``garbage`` (no JSON), ``odd``
(JSON without choices), ``hang`` (no answer as long as it serves), ``die`` (SIGKILL of the server). After the plan
everything is answered: the last word of the last message.
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Endpoint(ThreadingHTTPServer):
    """Serves on a free port in a thread; a context manager."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, plan: tuple[str, ...] = (), slow_s: float = 0.0, together: int = 1) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.plan, self.slow_s = list(plan), slow_s
        self.together = together
        """Nothing is answered before so many requests are under way at once."""
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.times: list[float] = []
        self.open, self.most_open = 0, 0
        self.lock = threading.Condition()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away."""

    def __enter__(self) -> "Endpoint":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.bodies.append(body)
            self.server.keys.append(self.headers.get("Authorization", ""))
            self.server.times.append(time.monotonic())
            self.server.open += 1
            self.server.most_open = max(self.server.most_open, self.server.open)
            act = self.server.plan.pop(0) if self.server.plan else "ok"
            self.server.lock.notify_all()
            self.server.lock.wait_for(lambda: self.server.most_open >= self.server.together, timeout=60)
        try:
            self.server.over.wait(self.server.slow_s)
            self._act(act, body)
        finally:
            with self.server.lock:
                self.server.open -= 1

    def _act(self, act: str, body: dict[str, Any]) -> None:
        status, _, wait = act.partition(":")
        if act == "drop":
            self.close_connection = True
            self.connection.close()
        elif act == "hang":
            self.server.over.wait(60)
            self.close_connection = True
        elif act == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif act == "garbage":
            self._send(200, b"<html>at your service</html>")
        elif act == "odd":
            self._send(200, b'{"object": "error"}')
        elif status.isdigit():
            said = {"error": {"message": f"told to answer {status} to {self.headers.get('Authorization', '')}"}}
            self._send(int(status), json.dumps(said).encode(), {"Retry-After": wait} if wait else {})
        else:
            self._send(200, json.dumps(self._answer(body)).encode())

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        if self.path == "/v1/chat/completions":
            choice["message"] = {"role": "assistant", "content": body["messages"][-1]["content"].split()[-1]}
        elif self.path == "/v1/completions":
            choice["text"] = f"{len(body['prompt'])} ids"
        return {"choices": [choice], "usage": usage}

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


if __name__ == "__main__":
    with Endpoint(tuple(sys.argv[1:]), slow_s=0.05) as endpoint:
        print(endpoint.url, flush=True)
        endpoint.thread.join()
