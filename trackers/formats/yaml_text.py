"""YAML that every reader of it takes the same way, without a YAML library."""

from __future__ import annotations

import json
import re
from typing import Any


def yaml_text(value: Any) -> str:
    """JSON's values as YAML, which is JSON, too, but for NaN, infinities and keys of more than a thousand characters.

    PyYAML takes "1e-05" for text and refuses some characters, so that numbers have a point and those characters are
    escaped. What else a value may be is its ``str``.
    """
    return _yaml(value, "\n") + "\n"


def _yaml(value: Any, line: str) -> str:
    if isinstance(value, dict) and value:
        inner = line + "  "
        parts = (f"{_yaml_key(str(key))}: {_yaml(item, inner)}" for key, item in value.items())
        return "{" + inner + f",{inner}".join(parts) + line + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_yaml(item, line + "  ") for item in value) + "]"
    if isinstance(value, float):
        text = repr(value)
        if text in _NAMED:
            return _NAMED[text]
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    if isinstance(value, (str, int, bool, dict)) or value is None:
        return _UNPRINTABLE.sub(_escape, json.dumps(value, ensure_ascii=False))
    return _UNPRINTABLE.sub(_escape, json.dumps(str(value), ensure_ascii=False))


_NAMED = {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}
_LONG_KEY = 1000
"""Longer keys are marked with "?": without it YAML allows 1,024 characters."""
_UNPRINTABLE = re.compile("[\x7f-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")


def _yaml_key(key: str) -> str:
    text = _UNPRINTABLE.sub(_escape, json.dumps(key, ensure_ascii=False))
    return f"? {text} " if len(text) > _LONG_KEY else text


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
