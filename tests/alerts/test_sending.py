"""One try at one place: a webhook's, a mail server's, a program's answer, and what is made of it."""

from __future__ import annotations

import base64
import email.utils
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.receivers import mailbox, webhook
from trackers.alerts import sending
from trackers.alerts.destinations import Destination, MailServer, parse
from trackers.alerts.payloads import AlertMessage
from trackers.alerts.sending import AGAIN, REFUSED, SENT, UNKNOWN, SendResult, send

MESSAGE = AlertMessage(
    id="abc", title="val_loss > 10", text="val_loss = 11", time=1.7e9, project="p", run="one", run_id="i"
)


def tried(place: str, server: MailServer | None = None, **limits: float) -> SendResult:
    """What becomes of a message."""
    return send(parse(place)[0], MESSAGE, server or MailServer(), **limits)


@pytest.mark.parametrize(
    ("fault", "state", "reason"),
    [
        (200, SENT, ""),
        (204, SENT, ""),
        (500, AGAIN, "HTTP 500"),
        (503, AGAIN, "HTTP 503"),
        (408, AGAIN, "HTTP 408"),
        (429, AGAIN, "HTTP 429"),
        (400, REFUSED, "HTTP 400"),
        (404, REFUSED, "HTTP 404"),
        (410, REFUSED, "HTTP 410"),
        ("drop", UNKNOWN, "RemoteDisconnected"),
    ],
)
def test_answer_of_a_webhook_decides(fault: Any, state: str, reason: str) -> None:
    """Sent, tried again, or refused for good; where the connection broke after it, that isn't known."""
    with webhook(fault) as place:
        answer = tried(f"{place.url}/hook")
    assert (answer.state, answer.reason) == (state, reason)
    assert place.bodies[0]["title"] == "val_loss > 10"
    assert place.got[0][1]["idempotency-key"] == '"abc"'


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_other_address_is_not_followed(code: int) -> None:
    """An answer can't send the run's text, or a login, elsewhere."""
    with webhook() as other, webhook((code, {"Location": f"{other.url}/elsewhere"})) as place:
        answer = tried(f"{place.url}/hook")
    assert answer.state == REFUSED
    assert answer.reason == f"HTTP {code}: it answers with another address, which isn't followed"
    assert other.got == []


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [("7", 7, 7), ("0.5", 0.5, 0.5), ("-3", 0, 0), ("1e9", 3600, 3600), ("soon", 0, 0), ("nan", 0, 0),
     ("in two minutes", 60, 120), ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0)],
)  # fmt: skip
def test_pause_that_a_server_asks_for_is_kept(header: str, least: float, most: float) -> None:
    """Seconds or a date, an hour at most."""
    if header == "in two minutes":
        header = email.utils.formatdate(time.time() + 120, usegmt=True)
    with webhook((429, {"Retry-After": header})) as place:
        assert least <= tried(place.url).wait_s <= most


@pytest.mark.parametrize("fault", ["hang", "slow"])
def test_server_that_does_not_end_its_answer_holds_nobody_up(fault: str) -> None:
    """The deadline counts, also where a byte comes now and then; whether it arrived isn't known."""
    with webhook(fault) as place:
        assert tried(place.url, deadline_s=0.5) == SendResult(UNKNOWN, "no whole answer within 0 s")


def test_nobody_there_is_tried_again() -> None:
    """A refused connection: nothing was sent."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert tried(f"http://127.0.0.1:{port}/secret") == SendResult(AGAIN, "Connection refused")
        answer = tried("mail:me@x.org", MailServer("127.0.0.1", port))
        assert (answer.state, answer.reason) == (AGAIN, "Connection refused")


def test_unknown_host_is_tried_again_and_not_named() -> None:
    """A network that is away for a while; an address may be secret."""
    answer = tried("https://does-not-exist.invalid/secret")
    assert answer.state == AGAIN
    assert "secret" not in answer.reason


def test_login_of_an_address_is_a_header() -> None:
    """As ntfy's servers want it; the address itself goes without."""
    with webhook() as place:
        tried("ntfy:" + place.url.replace("http://", "http://me:p%40w@") + "/topic")
    path, headers, body = place.got[0]
    assert headers["authorization"] == "Basic " + base64.b64encode(b"me:p@w").decode()
    assert "@" not in headers["host"]
    assert (path, body["topic"], headers["x-sequence-id"]) == ("/", "topic", "abc")


def test_mail_is_handed_in() -> None:
    """With a subject, an id, and the text."""
    with mailbox() as box:
        assert tried("mail:me@x.org", MailServer("127.0.0.1", box.port)).state == SENT
    ((sender, to, text),) = box.mails
    assert "MAIL FROM:<trackers@".lower() in sender.lower().replace("from: <", "from:<")
    assert [(verb.upper(), address) for verb, _, address in (line.partition(":") for line in to)] == [
        ("RCPT TO", "<me@x.org>")
    ]
    assert "Subject: INFO: val_loss > 10 (p/one)" in text
    assert "Message-ID: <abc@trackers.invalid>" in text


@pytest.mark.parametrize(
    ("answers", "state", "reason"),
    [
        ({"rcpt": "550 no such user"}, REFUSED, "the mail server refused the address: 550"),
        ({"rcpt": "450 greylisted"}, AGAIN, "the mail server refused the address: 450"),
        ({"mail": "451 later"}, AGAIN, "the mail server answered 451"),
        ({"data_end": "552 too much"}, REFUSED, "the mail server answered 552"),
        ({"greeting": "554 go away"}, REFUSED, "the mail server answered 554"),
        ({"data_end": "drop"}, UNKNOWN, "SMTPServerDisconnected"),
        ({"greeting": "drop"}, AGAIN, "SMTPServerDisconnected"),
    ],
)
def test_answer_of_a_mail_server_decides(answers: dict[str, str], state: str, reason: str) -> None:
    """4xx is tried again, 5xx is for good; a connection that broke after the mail was handed in isn't known."""
    with mailbox(**answers) as box:
        answer = tried("mail:me@x.org", MailServer("127.0.0.1", box.port))
    assert (answer.state, answer.reason) == (state, reason)


def test_password_is_not_sent_without_encryption(monkeypatch: pytest.MonkeyPatch) -> None:
    """To another machine that offers none."""
    monkeypatch.setattr(sending, "_LOOPBACK", ())
    with mailbox() as box:
        answer = tried("mail:me@x.org", MailServer("127.0.0.1", box.port, user="me", password="s3cr3t"))
    assert answer.state == REFUSED
    assert answer.reason == "the mail server offers no encryption: no password is sent to it"
    assert box.mails == []


def script(path: Path, text: str) -> str:
    """A program, as a place."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return f"command:'{path}' word"


@pytest.mark.processes
def test_command_gets_the_alert_on_its_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of JSON; no word of it is an argument, and no secret is in its environment."""
    monkeypatch.setenv("TRACKER_ALERT_TO", "https://x/s3cr3t")
    monkeypatch.setenv("TRACKER_SECRET_TRACKER_ALERT_TO", "https://x/s3cr3t")
    place = script(tmp_path / "a b.sh", f'cat > {tmp_path}/got; echo "$@" > {tmp_path}/args; env > {tmp_path}/env')
    assert tried(place) == SendResult(SENT)
    assert json.loads((tmp_path / "got").read_text())["id"] == "abc"
    assert (tmp_path / "args").read_text() == "word\n"
    assert "s3cr3t" not in (tmp_path / "env").read_text()


@pytest.mark.processes
def test_command_that_fails_is_tried_again(tmp_path: Path) -> None:
    """By its exit code; one that can't be run isn't."""
    assert tried(script(tmp_path / "x.sh", "exit 3")) == SendResult(AGAIN, "command x.sh ended with exit code 3")
    assert tried("command:/does/not/exist") == SendResult(
        REFUSED, "command exist can't be run: No such file or directory"
    )  # fmt: skip


@pytest.mark.processes
def test_command_that_hangs_is_ended_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its whole session; whether it did what it should isn't known."""
    monkeypatch.setattr(sending, "COMMAND_S", 0.3)
    answer = tried(script(tmp_path / "x.sh", f"sleep 600 & echo $! > {tmp_path}/pid; wait"))
    assert answer.state == UNKNOWN
    pid = int((tmp_path / "pid").read_text())
    for _ in range(500):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.01)
    pytest.fail("what it started lives on")


@pytest.mark.processes
def test_desktop_note_is_shown_by_notify_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is one; no text is an option of it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tried("desktop") == SendResult(REFUSED, "there is no notify-send")
    script(tmp_path / "notify-send", f'for word in "$@"; do echo "[$word]"; done > {tmp_path}/args')
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    assert tried("desktop") == SendResult(SENT)
    words = (tmp_path / "args").read_text()
    assert words.index("[--]") < words.index("[INFO: val_loss > 10 (p/one)]")


def test_fault_of_one_place_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong inside: the other places get theirs."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("https://x/s3cr3t")

    monkeypatch.setattr(sending.payloads, "request", broken)
    assert send(Destination("webhook", "https://x/"), MESSAGE, MailServer()) == SendResult(AGAIN, "RuntimeError")


def test_apprise_hands_a_message_to_its_service() -> None:
    """By Apprise itself: title, text and level; what isn't taken is tried again, what is no service is refused."""
    with webhook(200, 500) as place:
        address = place.url.replace("http://", "apprise:json://")
        answers = [tried(address) for _ in range(2)]
    assert answers == [SendResult(SENT), SendResult(AGAIN, "Apprise couldn't hand it over")]
    body = place.bodies[0]
    assert (body["title"], body["type"]) == ("INFO: val_loss > 10 (p/one)", "info")
    assert body["message"].startswith("val_loss = 11\nrun p/i on ")
    assert tried("apprise:nonsense://x").state == REFUSED


def test_apprise_takes_nothing_to_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header may hold a key: a server that names another address gets it alone. An older Apprise would follow."""
    import apprise

    with webhook() as other, webhook(*[(307, {"Location": f"{other.url}/x"})] * 2) as place:
        address = place.url.replace("http://", "apprise:json://") + "?+X-Key=s3cr3t"
        assert tried(address).state == AGAIN
        assert (len(place.bodies), len(other.bodies)) == (1, 0)
        monkeypatch.delattr(apprise.AppriseAsset, "http_redirects")
        assert tried(address) == SendResult(REFUSED, "this Apprise follows other addresses: pip install 'apprise>=2'")
        assert len(place.bodies) == 1
