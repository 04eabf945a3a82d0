"""What is said where a store refuses, or something else answers: what it is, what to do, and never a key."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.object_storage.support import grow, run_directory
from trackers.errors import DeliveryError, Refused, Unavailable
from trackers.object_storage import mirror, store
from trackers.object_storage.removal import Claim
from trackers.object_storage.shipping import Sender
from trackers.object_storage.store import Store

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAVERYSECRETID", "AWS_SECRET_ACCESS_KEY": "secretofthekey", "AWS_SESSION_TOKEN": "oftoken",
}  # fmt: skip
LOGIN = (
    b"<!DOCTYPE html><html><head><title>Welcome to the network</title></head><body>" + b"x" * 5000 + b"</body></html>"
)


def answer(code: str, message: str, more: str = "") -> bytes:
    """An error as S3 puts it."""
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>".encode()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, bytes], None]]:
    """Set what a server on loopback answers to every request."""
    given: list[tuple[int, bytes]] = [(200, b"")]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body = given[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer

    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr(store, "RETRY_S", 0.1)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")
    yield lambda status, body: given.__setitem__(0, (status, body))
    server.shutdown()
    server.server_close()


def said(call: Callable[[], object], kind: type[DeliveryError]) -> str:
    """The one line of an error, in which no key may be."""
    with pytest.raises(kind) as raised:
        call()
    text = str(raised.value)
    assert not any(value in text for value in KEYS.values()), text
    assert "\n" not in text
    assert "<" not in text
    return text


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, answer("ExpiredToken", "It has expired.", "<Token-0>oftoken</Token-0>"),
         "the keys have expired (ExpiredToken: It has expired.): set AWS_ACCESS_KEY_ID, "
         "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN anew; runs that were begun before then go on by trackers sync "
         "RUN --to storage"),
        (403, answer("InvalidAccessKeyId", "The key AKIAVERYSECRETID doesn't exist.",
                     "<AWSAccessKeyId>AKIAVERYSECRETID</AWSAccessKeyId>"),
         "the keys aren't known there (InvalidAccessKeyId: The key *** doesn't exist.): see AWS_ACCESS_KEY_ID, "),
        (403, answer("SignatureDoesNotMatch", "No match."),
         "the keys aren't known there (SignatureDoesNotMatch: No match.): see AWS_ACCESS_KEY"),
        (400, answer("AuthorizationHeaderMalformed", "malformed", "<Region>eu-central-1</Region>"),
         "the bucket is in region eu-central-1 (AuthorizationHeaderMalformed: malformed): set AWS_REGION=eu-central-1"),
        (301, answer("PermanentRedirect", "Elsewhere."), "the bucket is in another region: set AWS_REGION; "),
        (404, answer("NoSuchBucket", "It does not exist"), "there is no such bucket"),
        (403, answer("RequestTimeTooSkewed", "Too large."), "refused, for this machine's clock is wrong: set it"),
    ],
)  # fmt: skip
def test_refusal_says_what_it_is_and_what_to_do(
    serve: Callable[[int, bytes], None], status: int, body: bytes, expected: str
) -> None:
    """Of listing, with which a sender and a reader begin, and of writing."""
    serve(status, body)
    held = Store("s3://bucket/runs")
    for call in (lambda: list(held.objects("p")), lambda: held.put("p/a", b"x"), lambda: held.delete(["p/a"])):
        assert said(call, Refused).startswith(f"s3://bucket/runs: {expected}")


def test_right_that_lacks_is_named(serve: Callable[[int, bytes], None]) -> None:
    """Which request wasn't allowed, on what."""
    serve(403, answer("AccessDenied", "Access Denied"))
    held = Store("s3://bucket/runs")
    assert said(lambda: held.put("p/a", b"x"), Refused) == (
        "s3://bucket/runs: not allowed: PUT /bucket/runs/p/a (AccessDenied: Access Denied): see the rights of "
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or of the machine's role"
    )
    assert ": not allowed: GET /bucket (AccessDenied" in said(lambda: list(held.objects()), Refused)
    assert ": not allowed: HEAD /bucket/runs/p/a (403 Forbidden)" in said(lambda: held.exists("p/a"), Refused)


@pytest.mark.parametrize("body", [LOGIN, LOGIN[:-20]])
@pytest.mark.parametrize("status", [200, 403, 407, 502])
def test_page_of_a_proxy_is_no_answer(
    serve: Callable[[int, bytes], None], status: int, body: bytes, tmp_path: Path
) -> None:
    """Whatever its status: nothing counts as written, a listing isn't empty, and what was copied stays."""
    serve(status, body)
    held = Store("s3://bucket/runs")
    for call in (lambda: list(held.objects("p")), lambda: held.put("p/a", b"x"), lambda: held.create("p/a", b"x")):
        text = said(call, Unavailable)
        assert "is in between" in text, text
    run_directory(tmp_path / "copy" / "p" / "abc")
    with pytest.raises(Unavailable):
        mirror.refresh("s3://bucket/runs", tmp_path / "copy")
    assert (tmp_path / "copy" / "p" / "abc" / "run.json").exists()


def test_page_isn_t_taken_for_another_attempt() -> None:
    """Else a delivery would stop for good: the claim of the next attempt was asked for, and something came."""
    for content in (LOGIN, b"", b"\0" * 64):
        with pytest.raises(Unavailable, match="is none"):
            Claim.parse(content)


def test_machine_without_keys_is_told_where_to_put_them(
    serve: Callable[[int, bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No variables, and a machine that answers for no role."""
    for name in KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    text = said(lambda: list(Store("s3://bucket/runs").objects()), Unavailable)
    assert text.startswith(
        "s3://bucket/runs: the environment has no keys, and this machine has no role, or doesn't say"
    )
    assert "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; runs that were begun before" in text


def test_object_that_is_refused_keeps_no_other(tmp_path: Path) -> None:
    """A policy that denies some names: all others are sent, the first one is named, and it is sent once allowed."""

    class Denying(Store):
        denied = "/media/"

        def put(self, name: str, content: bytes | Path) -> str:
            if self.denied and self.denied in name:
                raise Refused(f"not allowed: PUT {name}")
            return super().put(name, content)

    run = run_directory(tmp_path / "run")
    held = Denying(f"file://{tmp_path}/store")
    sender = Sender(held, run, "p/abc")
    with pytest.raises(Refused, match=r"media/13/13db\.npy"):
        sender.send()
    grow(run, 4)
    with pytest.raises(Refused, match=r"media/13/13db\.npy"):
        sender.send()
    mirror.copy(f"file://{tmp_path}/store", tmp_path / "copy")
    stream = "p/abc/streams/rank-0.1.jsonl"
    assert (tmp_path / "copy" / stream).read_bytes() == (run / "streams/rank-0.1.jsonl").read_bytes()
    held.denied = ""
    sender.finish()
    mirror.copy(f"file://{tmp_path}/store", tmp_path / "copy")
    assert (tmp_path / "copy/p/abc/media/13/13db.npy").read_bytes() == b"picture"
