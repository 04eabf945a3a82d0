"""A stand-in for W&B's server on loopback, below the real client: GraphQL, the file stream, uploads, and faults.

It keeps what the client sends, by run (:mod:`tests.fakes.wandb_store`), and fails on demand::

    with WandbServer() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        server.fault = Fault("status", match="file_stream", status=429, retry_after_s=1)
        ...
        server.runs["abcd1234"].history

As a process of its own: ``python -m tests.fakes.wandb_server --port 8080``; then ``POST /_fault`` sets the fault (a
JSON object of :class:`Fault`'s fields, ``{}`` for none) and ``GET /_runs`` shows what is held.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import gzip
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from tests.fakes.wandb_graphql import answer, operation_name
from tests.fakes.wandb_store import Run, Store

FAULTS = ("refuse", "delay", "hang", "status", "garbage", "drop")


@dataclasses.dataclass
class Fault:
    """What goes wrong, until it is changed.

    kind: refuse (nobody listens), delay (answer late), hang (take the request, never answer), status (answer with
        an HTTP status), garbage (answer 200 with nonsense), drop (cut the connection in the middle of the answer;
        what was asked for has been done).
    match: regular expression, searched in "path operation", as "/graphql UpsertBucket"; not for refuse.
    seconds: of the delay; for refuse, after how long to listen again (0: when the fault is changed).
    count: after so many times the fault is over (0: never).
    """

    kind: str
    match: str = ""
    seconds: float = 0.0
    status: int = 500
    retry_after_s: float | None = None
    count: int = 0

    def __post_init__(self) -> None:
        if self.kind not in FAULTS:
            raise ValueError(f"unknown fault {self.kind!r}; known: {', '.join(FAULTS)}")


@dataclasses.dataclass
class Limits:
    """Requests a second that the server takes, as W&B counts them; more are answered 429, without ``Retry-After``
    (https://docs.wandb.ai/platform/hosting/hosting-options/dedicated-cloud/rate-limits).

    stream: of the file stream, of a project. each: the same, of one run. begin: of beginnings of runs, of a project.
    """

    stream: float = 500.0
    each: float = 2.0
    begin: float = 80.0
    _taken: dict[str, collections.deque[float]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(collections.deque)
    )
    _guard: Any = dataclasses.field(default_factory=threading.Lock)

    def take(self, what: str, now: float) -> bool:
        """Whether a request is one of those that are taken; ``what``: "path operation"."""
        if what.endswith("file_stream"):
            counted = {what: self.each, "stream": self.stream}
        elif what.endswith(" UpsertBucket"):
            counted = {"begin": self.begin}
        else:
            return True
        with self._guard:
            for name, limit in counted.items():
                times = self._taken[name]
                while times and times[0] <= now - 1.0:
                    times.popleft()
                if len(times) >= limit:
                    return False
            for name in counted:
                self._taken[name].append(now)
        return True


class WandbServer:
    """The server. ``requests``: "METHOD path operation" of everything that was asked, in order.

    ``refuses``: told each request ("path operation", the variables of GraphQL or the body of the file stream), says why
    it is refused for good, "" if it is taken. ``refusal``: the HTTP status then; 200: an error of GraphQL.
    ``limits``: what it takes a second; None: everything. ``asked``: when each request came, on the monotonic clock,
    what it was ("path operation"), and whether it was within the limits.
    """

    def __init__(self, port: int = 0) -> None:
        self.store = Store()
        self.requests: list[str] = []
        self.limits: Limits | None = None
        self.refuses: Callable[[str, dict[str, Any]], str] = lambda what, sent: ""
        self.refusal = 400
        self.asked: list[tuple[float, str, bool]] = []
        self._port = port
        self._fault: Fault | None = None
        self._changed = threading.Condition()
        self._http: _Http | None = None
        self._timer: threading.Timer | None = None

    @property
    def runs(self) -> dict[str, Run]:
        """Runs by id."""
        return self.store.runs

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def fault(self) -> Fault | None:
        return self._fault

    @fault.setter
    def fault(self, fault: Fault | None) -> None:
        with self._changed:
            self._fault = fault
            self._changed.notify_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if fault is not None and fault.kind == "refuse":
            self._unlisten()
            if fault.seconds:
                self._timer = threading.Timer(fault.seconds, lambda: setattr(self, "fault", None))
                self._timer.daemon = True
                self._timer.start()
        else:
            self._listen()

    def start(self) -> WandbServer:
        self._listen()
        return self

    def stop(self) -> None:
        self.fault = None
        self._unlisten()

    __enter__ = start

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _listen(self) -> None:
        if self._http is None:
            self._http = _Http(self, self._port)
            self._port = self._http.server_address[1]
            threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def _unlisten(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            http.shutdown()
            http.server_close()
            http.cut()

    def due(self, what: str) -> Fault | None:
        """The fault that meets this request; counted. Waits here while it is one of waiting."""
        with self._changed:
            fault = self._fault
            if fault is None or fault.kind == "refuse" or not re.search(fault.match, what):
                return None
            if fault.count:
                fault.count -= 1
                if fault.count == 0:
                    self._fault = None
            if fault.kind == "delay":
                self._changed.wait_for(lambda: self._fault is not fault, timeout=fault.seconds)
                return None
            if fault.kind == "hang":
                self._changed.wait_for(lambda: self._fault is not fault)
        return fault


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    block_on_close = False

    def __init__(self, server: WandbServer, port: int) -> None:
        self.owner = server
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def cut(self) -> None:
        """Break the connections that clients keep open."""
        for request in list(self._open):
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def log_message(self, *args: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self._handle("GET")

    def do_POST(self) -> None:
        self._handle("POST")

    def do_PUT(self) -> None:
        self._handle("PUT")

    def _handle(self, method: str) -> None:
        owner = self.server.owner
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        path = unquote(self.path.partition("?")[0])
        if path == "/_fault":
            fields = json.loads(body or b"{}")
            fault = Fault(**fields) if fields else None
            refuses = fault is not None and fault.kind == "refuse"  # it cuts this connection, too
            if not refuses:
                owner.fault = fault
            self._send(200, {"url": owner.url})
            if refuses:
                owner.fault = fault
            return
        if path == "/_runs":
            self._send(200, {name: run.dump() for name, run in owner.runs.items()})
            return
        request = json.loads(body) if path == "/graphql" else {}
        what = f"{path} {operation_name(request)}".strip()
        owner.requests.append(f"{method} {what}")
        now = time.monotonic()
        taken = owner.limits is None or owner.limits.take(what, now)
        owner.asked.append((now, what, taken))
        if not taken:
            self._send(429, {"error": "rate limit exceeded"}, {"RateLimit-Remaining": "0", "RateLimit-Reset": "1"})
            return
        fault = owner.due(what)
        if fault is not None and fault.kind == "hang":
            self.close_connection = True
            return
        if fault is not None and fault.kind == "status":
            extra = {} if fault.retry_after_s is None else {"Retry-After": f"{fault.retry_after_s:g}"}
            self._send(fault.status, {"errors": [{"message": f"fault {fault.status}"}]}, extra)
            return
        if fault is not None and fault.kind == "garbage":
            self._send(200, b"<html>\x00 not what you asked for")
            return
        if path == "/graphql" or path.endswith("file_stream"):
            sent = request.get("variables") if request else json.loads(body)
            if why := owner.refuses(what, sent or {}):
                self._send(owner.refusal, {"errors": [{"message": why}], "data": None})
                return
        status, reply = self._answer(method, path, body, request)
        if fault is not None and fault.kind == "drop":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
            self.close_connection = True
            return
        self._send(status, reply)

    def _answer(self, method: str, path: str, body: bytes, request: dict[str, Any]) -> tuple[int, Any]:
        owner = self.server.owner
        parts = path.strip("/").split("/")
        with owner.store.lock:
            if path == "/graphql":
                return 200, answer(owner.store, request, owner.url)
            if parts[0] == "files" and parts[-1] == "file_stream":
                return 200, owner.store.stream(parts[1], parts[2], parts[3], json.loads(body))
            if parts[0] == "uploads" and method == "PUT":
                owner.store.put(path.removeprefix("/uploads/"), body)
                return 200, {}
            if parts[0] == "uploads":
                content = owner.store.get(path.removeprefix("/uploads/"))
                return (200, content) if content is not None else (404, {})
        return 404, {"errors": [{"message": f"no {path} here"}]}

    def _send(self, status: int, reply: Any, headers: dict[str, str] | None = None) -> None:
        content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any; the URL is printed")
    options = parser.parse_args()
    with WandbServer(options.port) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
