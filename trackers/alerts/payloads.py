"""What each kind of destination is sent, as its documentation has it."""

from __future__ import annotations

import datetime
import email.utils
import html
import json
import re
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from trackers.alerts.destinations import Destination

SLACK_MOST, DISCORD_MOST, NTFY_MOST, TEXT_MOST = 4000, 2000, 4000, 20_000
"""Maximum lengths in characters. Slack cuts off text after 40,000 and asks for no more than 4,000
(https://docs.slack.dev/changelog/2018-truncating-really-long-messages), Discord's ``content`` takes 2,000
(https://discord.com/developers/docs/resources/webhook#execute-webhook), ntfy turns more than 4,096 bytes into an
attachment (https://docs.ntfy.sh/publish/#limitations)."""
_PRIORITY = {"INFO": 3, "WARN": 4, "ERROR": 5}
_COLOUR = {"INFO": "good", "WARN": "warning", "ERROR": "attention"}


class AlertMessage(msgspec.Struct, kw_only=True):
    """One alert as it is sent, or several in one.

    id: the same at each try, and for each destination. repeat: an earlier try may have arrived. count: of alerts in it.
    """

    id: str
    title: str
    text: str = ""
    level: str = "INFO"
    time: float = 0.0
    step: int | None = None
    project: str = ""
    run: str = ""
    run_id: str = ""
    host: str = ""
    rule: str = ""
    count: int = 1
    repeat: bool = False

    def headline(self) -> str:
        """Level, title and run."""
        return " ".join(f"{self.level}: {self.title} ({self.project}/{self.run})".split())

    def details(self) -> str:
        """Text, and where it comes from."""
        at = datetime.datetime.fromtimestamp(self.time, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        step = f", step {self.step}" if self.step is not None else ""
        lines = [self.text] if self.text else []
        lines.append(f"run {self.project}/{self.run_id} on {self.host or '?'}{step}, {at}, alert {self.id}")
        if self.repeat:
            lines.append("Sent again: whether it arrived before isn't known.")
        return "\n".join(lines)


class HttpRequest(NamedTuple):
    """An HTTP POST."""

    url: str
    body: bytes
    headers: Mapping[str, str]


def request(destination: Destination, message: AlertMessage) -> HttpRequest:
    """The request that brings a message to a webhook."""
    url, headers = destination.target, {"Content-Type": "application/json; charset=utf-8"}
    if destination.kind == "ntfy":
        url, topic = _ntfy(url)
        body = ntfy(message, topic)
        headers["X-Sequence-ID"] = message.id
    else:
        body = {"slack": slack, "discord": discord, "teams": teams}.get(destination.kind, generic)(message)
    if destination.kind == "webhook":
        headers["Idempotency-Key"] = f'"{message.id}"'
    return HttpRequest(url, json.dumps(body).encode(), headers)


def slack(message: AlertMessage) -> dict[str, Any]:
    """``{"text": …}``; "&", "<" and ">" escaped, so that no text calls a channel together.

    https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
    https://docs.slack.dev/messaging/formatting-message-text#escaping
    """
    head, rest = (html.escape(text, quote=False) for text in (message.headline(), message.details()))
    return {"text": _truncate(f"*{head.replace('*', '')}*\n{rest}", SLACK_MOST)}


def discord(message: AlertMessage) -> dict[str, Any]:
    """``content``, in which nobody is mentioned.

    https://discord.com/developers/docs/resources/webhook#execute-webhook
    """
    text = f"**{_escaped(message.headline())}**\n{_escaped(message.details())}"
    return {"content": _truncate(text, DISCORD_MOST), "allowed_mentions": {"parse": []}}


def teams(message: AlertMessage) -> dict[str, Any]:
    """An adaptive card, which webhooks of Teams' workflows take.

    https://learn.microsoft.com/en-us/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
    """
    blocks = [{"type": "TextBlock", "text": _escaped(message.headline()), "weight": "Bolder", "wrap": True,
               "color": _COLOUR.get(message.level, "default")}]  # fmt: skip
    blocks += [
        {"type": "TextBlock", "text": _truncate(_escaped(line), 4000), "wrap": True}
        for line in message.details().split("\n")[:50]
        if line.strip()
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.2",
        "body": blocks,
    }  # fmt: skip
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [content]}


def ntfy(message: AlertMessage, topic: str) -> dict[str, Any]:
    """JSON for the server's root. Its header ``X-Sequence-ID`` has a repeat take the first one's place.

    https://docs.ntfy.sh/publish/#publish-as-json
    https://docs.ntfy.sh/publish/#updating-deleting-notifications
    """
    return {
        "topic": topic, "title": _truncate(message.headline(), 250),
        "message": _truncate(message.details(), NTFY_MOST // 4),
        "priority": _PRIORITY.get(message.level, 3), "tags": [message.level.lower()],
    }  # fmt: skip


def generic(message: AlertMessage) -> dict[str, Any]:
    """JSON for any other receiver, and for commands; the header ``Idempotency-Key`` has ``id``, too.

    https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header
    """
    content: dict[str, Any] = msgspec.to_builtins(message)
    content["text"] = _truncate(message.text, TEXT_MOST)
    return content


def mail(message: AlertMessage, sender: str, to: str) -> EmailMessage:
    """A mail. Its ``Message-ID`` is the same at each try, by which mail systems know a repeat (RFC 5322, 3.6.4)."""
    email_message = EmailMessage()
    email_message["Subject"] = _truncate(_one_line(message.headline()), 300)
    email_message["From"] = sender
    email_message["To"] = to
    email_message["Date"] = email.utils.formatdate(message.time)
    email_message["Message-ID"] = f"<{message.id}@trackers.invalid>"
    email_message["Auto-Submitted"] = "auto-generated"
    email_message.set_content(_truncate(message.details(), TEXT_MOST) + "\n")
    return email_message


def note(message: AlertMessage) -> tuple[str, str]:
    """Title and body of a desktop note; the body is markup.

    https://specifications.freedesktop.org/notification-spec/latest/markup.html
    """
    return _truncate(_one_line(message.headline()), 200), html.escape(_truncate(message.details(), 1000), quote=False)


def _ntfy(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    above, _, topic = parts.path.rstrip("/").rpartition("/")
    return urlunsplit((parts.scheme, parts.netloc, f"{above}/", parts.query, "")), unquote(topic)


def _escaped(text: str) -> str:
    """Without Markdown of Discord and Teams: names of metrics have "_" and "*"."""
    return re.sub(r"([\\*_~`|\[\]>#])", r"\\\1", text)


def _one_line(text: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def _truncate(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
