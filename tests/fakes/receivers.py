"""Receivers of alerts on loopback: a webhook that misbehaves as told, and a mail server."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from typing import Any

from tests.fakes.servers import QuietHandler, listening


class Webhook:
    """A webhook's server.

    Attributes:
        url: its address. got: each request that came whole: path, headers, body as JSON.
        faults: what the next requests get instead of 200, one each: a status, (status, headers), "hang" (no answer
            until it ends), "slow" (a byte now and then), "drop" (taken, then the connection is cut).
    """

    def __init__(self) -> None:
        self.url = ""
        self.got: list[tuple[str, dict[str, str], Any]] = []
        self.faults: list[Any] = []
        self.ended = threading.Event()

    @property
    def bodies(self) -> list[Any]:
        """What came, without where."""
        return [body for _, _, body in self.got]


@contextlib.contextmanager
def webhook(*faults: Any) -> Iterator[Webhook]:
    """One that listens."""
    state = Webhook()
    state.faults.extend(faults)

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            fault = state.faults.pop(0) if state.faults else 200
            if fault == "hang":
                state.ended.wait()
            elif fault == "slow":
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                while not state.ended.wait(0.1):
                    with contextlib.suppress(OSError):
                        self.wfile.write(b"X")
                        continue
                    break
            elif fault != "drop":
                status, headers = fault if isinstance(fault, tuple) else (fault, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
            self.close_connection = True

        def do_GET(self) -> None:
            state.got.append((self.path, {}, "GET"))
            self.send_response(200)
            self.end_headers()

    with listening(Handler) as url:
        state.url = url
        try:
            yield state
        finally:
            state.ended.set()


class Mailbox:
    """A mail server. mails: sender, recipients and text of each. answers: a line instead of the usual one, by verb."""

    def __init__(self) -> None:
        self.port = 0
        self.mails: list[tuple[str, list[str], str]] = []
        self.answers: dict[str, str] = {}


@contextlib.contextmanager
def mailbox(**answers: str) -> Iterator[Mailbox]:
    """One that listens. answers: by verb (rcpt="550 no"), or data_end for what follows a mail."""
    state = Mailbox()
    state.answers.update(answers)

    class Handler(socketserver.StreamRequestHandler):
        def say(self, verb: str, usual: str) -> bool:
            text = state.answers.get(verb, usual)
            if text == "drop":
                self.connection.shutdown(socket.SHUT_RDWR)
                return False
            self.wfile.write(text.encode() + b"\r\n")
            return True

        def handle(self) -> None:
            sender, to = "", []
            if not self.say("greeting", "220 here"):
                return
            while line := self.rfile.readline().decode().strip():
                verb = line.split()[0].lower()
                if verb == "mail":
                    sender = line
                elif verb == "rcpt":
                    to.append(line)
                elif verb == "data":
                    self.say("data", "354 go on")
                    text = b""
                    while not text.endswith(b"\r\n.\r\n"):
                        text += self.rfile.readline()
                    state.mails.append((sender, to, text.decode()))
                    verb = "data_end"
                if not self.say(verb, "221 bye" if verb == "quit" else "250 ok") or verb == "quit":
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        state.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
