"""Sends one message to one destination, bounded in time, and says what became of it.

Only a whole answer that says so counts as "sent". Nothing here waits longer than :data:`DEADLINE_S`.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import http.client
import json
import os
import shlex
import shutil
import signal
import smtplib
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from trackers._version import __version__
from trackers.alerts import payloads
from trackers.alerts.destinations import WEBHOOKS, Destination, MailServer
from trackers.alerts.payloads import AlertMessage
from trackers.support.redaction import CARRIER

TIMEOUT_S = 15.0
"""Maximum silence of a server, in seconds."""
DEADLINE_S = 40.0
"""Maximum time for one try, in seconds; after it, whether the message arrived isn't known."""
COMMAND_S = 30.0
ANSWER_BYTES = 4096  # an answer may have no end
LONGEST_WAIT_S = 3600.0
"""Maximum pause that a server may ask for, in seconds."""
SENT, REFUSED, AGAIN, UNKNOWN = "sent", "refused", "again", "unknown"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SECRETS = ("TRACKER_ALERT_TO", "TRACKER_ALERT_SMTP")


class SendResult(msgspec.Struct, frozen=True):
    """state: SENT; REFUSED, for good; AGAIN: it didn't arrive, and may later; UNKNOWN: it may have arrived.

    reason: in words, without the address. wait_s: the pause that the server asked for.
    """

    state: str
    reason: str = ""
    wait_s: float = 0.0


def send(
    destination: Destination, message: AlertMessage, server: MailServer, deadline_s: float = DEADLINE_S
) -> SendResult:
    """Try once. Never raises, and returns at the deadline whatever the destination does."""
    answers: list[SendResult] = []
    # A thread, since neither a look-up of a name nor a server that sends one byte now and then can be interrupted.
    thread = threading.Thread(target=lambda: answers.append(_tried(destination, message, server)), daemon=True)
    thread.start()
    thread.join(deadline_s)
    return answers[0] if answers else SendResult(UNKNOWN, f"no whole answer within {deadline_s:.0f} s")


def _tried(destination: Destination, message: AlertMessage, server: MailServer) -> SendResult:
    how: Callable[[], SendResult]
    if destination.kind in WEBHOOKS:
        how = lambda: _post(payloads.request(destination, message))  # noqa: E731
    elif destination.kind == "mail":
        how = lambda: _mail(destination.target, message, server)  # noqa: E731
    elif destination.kind == "command":
        how = lambda: _command(destination.target, message)  # noqa: E731
    elif destination.kind == "apprise":
        how = lambda: _apprise(destination.target, message)  # noqa: E731
    else:
        how = lambda: _desktop(message)  # noqa: E731
    try:
        return how()
    except Exception as error:  # what is wrong with one destination mustn't end the others: said without the address
        return SendResult(AGAIN, type(error).__name__)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An alert goes to the address that was given, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        """None: the answer is an error."""
        return


def _post(asked: payloads.HttpRequest) -> SendResult:
    url, login = _without_login(asked.url)
    headers = {"User-Agent": f"trackers/{__version__}", **asked.headers}
    if login:
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    opener = urllib.request.build_opener(_NoRedirect)
    request = urllib.request.Request(url, asked.body, headers, method="POST")  # noqa: S310 (Destination has http and https)
    try:
        with opener.open(request, timeout=TIMEOUT_S) as response:
            response.read(ANSWER_BYTES)
        return SendResult(SENT)
    except urllib.error.HTTPError as error:
        with error:
            return _refusal(error)
    except urllib.error.URLError as error:  # nothing was sent, or the connection broke while it was
        broke = isinstance(error.reason, (TimeoutError, ConnectionResetError, BrokenPipeError))
        return SendResult(UNKNOWN if broke else AGAIN, _reason(error.reason))
    except (OSError, http.client.HTTPException) as error:
        return SendResult(UNKNOWN, _reason(error))


def _refusal(error: urllib.error.HTTPError) -> SendResult:
    code, status = error.code, f"HTTP {error.code}"
    if 300 <= code < 400:
        return SendResult(REFUSED, f"{status}: it answers with another address, which isn't followed")
    if code in (408, 425, 429) or code >= 500:
        return SendResult(AGAIN, status, _pause(error.headers.get("Retry-After", "")))
    return SendResult(REFUSED, status)


def _pause(text: str) -> float:
    """``Retry-After`` in seconds (RFC 9110, 10.2.3): a number, or a date; 0 for anything else."""
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return min(LONGEST_WAIT_S, max(0.0, float(text)))
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        import time

        at = email.utils.parsedate_to_datetime(text).timestamp()
        return min(LONGEST_WAIT_S, max(0.0, at - time.time()))
    return 0.0


def _without_login(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url, ""
    login, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), unquote(login if ":" in login else login + ":")


def _mail(to: str, message: AlertMessage, server: MailServer) -> SendResult:
    is_local = server.host in _LOOPBACK
    sender = server.user if "@" in server.user else f"trackers@{socket.gethostname() or 'localhost'}"
    content = payloads.mail(message, sender, to)
    context = ssl.create_default_context()
    handed = False
    try:
        with (
            smtplib.SMTP_SSL(server.host, server.port, timeout=TIMEOUT_S, context=context)
            if server.tls
            else smtplib.SMTP(server.host, server.port, timeout=TIMEOUT_S)
        ) as smtp:
            smtp.ehlo()
            if not server.tls and not is_local and smtp.has_extn("starttls"):
                smtp.starttls(context=context)
                smtp.ehlo()
            elif server.user and not server.tls and not is_local:
                return SendResult(REFUSED, "the mail server offers no encryption: no password is sent to it")
            if server.user:
                smtp.login(server.user, server.password)
            handed = True
            smtp.send_message(content, sender, [to])
            return SendResult(SENT)
    except smtplib.SMTPRecipientsRefused as error:
        code = next(iter(error.recipients.values()), (500, b""))[0]
        return SendResult(AGAIN if 400 <= code < 500 else REFUSED, f"the mail server refused the address: {code}")
    except smtplib.SMTPAuthenticationError as error:
        return SendResult(REFUSED, f"the mail server refused the login: {error.smtp_code}")
    except smtplib.SMTPResponseException as error:
        return SendResult(AGAIN if error.smtp_code < 500 else REFUSED, f"the mail server answered {error.smtp_code}")
    except (OSError, smtplib.SMTPException) as error:
        return SendResult(UNKNOWN if handed else AGAIN, _reason(error))


def _command(target: str, message: AlertMessage) -> SendResult:
    words = shlex.split(target)
    words[0] = os.path.expanduser(words[0])
    body = json.dumps(payloads.generic(message)).encode() + b"\n"
    return _run(words, body, f"command {os.path.basename(words[0])}")


def _desktop(message: AlertMessage) -> SendResult:
    program = shutil.which("notify-send")
    if program is None:
        return SendResult(REFUSED, "there is no notify-send")
    urgency = {"ERROR": "critical", "WARN": "normal"}.get(message.level, "low")
    return _run([program, "--app-name=trackers", f"--urgency={urgency}", "--", *payloads.note(message)], b"", "it")


def _apprise(target: str, message: AlertMessage) -> SendResult:
    """By the package Apprise, which says no more than whether the service took it."""
    import apprise

    asset = apprise.AppriseAsset()
    if not hasattr(asset, "http_redirects"):
        return SendResult(REFUSED, "this Apprise follows other addresses: pip install 'apprise>=2'")
    asset.http_redirects = False  # what a header or a path holds would go to the other address, too

    kinds = {"ERROR": apprise.NotifyType.FAILURE, "WARN": apprise.NotifyType.WARNING}
    service = apprise.Apprise.instantiate(target, asset=asset)
    if service is None:
        return SendResult(REFUSED, "Apprise knows no such service, or lacks a part of its address")
    title, text = message.headline(), message.details()[: payloads.TEXT_MOST]
    kind = kinds.get(message.level, apprise.NotifyType.INFO)
    if service.notify(title=title, body=text, notify_type=kind, body_format=apprise.NotifyFormat.TEXT):
        return SendResult(SENT)
    return SendResult(AGAIN, "Apprise couldn't hand it over")


def _run(words: list[str], body: bytes, name: str) -> SendResult:
    hidden = {variable for variable in os.environ if variable.startswith(CARRIER) or variable in _SECRETS}
    env = {variable: value for variable, value in os.environ.items() if variable not in hidden}
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return SendResult(REFUSED, f"{name} can't be run: {error.strerror or type(error).__name__}")
    try:
        process.communicate(body, timeout=COMMAND_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return SendResult(UNKNOWN, f"{name} took longer than {COMMAND_S:.0f} s")
    code = process.returncode
    if code == 0:
        return SendResult(SENT)
    return SendResult(AGAIN, f"{name} ended by signal {-code}" if code < 0 else f"{name} ended with exit code {code}")


def _reason(error: BaseException | str) -> str:
    if isinstance(error, (TimeoutError, socket.timeout)):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        return f"no trusted connection: {getattr(error, 'verify_message', '') or error.reason or 'TLS'}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__ if isinstance(error, BaseException) else "no connection"
