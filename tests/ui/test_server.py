"""The server of the live page: for who has the address only, reading only, and it ends as it was asked to."""

from __future__ import annotations

import base64
import contextlib
import http.client
import re
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from tests.analysis.support import said_in_one_line, write_run
from tests.ui.support import Site, command, site
from trackers.cli.ui import _open as open_browser
from trackers.errors import UsageError
from trackers.ui import pages
from trackers.ui import server as module
from trackers.ui.catalogue import Catalogue
from trackers.ui.server import CONNECTIONS, Server


@pytest.fixture
def served() -> Site:
    """A server with one run."""
    write_run("one", [(0, 0, {"loss": 1.0})])
    with site(runs=1) as found:
        yield found  # type: ignore[misc]


@pytest.mark.heavy
def test_page_and_answers_are_served_below_the_token(served: Site) -> None:
    """The page, its parts and its answers, and none of them without the token or with another."""
    token = urlsplit(served.address).path.strip("/")
    assert len(token) >= 32
    for path in ("", *pages.names(), "api/runs", "api/columns", "api/look"):
        assert served.get(path)[0] == 200
        for other in ("/", f"/{path}", f"/{token[:-1]}/{path}", f"/{token}x/{path}", f"/%00/{path}", f"/%C3%A9/{path}"):
            status, _, content = served.get(other)
            assert status == 404
            assert b"one" not in content
    assert served.get("api/nothing")[0] == 404
    assert served.get("../app.js")[0] == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "[::1", "a:b:c"]
)
def test_other_host_is_refused(served: Site, host: str) -> None:
    """A name that somebody lets point to this machine (DNS rebinding) reaches nothing."""
    port = urlsplit(served.address).port
    assert served.get("api/runs", Host=host.format(port=port))[0] == 403


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_own_hosts_are_served(served: Site, host: str) -> None:
    """By each name of the loopback."""
    assert served.get("api/runs", Host=host.format(port=urlsplit(served.address).port))[0] == 200


def test_page_of_another_site_is_refused(served: Site) -> None:
    """What a browser asks for another site's page is refused, even with the token; and nothing allows such pages."""
    assert served.get("api/runs", **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert served.get("api/runs", **{"Sec-Fetch-Site": "same-site"})[0] == 403
    framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    assert served.get("", **framed)[0] == 403
    assert served.get("", **{**framed, "Sec-Fetch-Dest": "document"})[0] == 200  # a link that somebody follows
    for origin in ("http://evil.example", "null"):  # some browsers say no more than that
        assert served.get("api/runs", Origin=origin)[0] == 403
    own = f"http://{urlsplit(served.address).netloc}"
    status, headers, _ = served.get("api/runs", Origin=own, **{"Sec-Fetch-Site": "same-origin"})
    assert status == 200
    assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "CONNECT", "X"])
def test_only_get_is_answered(served: Site, method: str) -> None:
    """And POST, by tests/ui/test_deeds.py."""
    parts = urlsplit(served.address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    connection.request(method, parts.path + "api/runs")
    assert connection.getresponse().status == 501
    connection.close()


def test_request_with_content_is_refused(served: Site) -> None:
    """What follows the head of a GET is never taken for a request."""
    assert served.get("api/runs", **{"Content-Length": "5"})[0] == 403
    assert served.get("api/runs", **{"Transfer-Encoding": "chunked"})[0] == 403
    parts = urlsplit(served.address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    connection.putrequest("GET", parts.path + "api/runs")
    for length in ("0", "5"):
        connection.putheader("Content-Length", length)
    connection.endheaders()
    assert connection.getresponse().status == 403
    connection.close()


def test_every_answer_has_the_policy(served: Site) -> None:
    """Answers, files, errors: only this server's scripts run, nobody frames the page, nothing is kept or guessed."""
    for path in ("", "app.js", "api/runs", "api/nothing", "/", "media?run=x"):
        _, headers, _ = served.get(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "set-cookie" not in headers


def test_loopback_is_the_default() -> None:
    """Nobody on another machine reaches it."""
    with Server(Catalogue([], Path("runs")), port=0) as server:
        assert server.server_address[0] == "127.0.0.1"
        assert server.address.startswith(f"http://127.0.0.1:{server.port}/")


def test_tokens_differ() -> None:
    """Each start has its own, of 192 random bits; no part of it is compared before the others."""
    with Server(Catalogue([], Path("runs")), port=0) as one, Server(Catalogue([], Path("runs")), port=0) as other:
        assert one.token != other.token
        for token in (one.token, one.deed_token):
            assert len(base64.urlsafe_b64decode(token)) * 8 == 192
    text = Path(module.__file__).read_text()
    assert text.count("hmac.compare_digest(") == 2
    assert not re.search(r"token\s*[!=]=|[!=]=\s*[\w.]*token", text)


def test_taken_port_is_told_in_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that was asked for and is taken: one line that says what to do; the default port gives way."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, error = said_in_one_line(["ui", "--port", str(port)], capsys, monkeypatch)
        assert (code, error) == (2, f"trackers: port {port} is taken: give another --port, or 0 for any free one\n")
        monkeypatch.setattr("trackers.ui.server.PORT", port)
        with Server(Catalogue([], Path("runs"))) as server:
            assert server.port != port


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--port", "70000"], "port 70000 must be 0 to 65535"),
        (["--port", "-1"], "port -1 must be 0 to 65535"),
        (["--host", "192.0.2.1", "--port", "0"], "can't listen on 192.0.2.1"),
        (["--host", "no such host"], "host 'no such host' is unknown here"),
        (["nowhere"], "no runs in runs"),
        (["xyz:nowhere"], "unknown source scheme 'xyz'"),
    ],
)
def test_mistake_is_told_in_one_line(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can't be listened on or read ends the command before the address is printed."""
    code, error = said_in_one_line(["ui", "--no-open", *arguments], capsys, monkeypatch)
    assert code in (1, 2)
    assert text in error


def test_any_address_knows_addresses_but_no_foreign_names() -> None:
    """Listening on all addresses, a request may name an address or this machine; other names may be rebound."""
    with Server(Catalogue([], Path("runs")), host="0.0.0.0", port=0) as server:
        assert server.is_own_host(f"192.0.2.7:{server.port}")
        assert server.is_own_host(f"{socket.gethostname()}:{server.port}")
        assert not server.is_own_host(f"evil.example:{server.port}")


def test_too_large_port_is_a_usage_error() -> None:
    """Also in Python."""
    with pytest.raises(UsageError, match="0 to 65535"):
        Server(Catalogue([], Path("runs")), port=65536)


@pytest.mark.parametrize("content", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_silent_strangers_do_not_lock_the_owner_out(served: Site, content: bytes) -> None:
    """More connections than there may be, none of which gives the token: the oldest make room."""
    parts = urlsplit(served.address)
    others = [socket.create_connection((parts.hostname, parts.port)) for _ in range(CONNECTIONS + 5)]
    try:
        for other in others:
            with contextlib.suppress(OSError):
                other.sendall(content)
        assert served.get("api/runs")[0] == 200
        assert served.get("")[0] == 200
        for other in others[:5]:  # they were closed for those behind
            other.setblocking(False)
            with contextlib.suppress(ConnectionError):
                assert other.recv(4096) == b""
    finally:
        for other in others:
            other.close()


def test_slow_stranger_is_closed(served: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hasn't finished a request's head after the ten seconds that docs/security.md names, and not before."""
    clock = [1000.0]
    monkeypatch.setattr("trackers.ui.server.time", SimpleNamespace(monotonic=lambda: clock[0], perf_counter=float))
    parts = urlsplit(served.address)
    for waited, answered in ((10.0, True), (10.1, False)):
        with socket.create_connection((parts.hostname, parts.port), timeout=60) as slow:
            slow.sendall(b"GET / HT")
            assert served.get("api/runs")[0] == 200  # the slow one was accepted before this
            clock[0] += waited
            for _ in range(2):  # before the second is accepted, those who wait too long were looked for
                assert served.get("api/runs")[0] == 200
            with contextlib.suppress(ConnectionError):
                slow.sendall(b"TP/1.0\r\n\r\n")
                assert slow.recv(100).startswith(b"HTTP/") == answered


def test_owners_connection_stays(served: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the token was given, a connection is kept for further requests, whatever comes besides."""
    parts = urlsplit(served.address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    connection.request("GET", parts.path)
    assert connection.getresponse().read()
    monkeypatch.setattr("trackers.ui.server.HEAD_S", 0.0)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as stranger:
        stranger.recv(1)
    connection.request("GET", parts.path + "api/runs")
    assert connection.getresponse().status == 200
    connection.close()


def test_browsers_command_line_has_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others see it. It names a file of the user's own, in a directory of the user's own, which leads to the page."""
    opened: list[str] = []
    monkeypatch.setenv("DISPLAY", ":9")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("webbrowser.open", opened.append)
    open_browser("http://127.0.0.1:7007/token-of-192-bits/")
    (address,) = opened
    assert "token-of-192-bits" not in address
    page = Path(urlsplit(address).path)
    assert (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert 'url=http://127.0.0.1:7007/token-of-192-bits/"' in page.read_text()


def test_command_prints_the_address_and_ends_by_ctrl_c() -> None:
    """The address is the first line; an interrupt ends it with exit code 0 and not a word."""
    write_run("one", [(0, 0, {"loss": 1.0})])
    with command("--port", "0") as (process, found):
        assert found.get()[0] == 200
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        assert (process.returncode, out, error) == (0, "", "")
