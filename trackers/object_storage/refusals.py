"""Errors of a store's client as one line: what happened, what is known, what to do.

The client's text holds the server's answer as it came. S3's names the session token that it refuses, and a proxy's is a
page of HTML: of an answer, only its code and its message are shown, and these without what the environment has as keys.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from trackers.errors import DeliveryError, Refused, Unavailable
from trackers.support.redaction import MASK

LIMITED = ("SlowDown", "429 Too Many Requests", "TooManyRequests", "ServerBusy")
"""Signs in an error that the store asks for fewer requests: S3's, HTTP's, Azure's."""
KEYS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
"""The environment variables that hold a store's keys, by scheme. abfs has Azure's."""
SECRETS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY", "AZURE_CLIENT_SECRET", "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_STORAGE_TOKEN", "GOOGLE_SERVICE_ACCOUNT_KEY",
)  # fmt: skip
AGAIN = "runs that were begun before then go on by trackers sync RUN --to storage"
"""A process keeps the environment that it began with, its helpers too."""
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
UNKNOWN = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidSecurity", "AuthenticationFailed"}
)
REGION = frozenset(
    {"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraint"}
)
STRANGE = ("Header missing from response", "Got invalid ")
"""Signs in an error of an answer that looks like success and isn't a store's."""
_CODE = re.compile(r"<Code>([\w.]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})")
_REGION = re.compile(r"<Region>([\w-]{1,60})</Region>|expecting '([\w-]{1,60})'")
_STATUS = re.compile(r"status code: (\d{3})(?: ([A-Z][A-Za-z ]{1,40}))?")
_TITLE = re.compile(r"<title>([^<]{1,100})", re.IGNORECASE)
_PAGE = re.compile(r"<!doctype html|<html", re.IGNORECASE)
_OF_MACHINE = re.compile(r"/latest/(api/token|meta-data)|169\.254\.|metadata\.google|/computeMetadata/")
_LAYERS = re.compile(
    r"Generic \w{1,20} error: |Error performing list request: |"
    r"Error performing \w{1,20} \S{1,2000} in [\w.µ]{1,20}(?:, after \d+ retries?, [^-]{0,100})? - "
)


class _Answer(NamedTuple):
    """The server's answer, parsed from the client's text. status: 0 where there was none. page: it is one of HTML."""

    status: int
    reason: str
    code: str
    message: str
    page: str | None


def translated(where: str, error: BaseException, *, denied: bool) -> DeliveryError:
    """A client's error as ours. Missing objects and conditions that aren't met are none.

    Args:
        where: the store's address. denied: the client's class says that the store has refused.
    """
    text = " ".join(str(error).split())
    client_text, _, source = text.partition("Debug source:")
    answer = _parse(client_text)
    if "NoSuchBucket" in text or answer.code == "ContainerNotFound":
        return Refused(f"{where}: there is no such bucket")
    if answer.code == "RequestTimeTooSkewed":
        return Refused(f"{where}: refused, for this machine's clock is wrong: set it by NTP")
    keys = KEYS.get("az" if where.startswith("abfs") else where.partition(":")[0], "the store's keys")
    details = _in_parentheses(answer)
    if (by_code := _refused_by_code(where, answer, client_text, keys)) is not None:
        return by_code
    is_strange = any(sign in client_text for sign in STRANGE) or 300 <= answer.status < 400
    if answer.page is not None or answer.status == 407 or is_strange:
        page = f" {answer.page!r}" if answer.page else ""
        status = f", status {answer.status}" if answer.status else ""
        return Unavailable(
            f"{where}: a page{page} came instead of the store's answer{status}: a proxy or a login page is in between; "
            "see HTTPS_PROXY and NO_PROXY"
        )
    if _OF_MACHINE.search(client_text):
        return Unavailable(
            f"{where}: the environment has no keys, and this machine has no role, or doesn't say which "
            f"({_describe(client_text, source)}): set {keys}; {AGAIN}"
        )
    if denied or answer.status == 403:
        what = _request(client_text)
        return Refused(f"{where}: not allowed{what}{details}: see the rights of {keys}, or of the machine's role")
    if "InvalidCertificate" in source or "invalid peer certificate" in source:
        return Unavailable(
            f"{where}: the server's certificate isn't trusted (TLS): name its authority's file in SSL_CERT_FILE, or "
            "see whether a proxy is in between"
        )
    limited = any(sign in client_text for sign in LIMITED)
    return Unavailable(f"{where} can't be reached, or fails: {_describe(client_text, source)}", limited=limited)


def _refused_by_code(where: str, answer: _Answer, client_text: str, keys: str) -> Refused | None:
    """What the store's own code says of keys and region; None where it says nothing of them."""
    details = _in_parentheses(answer)
    if answer.code in EXPIRED:
        return Refused(f"{where}: the keys have expired{details}: set {keys} anew; {AGAIN}")
    if answer.code in UNKNOWN or answer.status == 401:
        return Refused(f"{where}: the keys aren't known there{details}: see {keys}; {AGAIN}")
    if answer.code in REGION or "incorrectly configured region" in client_text:
        match = _REGION.search(client_text)
        right = next(filter(None, match.groups()), "") if match else ""
        is_in = f"the bucket is in region {right}" if right else "the bucket is in another region"
        return Refused(f"{where}: {is_in}{details}: set AWS_REGION{f'={right}' if right else ''}; {AGAIN}")
    return None


def describe(error: BaseException) -> str:
    """A client's error as one line, without keys."""
    client_text, _, source = " ".join(str(error).split()).partition("Debug source:")
    missing = re.search(r"Object at location (\S{1,1000}) not found", client_text)
    return f"{missing[1]} isn't there" if missing else _describe(client_text, source)


def masked(text: str) -> str:
    """A text without the keys that the environment has, and without what signs an address."""
    for name in SECRETS:
        value = os.environ.get(name, "")
        if len(value) >= 4:  # a shorter one stands in words
            text = text.replace(value, MASK)
    return re.sub(
        r"(?i)\b(x-amz-(?:signature|credential|security-token)|sig|signature)=[^&\s\"'<>]+", rf"\1={MASK}", text
    )


def _parse(client_text: str) -> _Answer:
    status, code, message = _STATUS.search(client_text), _CODE.search(client_text), _MESSAGE.search(client_text)
    title = _TITLE.search(client_text)
    page = (title[1].strip() if title else "") if _PAGE.search(client_text) else None
    return _Answer(
        int(status[1]) if status else 0,
        (status[2] or "").strip() if status else "",
        code[1] if code else "",
        masked(message[1].strip()) if message else "",
        page,
    )


def _in_parentheses(answer: _Answer) -> str:
    """The server's error in parentheses; "" where there is none: an answer to HEAD has no text."""
    if answer.code:
        return f" ({answer.code}: {answer.message})" if answer.message else f" ({answer.code})"
    return f" ({answer.status} {answer.reason})".replace(" )", ")") if answer.status else ""


def _request(client_text: str) -> str:
    """Which request failed, as text; "" where it isn't known. Its address is a path in the store, without a query."""
    match = re.search(r"Error performing (\w{1,20}) \w{2,10}://[^/\s]{1,300}(/[^?\s]{0,1000})", client_text)
    return f": {match[1]} {masked(match[2])}" if match else ""


def _describe(client_text: str, source: str) -> str:
    """What went wrong, without the layers that it came through: the client's message names each of them."""
    answer = _parse(client_text)
    if answer.status:
        return f"{answer.status} {answer.reason}".strip() + (_in_parentheses(answer) if answer.code else "")
    text = _LAYERS.sub("", client_text).strip()
    if text.endswith("error sending request"):
        text += _cause(source)
    return masked(re.sub(r"<[^>]{0,200}>?", " ", text))[:300]


def _cause(source: str) -> str:
    """Why a request couldn't be sent; "" where that isn't known."""
    for sign, text in (
        ("ConnectionRefused", "connection refused"), ("dns error", "its name isn't known"),
        ("TimedOut", "no answer in time"), ("ConnectionReset", "the connection was cut"),
        ("IncompleteMessage", "the connection was cut"), ("NetworkUnreachable", "no network"),
    ):  # fmt: skip
        if sign in source:
            return f": {text}"
    return ""
