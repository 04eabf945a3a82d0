"""A proxy on loopback in front of an S3 server, that cuts connections, fails, is slow, and lies.

It passes on bytes as they are, headers included, but for what its faults change::

    with S3Proxy("http://127.0.0.1:5000") as proxy:
        proxy.chance = 0.3                      # of all requests meet with one of the faults
        proxy.faults = ("refused", "lost")
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from email.utils import formatdate, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

FAULTS = ("cut", "lost", "half", "busy", "slow", "etag", "garbled")
"""cut: the connection ends before the server hears of the request. lost: after it has carried it out. half: in the
middle of the answer. busy: 503. slow: the answer's bytes come one after the other. etag: the answer's version is
another one. garbled: bytes of an object are changed on the way."""
BUSY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
SKEWED = (
    b"<?xml version='1.0'?><Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request time "
    b"and the current time is too large.</Message></Error>"
)


class S3Proxy:
    """``target``: the server's address. ``chance``: of how many requests one of ``faults`` happens to.

    ``pause_s``: between the bytes of a slow answer. ``ahead_s``: of the clock by which the store seems to write.
    ``skewed``: the store refuses requests for the time that they carry. ``happened``: how often each fault.
    """

    def __init__(self, target: str, seed: int = 0) -> None:
        self.target = target
        self.faults: tuple[str, ...] = FAULTS
        self.chance = 0.0
        self.pause_s = 0.02
        self.ahead_s = 0.0
        self.skewed = False
        self.happened: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.daemon_threads = True
        self._http.owner = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> S3Proxy:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def fault(self) -> str:
        """What happens to the next request; "" for nothing."""
        with self._lock:
            if self._random.random() >= self.chance:
                return ""
            found = self._random.choice(self.faults)
            self.happened[found] += 1
            return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def _forward(self) -> None:
        owner: S3Proxy = self.server.owner  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = owner.fault()
        if fault == "cut":
            self.close_connection = True
            return
        if fault == "busy" or owner.skewed:
            self._answer(503 if fault == "busy" else 403, [("Content-Type", "application/xml")],
                         BUSY if fault == "busy" else SKEWED)  # fmt: skip
            return
        place = urlsplit(owner.target)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            content = answer.read()
            headers = [
                (name, value)
                for name, value in answer.getheaders()
                if name.lower() not in ("connection", "transfer-encoding", "content-length")
            ]
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        except (OSError, http.client.HTTPException):
            self.close_connection = True
            return
        finally:
            connection.close()
        if fault == "lost":
            self.close_connection = True
            return
        headers = [self._changed(name, value, fault, owner) for name, value in headers]
        if fault == "garbled" and self.command == "GET" and answer.status == 200 and content[:1] != b"<":
            content = bytes([content[0] ^ 1]) + content[1:] if content else content
        self._answer(answer.status, headers, content, fault, length)

    def _changed(self, name: str, value: str, fault: str, owner: S3Proxy) -> tuple[str, str]:
        if name.lower() == "etag" and fault == "etag":
            return name, '"00000000000000000000000000000000"'
        if name.lower() in ("last-modified", "date") and owner.ahead_s:
            return name, formatdate(parsedate_to_datetime(value).timestamp() + owner.ahead_s, usegmt=True)
        return name, value

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, fault: str = "", length: str | None = None
    ) -> None:
        owner: S3Proxy = self.server.owner  # type: ignore[attr-defined]
        try:
            self.send_response_only(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            if self.command == "HEAD":
                return
            if fault == "half":
                self.wfile.write(content[: len(content) // 2])
                self.close_connection = True
            elif fault == "slow":
                size = max(1, len(content) // 10)
                for begin in range(0, len(content), size):
                    self.wfile.write(content[begin : begin + size])
                    self.wfile.flush()
                    time.sleep(owner.pause_s)
            else:
                self.wfile.write(content)
        except OSError:
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward
