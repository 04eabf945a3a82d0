"""Destinations of ``TRACKER_ALERT_TO``: ``"slack:https://hooks.slack.com/…; mail:me@x.org; desktop"``."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from trackers.errors import did_you_mean

WEBHOOKS = ("slack", "discord", "teams", "ntfy", "webhook")
KINDS = (*WEBHOOKS, "mail", "command", "desktop", "apprise")
MOST = 20
"""Maximum number of destinations."""
_HOSTS = {
    "hooks.slack.com": "slack", "hooks.slack-gov.com": "slack",
    "discord.com": "discord", "discordapp.com": "discord",
    "webhook.office.com": "teams", "logic.azure.com": "teams", "logic.azure.us": "teams",
    "api.powerplatform.com": "teams",
    "ntfy.sh": "ntfy",
}  # fmt: skip
"""Hosts of addresses without a prefix, and whose they are; any other one gets plain JSON."""
_ADDRESS = re.compile(r"[^\s@,;<>\"]{1,64}@[^\s@,;<>\"]{1,255}")


def _of_host(host: str) -> str:
    return next((kind for name, kind in _HOSTS.items() if f".{host}".endswith(f".{name}")), "webhook")


class Destination(msgspec.Struct, frozen=True):
    """kind: one of :data:`KINDS`. target: address, mail address or command; it may hold a secret."""

    kind: str
    target: str = ""

    @property
    def name(self) -> str:
        """Distinguishes it from other destinations, without its secret."""
        if self.kind == "desktop":
            return self.kind
        return f"{self.kind}-{hashlib.sha256(self.target.encode()).hexdigest()[:10]}"

    @property
    def label(self) -> str:
        """As messages and tables call it: without its secret."""
        if self.kind in WEBHOOKS:
            return f"{self.kind} ({urlsplit(self.target).hostname})"
        if self.kind == "apprise":
            return f"apprise ({self.target.partition(':')[0]})"
        if self.kind == "command":
            return f"command ({os.path.basename(shlex.split(self.target)[0])})"
        return f"mail ({self.target})" if self.kind == "mail" else self.kind


def parse(text: str) -> tuple[Destination, ...]:
    """The destinations of an option, each once.

    Raises:
        ValueError: one can't be understood. The message names its number and kind, never what may be secret.
    """
    destinations: dict[Destination, None] = {}
    for number, part in enumerate(filter(None, map(str.strip, re.split(r"[;\n]", text))), 1):
        destinations[_destination(part, f"place {number}")] = None
    if len(destinations) > MOST:
        raise ValueError(f"it has {len(destinations)} places; {MOST} are the most")
    return tuple(destinations)


def _destination(part: str, where: str) -> Destination:
    kind, colon, target = part.partition(":")
    kind, target = kind.strip().lower(), target.strip()
    if kind in ("http", "https"):
        host = _url(part, where).hostname or ""
        kind, target = _of_host(host), part
    kind = "mail" if kind == "mailto" else kind
    if kind not in KINDS:
        known = did_you_mean(kind, KINDS, f": known are {', '.join(KINDS)}") if colon or kind.isalpha() else ""
        named = f"{kind!r}" if re.fullmatch(r"\w{1,20}", kind) else "its beginning"
        raise ValueError(f"{where}: {named} is no kind of place{known or f': known are {chr(44).join(KINDS)}'}")
    if kind == "desktop":
        if target:
            raise ValueError(f"{where}: desktop takes nothing after it")
        return Destination(kind)
    if not target:
        raise ValueError(f"{where}: {kind}: is followed by {_WANTED.get(kind, 'an address, https://…')}")
    if kind in WEBHOOKS:
        url = _url(target, where)
        if kind == "ntfy" and not url.path.strip("/"):
            raise ValueError(f"{where}: ntfy's address ends with a topic, https://ntfy.sh/TOPIC")
    elif kind == "mail" and _ADDRESS.fullmatch(target) is None:
        raise ValueError(f"{where}: mail: is followed by {_WANTED['mail']}")
    elif kind == "command":
        try:
            words = shlex.split(target)
        except ValueError as error:
            raise ValueError(f"{where}: command: {error}") from None
        if not words or not os.path.isabs(os.path.expanduser(words[0])):
            raise ValueError(f"{where}: command: is followed by {_WANTED['command']}")
    elif kind == "apprise":
        if re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s\x00-\x1f\x7f]+", target, re.I) is None:
            raise ValueError(f"{where}: apprise: is followed by {_WANTED['apprise']}")
        if importlib.util.find_spec("apprise") is None:
            raise ValueError(f"{where}: apprise: needs the package apprise; install it with `pip install apprise`")
    return Destination(kind, target)


_WANTED = {
    "mail": "an address, me@example.org", "command": "a program's absolute path",
    "apprise": "one of Apprise's addresses, tgram://TOKEN/CHAT",
}  # fmt: skip


def _url(text: str, where: str) -> SplitResult:
    try:
        url = urlsplit(text)
        sound = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        sound = False
    if not sound or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise ValueError(f"{where}: its address isn't https://HOST/…")
    return url


class MailServer(msgspec.Struct, frozen=True):
    """Where mail is handed in. tls: from the first byte on; else as soon as the server offers it."""

    host: str = "localhost"
    port: int = 25
    tls: bool = False
    user: str = ""
    password: str = ""


def mail_server(text: str) -> MailServer:
    """``TRACKER_ALERT_SMTP``: ``smtp://[user:password@]host[:port]`` or ``smtps://…``; "": this machine's own.

    Raises:
        ValueError: it can't be understood; the message has no part of it.
    """
    if not text.strip():
        return MailServer()
    try:
        url = urlsplit(text.strip())
        port = url.port
    except ValueError:
        url, port = SplitResult("", "", "", "", ""), None
    if url.scheme not in ("smtp", "smtps") or not url.hostname or url.path.strip("/") or url.query:
        raise ValueError("it isn't smtp://user:password@host:587 or smtps://…")
    user, password = unquote(url.username or ""), unquote(url.password or "")
    tls = url.scheme == "smtps"
    return MailServer(url.hostname, port or (465 if tls else 587 if user else 25), tls, user, password)
