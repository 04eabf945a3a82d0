"""What each kind of place is sent: the shapes of its documentation, and nothing that calls people together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trackers.alerts import payloads
from trackers.alerts.destinations import parse
from trackers.alerts.payloads import AlertMessage, request

MESSAGE = AlertMessage(
    id="abc", title="<!channel> val_loss > 10 *now*", text="@everyone val_loss = 11\n[x](http://evil)", level="ERROR",
    time=1_700_000_000.0, step=7, project="p", run="one", run_id="id1", host="node", rule="val_loss > 10",
)  # fmt: skip


def sent(place: str, message: AlertMessage = MESSAGE) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Address, headers and body of the request to a place."""
    asked = request(parse(place)[0], message)
    return asked.url, dict(asked.headers), json.loads(asked.body)


def test_slack_gets_text_that_calls_nobody() -> None:
    """``text`` alone; its three signs are escaped as Slack says."""
    url, headers, body = sent("slack:https://hooks.slack.com/services/x")
    assert url == "https://hooks.slack.com/services/x"
    assert headers["Content-Type"].startswith("application/json")
    assert list(body) == ["text"]
    assert body["text"].startswith("*ERROR: &lt;!channel&gt; val_loss &gt; 10 now (p/one)*\n@everyone val_loss = 11\n")
    assert "run p/id1 on node, step 7, 2023-11-14 22:13:20 UTC, alert abc" in body["text"]


def test_discord_gets_content_that_mentions_nobody() -> None:
    """At most 2,000 characters, which is what it takes."""
    _, _, body = sent("discord:https://discord.com/api/webhooks/1/x")
    assert body["allowed_mentions"] == {"parse": []}
    assert r"val\_loss" in body["content"]
    assert r"\[x\]" in body["content"]
    long = AlertMessage(id="a", title="t", text="x" * 9000)
    assert len(sent("discord:https://discord.com/api/webhooks/1/x", long)[2]["content"]) == payloads.DISCORD_MOST


def test_teams_gets_an_adaptive_card() -> None:
    """In a message's attachment; a line is a block."""
    _, _, body = sent("teams:https://x.logic.azure.com/x")
    assert body["type"] == "message"
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["$schema"]) == ("AdaptiveCard", "http://adaptivecards.io/schemas/adaptive-card.json")
    assert [block["type"] for block in card["body"]] == ["TextBlock"] * 4
    assert card["body"][0]["color"] == "attention"
    assert r"\[x\]" in card["body"][2]["text"]


@pytest.mark.parametrize(("address", "root"), [("https://ntfy.sh/my%20topic", "https://ntfy.sh/"),
                                               ("https://x.org/ntfy/my%20topic/", "https://x.org/ntfy/")])  # fmt: skip
def test_ntfy_gets_json_at_its_root(address: str, root: str) -> None:
    """With the topic, a priority of 1 to 5, and an id by which a repeat takes the first one's place."""
    url, headers, body = sent(f"ntfy:{address}")
    assert (url, body["topic"], body["priority"], headers["X-Sequence-ID"]) == (root, "my topic", 5, "abc")
    assert body["title"].startswith("ERROR: ")
    long = AlertMessage(id="a", title="t", text="\N{SNOWMAN}" * 9000)
    assert len(sent(f"ntfy:{address}", long)[2]["message"].encode()) <= 4096


def test_webhook_gets_everything_as_json() -> None:
    """With the id in the body and in the header that receivers know."""
    _, headers, body = sent("https://example.org/x")
    assert headers["Idempotency-Key"] == '"abc"'
    assert set(body) == {
        "id", "title", "text", "level", "time", "step", "project", "run", "run_id", "host", "rule", "count", "repeat",
    }  # fmt: skip
    assert (body["text"], body["step"], body["repeat"]) == (MESSAGE.text, 7, False)


def test_mail_has_one_id_and_no_header_from_a_text() -> None:
    """A line break in a title adds no header."""
    message = AlertMessage(id="abc", title="x\r\nBcc: evil@x.org\n", text="\N{SNOWMAN}", time=1.0)
    found = payloads.mail(message, "a@x.org", "me@x.org")
    assert found["Bcc"] is None
    assert found["Message-ID"] == "<abc@trackers.invalid>"
    assert found["Subject"] == "INFO: x Bcc: evil@x.org (/)"
    assert "\N{SNOWMAN}" in found.get_content()


def test_note_has_no_markup_of_a_text() -> None:
    """Desktops read markup in the body."""
    title, body = payloads.note(AlertMessage(id="a", title="<b>", text="<a href='x'>y</a>"))
    assert title == "INFO: <b> (/)"
    assert body.startswith("&lt;a href=")


def test_repeat_says_so() -> None:
    """A person who reads two of them knows why."""
    assert "Sent again" in payloads.slack(AlertMessage(id="a", title="t", repeat=True))["text"]
    assert "Sent again" not in payloads.slack(AlertMessage(id="a", title="t"))["text"]
