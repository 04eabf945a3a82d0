"""The HTTP server of ``trackers ui``, for who has the address with its token.

Who can reach the port but doesn't have the token learns nothing. A page of another site that a browser shows reaches
nothing either: the token is in no cookie, and requests are refused that name another host (DNS rebinding) or that the
browser says come from another site. What changes something (:mod:`trackers.ui.deeds`) is a POST with a token of its
own, which the page asks for and no address holds; a server that others can reach changes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from trackers.errors import NotFound, TrackersError, UsageError
from trackers.readers.boundary import boundary
from trackers.records import escaped, storable
from trackers.ui import answers, deeds, pages
from trackers.ui.catalogue import Catalogue, key_of
from trackers.ui.media import ServedFile

PORT = 7007
"""Tried first where no port is given."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
CONNECTIONS = 64
"""Maximum number of connections at a time. A further one takes the place of the oldest that hasn't given the token."""
IDLE_S = 30.0
"""A connection on which nothing comes for so long is closed."""
DEED_BYTES = 4 * 1024 * 1024
"""Maximum size of what is to be done."""
HEAD_S = 10.0
"""A connection that hasn't given the token after so long is closed, however slowly something comes."""
UNKNOWN_ADDRESS = "not found: open the address that `trackers ui` printed"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Whatever a run's data holds, the page runs and loads nothing but what this server sends."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
TYPES = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
PARTS = ("index.html", *pages.names())
"""Files of the page, by their addresses."""


class Server(ThreadingHTTPServer):
    """Serves a catalogue. Listens once it is made.

    Args:
        host: a name or an address of this machine. port: 0: any free one; None: :data:`PORT`, or any if that is taken.
        read_only: nothing can be changed; a server that listens for other machines is so in any case.

    Raises:
        UsageError: the port is taken, or the host isn't this machine's.
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(
        self, catalogue: Catalogue, host: str = "127.0.0.1", port: int | None = None, *, read_only: bool = False
    ) -> None:
        self.catalogue = catalogue
        self.token = secrets.token_urlsafe(24)
        self.deed_token = "" if read_only or host not in LOOPBACK else secrets.token_urlsafe(24)
        self.host = host
        self.took: dict[str, float] = {}
        self._strangers: dict[Any, float] = {}
        self._known: set[Any] = set()
        self._lock = threading.Lock()
        if port is not None and not 0 <= port <= 65535:
            raise UsageError(f"port {port} must be 0 to 65535")
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except (OSError, UnicodeError) as error:
            raise UsageError(f"host {host!r} is unknown here: {getattr(error, 'strerror', None) or error}") from None
        self.address_family, address = addresses[0][0], addresses[0][4]
        try:
            self._listen(str(address[0]), PORT if port is None else port)
        except OSError:
            if port is not None:
                raise
            self._listen(str(address[0]), 0)

    def _listen(self, address: str, port: int) -> None:
        try:
            super().__init__((address, port), Handler)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortTaken(f"port {port} is taken: give another --port, or 0 for any free one") from None
            why = error.strerror or str(error)
            raise PortTaken(f"can't listen on {self.host} port {port}: {why}; give another --host or --port") from None

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """The page, with the token."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        if _any(self.host):
            name = socket.gethostname()
        return f"http://{name}:{self.port}/{self.token}/"

    def is_own_host(self, host: str) -> bool:
        """Whether a request's ``Host`` names this server: a foreign name that resolves to it doesn't."""
        name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        name, port = (name, port) if colon else (host, "80")
        name = name.strip("[]").lower()
        if port != str(self.port):
            return False
        if name in (self.host.lower(), *(LOOPBACK if self.host in LOOPBACK or _any(self.host) else ())):
            return True
        if not _any(self.host):
            return False
        return _is_address(name) or name in (socket.gethostname().lower(), socket.getfqdn().lower())

    def is_own_origin(self, origin: str) -> bool:
        """Whether a request's ``Origin`` is this server's page."""
        scheme, _, host = origin.partition("://")
        return scheme == "http" and self.is_own_host(host)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread for a connection. Of too many, the oldest is closed that hasn't given the token."""
        with self._lock:
            if len(self._strangers) + len(self._known) >= CONNECTIONS:
                if not self._strangers:
                    self.shutdown_request(request)
                    return
                self._drop(next(iter(self._strangers)))
            self._strangers[request] = time.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._strangers.pop(request, None)
                self._known.discard(request)

    def service_actions(self) -> None:
        """Close the connections that haven't given the token for too long."""
        with self._lock:
            oldest = time.monotonic() - HEAD_S
            for request in [request for request, began in self._strangers.items() if began < oldest]:
                self._drop(request)

    def welcome(self, request: Any) -> None:
        """Say that a connection gave the token: it isn't closed for others."""
        with self._lock:
            if self._strangers.pop(request, None) is not None:
                self._known.add(request)

    def _drop(self, request: Any) -> None:
        """Close a stranger's connection in both directions, which ends the thread that serves it."""
        del self._strangers[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error."""


class PortTaken(UsageError, OSError):
    """Nothing can listen there."""


def _any(host: str) -> bool:
    """Whether a host means all addresses of the machine."""
    return host in ("", "0.0.0.0", "::")  # noqa: S104 - only if somebody asks for it


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _json(answer: Any) -> ServedFile:
    try:
        content = msgspec.json.encode(answer)
    except UnicodeEncodeError:  # a file's name that isn't UTF-8
        content = msgspec.json.encode(storable(answer))
    return ServedFile(content, "application/json")


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "trackers"
    sys_version = ""
    timeout = IDLE_S

    def do_GET(self) -> None:
        """Answer: the page's files, questions below ``api/``, media."""
        self._serve(None)

    def do_POST(self) -> None:
        """Do what is asked for below ``do/``."""
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") or not (length.isascii() and length.isdecimal()):
            self._send_error(HTTPStatus.LENGTH_REQUIRED, "how long is it?")
        elif int(length) > DEED_BYTES:
            self._send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {DEED_BYTES:,} bytes")
        elif not self._has_token():
            self._send_error(HTTPStatus.NOT_FOUND, UNKNOWN_ADDRESS)
        elif refused := self._refused_deed():
            self._send_error(HTTPStatus.FORBIDDEN, refused)
        else:
            self._serve(self.rfile.read(int(length)))

    def _serve(self, content: bytes | None) -> None:
        """Answer a question, or with content do something."""
        began = time.perf_counter()
        try:
            refused = self._refused() if content is None else ""
            if refused:
                self._send_error(HTTPStatus.FORBIDDEN, refused)
                return
            address = urlsplit(self.path)
            if not self._has_token():
                self._send_error(HTTPStatus.NOT_FOUND, UNKNOWN_ADDRESS)
                return
            self.server.welcome(self.connection)
            rest = address.path.removeprefix("/").partition("/")[2]
            parameters = dict(parse_qsl(address.query, keep_blank_values=True))
        except ValueError as error:  # an address that is none
            self._send_error(HTTPStatus.BAD_REQUEST, str(error))
            return
        try:
            with boundary("what was asked for"):
                if content is None:
                    file = self._answer(unquote(rest), parameters)
                else:
                    done = deeds.act(self.server.catalogue, unquote(rest).removeprefix("do/"), content)
                    file = _json(done)
        except NotFound as error:
            self._send_error(HTTPStatus.NOT_FOUND, str(error))
        except TrackersError as error:
            self._send_error(HTTPStatus.BAD_REQUEST, str(error))
        else:
            took = f"answer;dur={(time.perf_counter() - began) * 1000:.1f}"
            more = {"Content-Disposition": f'attachment; filename="{file.name}"'} if file.name else {}
            self._send(HTTPStatus.OK, file.content, file.type, {**more, "Server-Timing": took})

    def _has_token(self) -> bool:
        """Whether the address that is asked for begins with the token."""
        token = urlsplit(self.path.partition("?")[0]).path.removeprefix("/").partition("/")[0]
        return hmac.compare_digest(unquote(token).encode(), self.server.token.encode())

    def _refused_deed(self) -> str:
        """Why nothing is done for this request; "" for a page of this server, which asked for the token."""
        own = self.server.deed_token
        if not own:
            return "this page only shows runs: it was started with --read-only, or others can reach it"
        given = self.headers.get("X-Trackers-Token", "")
        if not hmac.compare_digest(given.encode(), own.encode()):
            return "the page is an older one: load it again"
        return self._refused(content=True)

    def _refused(self, *, content: bool = False) -> str:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not self.server.is_own_host(hosts[0].strip()):
            return "this server has another name: open the address that `trackers ui` printed"
        asks = self.headers.get("Sec-Fetch-Site", "none")
        follows_link = not content and (self.headers.get("Sec-Fetch-Mode"), self.headers.get("Sec-Fetch-Dest")) == (
            "navigate",
            "document",
        )
        origins = self.headers.get_all("Origin") or []  # browsers send Sec-Fetch-Site to trustworthy addresses alone
        foreign = asks not in ("none", "same-origin") and not follows_link
        if foreign or not all(self.server.is_own_origin(origin) for origin in origins):
            return "another site asks"
        lengths = {*(self.headers.get_all("Content-Length") or []), "0"}
        if not content and (len(lengths) > 1 or self.headers.get("Transfer-Encoding")):
            return "a request has no content here"
        return ""

    def _answer(self, rest: str, parameters: Mapping[str, str]) -> ServedFile:
        name = rest or "index.html"
        if name in PARTS:
            return ServedFile(pages.part(name).encode(), TYPES[name.rpartition(".")[2]])
        if rest in answers.FILES:
            return answers.FILES[rest](self.server.catalogue, parameters)
        if not rest.startswith("api/"):
            raise NotFound("there is no such page")
        if rest == "api/may":
            place = key_of(str(self.server.catalogue.root.absolute()), "")
            return _json({"token": self.server.deed_token, "place": place})
        return _json(answers.answer(self.server.catalogue, rest.removeprefix("api/"), parameters))

    def _send_error(self, status: HTTPStatus, text: str) -> None:
        self._send(status, msgspec.json.encode({"error": escaped(text[:1000])}), "application/json")

    def _send(self, status: HTTPStatus, content: bytes, kind: str, more: Mapping[str, str] = {}) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, **more, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        if status != HTTPStatus.OK:
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server itself refuses, in our form."""
        self._send_error(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: an address holds the token."""
