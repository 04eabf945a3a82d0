"""What ``TRACKER_ALERT_TO`` and ``TRACKER_ALERT_SMTP`` take."""

from __future__ import annotations

import contextlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers.alerts.destinations import Destination, MailServer, mail_server, parse


def test_places_are_read() -> None:
    """By prefix, and by the address's host; each once."""
    text = (
        "slack:https://a.example/x; https://hooks.slack.com/services/T/B/x; https://discord.com/api/webhooks/1/x;"
        "https://ntfy.sh/topic\nhttps://prod-1.westeurope.logic.azure.com/workflows/x; https://example.org/x; desktop;"
        "mailto:me@x.org; mail: me@x.org ; command:/bin/echo 'a b'; COMMAND:~/bin/note"
    )
    assert parse(text) == (
        Destination("slack", "https://a.example/x"),
        Destination("slack", "https://hooks.slack.com/services/T/B/x"),
        Destination("discord", "https://discord.com/api/webhooks/1/x"),
        Destination("ntfy", "https://ntfy.sh/topic"),
        Destination("teams", "https://prod-1.westeurope.logic.azure.com/workflows/x"),
        Destination("webhook", "https://example.org/x"),
        Destination("desktop"),
        Destination("mail", "me@x.org"),
        Destination("command", "/bin/echo 'a b'"),
        Destination("command", "~/bin/note"),
    )
    assert parse("") == parse(" ; ") == ()


def test_apprise_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first step, with the command; its places show the service alone."""
    (place,) = parse("apprise:TGram://12:token/chat/?a=b")
    assert place == Destination("apprise", "TGram://12:token/chat/?a=b")
    assert place.label == "apprise (TGram)"
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ValueError, match="install it with `pip install apprise`"):
        parse("apprise:tgram://token/chat")


@pytest.mark.parametrize("host", ["hooks.slack.com.evil.example", "evilhooks.slack.com", "notdiscord.com.example"])
def test_host_that_only_looks_like_one_gets_plain_json(host: str) -> None:
    """The whole host counts."""
    assert parse(f"https://{host}/x")[0].kind == "webhook"


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"slakc:https://x/{SECRET}", "place 1: 'slakc' is no kind of place: did you mean 'slack'?"),
        (f"desktop; fax:{SECRET}", "place 2: 'fax' is no kind of place: known are slack, discord"),
        (SECRET, "place 1: 's3cr3t' is no kind of place"),
        (f"/path/{SECRET}", "place 1: its beginning is no kind of place"),
        ("slack:", "place 1: slack: is followed by an address, https://…"),
        (f"slack:ftp://x/{SECRET}", "place 1: its address isn't https://HOST/…"),
        (f"webhook:https:///{SECRET}", "place 1: its address isn't https://HOST/…"),
        (f"webhook:https://x:port/{SECRET}", "place 1: its address isn't https://HOST/…"),
        (f"webhook:https://x/{SECRET} y", "place 1: its address isn't https://HOST/…"),
        ("ntfy:https://ntfy.sh/", "place 1: ntfy's address ends with a topic"),
        ("mail:me", "place 1: mail: is followed by an address, me@example.org"),
        ("mail:me@x.org,you@x.org", "place 1: mail: is followed by an address"),
        ("command:echo x", "place 1: command: is followed by a program's absolute path"),
        ("command:/bin/echo 'x", "place 1: command: No closing quotation"),
        (f"apprise:{SECRET}", "place 1: apprise: is followed by one of Apprise's addresses"),
        (f"apprise:x://{SECRET} y", "place 1: apprise: is followed by one of Apprise's addresses"),
        ("desktop:x", "place 1: desktop takes nothing after it"),
        (";".join(f"https://x/{n}" for n in range(21)), "it has 21 places; 20 are the most"),
    ],
)  # fmt: skip
def test_bad_place_is_named_without_its_secret(text: str, message: str) -> None:
    """By its number and kind."""
    with pytest.raises(ValueError, match=r".") as caught:
        parse(text)
    assert str(caught.value).startswith(message)
    assert SECRET not in str(caught.value) or text == SECRET


@pytest.mark.heavy
@given(st.text(alphabet="slackwebhookmailcommanddesktopntfy:/;@.?#[]% \n\\'\"", max_size=60))
def test_any_text_is_places_or_an_error(text: str) -> None:
    """What is a place can be shown."""
    with contextlib.suppress(ValueError):
        for place in parse(text):
            assert place.label
            assert place.name


def test_names_and_what_is_shown_have_no_secret() -> None:
    """Files and messages have these."""
    for text in (f"https://u:{SECRET}@example.org/{SECRET}?t={SECRET}", f"command:/bin/echo {SECRET}"):
        place = parse(text)[0]
        assert SECRET not in place.name + place.label
    assert parse("https://example.org/x")[0].label == "webhook (example.org)"
    assert parse("command:/bin/echo x")[0].label == "command (echo)"


def test_mail_servers_are_read() -> None:
    """The port is that of the way: 587 with a login, 465 with TLS from the beginning."""
    assert mail_server("") == MailServer("localhost", 25)
    assert mail_server("smtp://mail.x.org") == MailServer("mail.x.org", 25)
    assert mail_server("smtp://me%40x.org:p%3Aw@mail.x.org") == MailServer("mail.x.org", 587, False, "me@x.org", "p:w")
    assert mail_server("smtps://a:b@mail.x.org") == MailServer("mail.x.org", 465, True, "a", "b")
    for text in (f"https://x/{SECRET}", f"smtp://x/{SECRET}", f"smtp://x:{SECRET}", f"{SECRET}"):
        with pytest.raises(ValueError, match=r"it isn't smtp://user:password@host:587") as caught:
            mail_server(text)
        assert SECRET not in str(caught.value)
