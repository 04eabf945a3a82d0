"""Secrets stay out of everything that is written: masked by the name of their key, or by their known form.

Only text is masked, and a key must hold one of the words whole: ``max_tokens`` and ``tokenizer`` stay.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "***"
CARRIER = "TRACKER_SECRET_"
"""Prefix of the environment variables by which options with a login in them reach the relay, never a file."""

_kept: dict[str, str] = {}

_WORDS = {"token", "password", "passwords", "passwd", "passphrase", "secret", "secrets"}
_WORDS |= {"credential", "credentials", "apikey", "apikeys"}
# A number of plain "tokens" or "keys" says what a model works on; "api_keys" and "auth_tokens" are secrets.
_PAIRS = set(itertools.product(("api", "access", "secret", "private", "auth"), ("key", "keys", "tokens")))
# What models call tokens, "<|endoftext|>" under "eos_token" say, is no secret.
_SPECIAL = re.compile(r"<[^<>]{1,40}>|\[[A-Z]{1,12}\]")
_SPLIT = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# Forms that vendors document for their keys.
_FORMS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{30,}"  # Hugging Face
    r"|gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,}"  # GitHub
    r"|sk-[A-Za-z0-9_\-]{20,}"  # OpenAI, Anthropic
    r"|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}"  # AWS access key id
    r"|xox[abprs]-[A-Za-z0-9\-]{10,}"  # Slack
    r"|AIza[0-9A-Za-z_\-]{35}"  # Google
    r"|wandb_v1_[A-Za-z0-9_]{20,}"  # W&B
    r"|eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}"  # JSON web token
    r")"
)
# name = "value", "name": "value", in whatever language.
_ASSIGNED = re.compile(r"""((["']?)([A-Za-z_][\w.\-]*)\2\s*(?::\s*[\w\[\]. |]+)?[:=]\s*[a-z]{0,2})(["'])([^"'\n]+)\4""")
_HEX40 = re.compile(r"[0-9a-f]{40}")
_URL_LOGIN = re.compile(r"(://[^/\s:@]+):[^/\s@]+@")
_URL_QUERY = re.compile(r"([?&](?:[a-z_]*token|api_?key|password|secret)=)[^&\s]+", re.IGNORECASE)


def is_secret_key(key: str) -> bool:
    """Does a value under this key have to be masked?"""
    words = _words(key)
    return any(word in _WORDS for word in words) or any(pair in _PAIRS for pair in itertools.pairwise(words))


def _is_of_secrets(key: str) -> bool:
    """Does the name end with a secret's: "credentials", not "token_mixer"?"""
    words = _words(key)
    return words[-1:] != [] and (words[-1] in _WORDS or tuple(words[-2:]) in _PAIRS)


def _words(key: str) -> list[str]:
    return [word.lower() for word in _SPLIT.split(key) if word]


def mask_text(text: str) -> str:
    """Text with known forms of keys, and logins inside addresses, masked."""
    if len(text) < 12:
        return text
    text = _FORMS.sub(MASK, text)
    if "://" in text:
        text = _URL_QUERY.sub(r"\1" + MASK, _URL_LOGIN.sub(r"\1:" + MASK + "@", text))
    return text


def mask_source(text: str) -> str:
    """Source text, such as a patch, with known forms of keys masked, and literals that a secret's name is given."""

    def hidden(match: re.Match[str]) -> str:
        return f"{match[1]}{match[4]}{MASK}{match[4]}" if is_secret_key(match[3]) else match[0]

    return mask_text(_ASSIGNED.sub(hidden, text))


def mask(value: Any, key: str = "", inside: bool = False) -> Any:
    """A nested value with secrets masked; numbers and other types are untouched.

    Args:
        inside: a key around this one is of secrets.
    """
    if isinstance(value, dict):
        inside = inside or _is_of_secrets(key)
        return {name: mask(item, str(name), inside) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask(item, key, inside) for item in value]
    if isinstance(value, str):
        hidden = value and (inside or is_secret_key(key)) and not _SPECIAL.fullmatch(value)
        return MASK if hidden else mask_text(value)
    return value


def mask_argv(argv: Sequence[str]) -> list[str]:
    """A command line with secrets masked: ``--api-key X``, ``--api-key=X``, ``TOKEN=X``, and known forms."""
    masked: list[str] = []
    hide_next = False
    for word in argv:
        name, equals, value = word.partition("=")
        if hide_next and not word.startswith("--"):
            masked.append(MASK)
            hide_next = False
            continue
        hide_next = False
        secret = is_secret_key(name.lstrip("-"))
        if equals and secret and value:
            masked.append(f"{name}={MASK}")
        elif secret and word.startswith("-") and not equals:
            masked.append(word)
            hide_next = True
        elif _HEX40.fullmatch(value or word):  # the older form of a W&B key
            masked.append(f"{name}={MASK}" if equals else MASK)
        else:
            masked.append(mask_text(word))
    return masked


def hide(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they may be written, logins masked. What was masked is kept for this process's helpers."""
    hidden = {}
    for symbol, value in options.items():
        hidden[symbol] = mask(value, symbol)
        if hidden[symbol] != value and isinstance(value, str):
            _kept[symbol] = value
    return hidden


def reveal(options: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of :func:`hide`, where this process knows: from ``init``, its relay, or an option's variable."""
    revealed = {}
    for symbol, value in options.items():
        if isinstance(value, str) and MASK in value:
            value = _kept.get(symbol) or os.environ.get(CARRIER + symbol) or os.environ.get(symbol) or value
        revealed[symbol] = value
    return revealed


def carried() -> dict[str, str]:
    """Environment variables that take what is hidden to a helper process."""
    return {CARRIER + symbol: value for symbol, value in _kept.items()}
