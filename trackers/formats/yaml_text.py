"""YAML that every reader of it takes the same way, written without a YAML library; and all YAML that is read."""

from __future__ import annotations

import json
import re
from typing import Any

from trackers.records import DEPTH
from trackers.support.interruption import pass_on

EXPANDED = 100_000
"""Maximum number of values that aliases of one text stand for: nine lines can stand for a billion."""


def load_yaml(text: str) -> Any:
    """A YAML text's value; nothing in it is carried out.

    Raises:
        ImportError: PyYAML isn't installed.
        ValueError: it isn't YAML, is nested too deeply, or its aliases stand for too much. The message is one line.
    """
    import yaml  # type: ignore[import-untyped,unused-ignore]

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as quick
        _check_size(yaml, text, loader)
        reading = loader(text)
        try:
            return reading.get_single_data()
        finally:
            reading.dispose()
    except Exception as error:  # YAMLError, but also what its constructors raise: for 2020-13-45, 5,000 digits, !!int x
        pass_on(error)
        raise ValueError(" ".join(str(error).split())[:300]) from None


def _check_size(yaml: Any, text: str, loader: Any) -> None:
    sizes: dict[str, int] = {}
    opened: list[list[Any]] = [["", 0]]
    expanded = 0
    for event in yaml.parse(text, Loader=loader):
        match event:
            case yaml.AliasEvent():
                size = sizes.get(event.anchor, 1)
                expanded += size
                opened[-1][1] += size
                if any(anchor == event.anchor for anchor, _ in opened):
                    raise ValueError("an alias stands for what it is in")
            case yaml.CollectionStartEvent():
                opened.append([event.anchor, 1])
            case yaml.CollectionEndEvent():
                anchor, size = opened.pop()
                opened[-1][1] += size
                if anchor:
                    sizes[anchor] = size
            case yaml.ScalarEvent():
                opened[-1][1] += 1
        if expanded > EXPANDED:
            raise ValueError(f"its aliases stand for more than {EXPANDED:,} values")
        if len(opened) > DEPTH:  # PyYAML takes the square of it
            raise ValueError(f"it is nested more than {DEPTH} deep")


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
