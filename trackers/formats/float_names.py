"""Texts that are names of floats, ``NaN`` beside NaN, in lists and in tables' cells.

JSON has no NaN, so the journal has its name. Where such a name is a text that nothing beside it tells from the float,
the first letter is escaped in a list's JSON text (``"\\u004eaN"``), which ends with a blank where all such names are
floats though texts are beside them, and a table's content has ``texts``: the numbers of
those names, of all such names in its rows, in order, that are texts. All others are floats then. Of content without a
mark the values beside a name decide (:func:`trackers.records.are_words`).
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE
from trackers.records import FLOAT_NAMES, Summary, Text, name_floats, unname_floats, unnamed_float
from trackers.support.interruption import suppress

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')
_ESCAPED = {f'"{name}"': f'"\\u{ord(name[0]):04x}{name[1:]}"' for name in FLOAT_NAMES}


class Word(str):
    """A text that is a float's name and stands for no float."""


def list_text(values: list[Any]) -> str:
    """A list as the journal's JSON text."""
    text = json.dumps(name_floats(values))
    if not any(name in text for name in _ESCAPED) or repr(unname_floats(json.loads(text))) == repr(values):
        return text
    text = _TOKEN.sub(
        lambda token: f'"{token[0]}"' if token[0] in FLOAT_NAMES else _ESCAPED.get(token[0], token[0]),
        json.dumps(values),
    )
    return text if _is_marked(text) else f"{text} "


def _is_marked(text: str) -> bool:
    return isinstance(text, str) and (text.endswith("] ") or any(escaped in text for escaped in _ESCAPED.values()))


def _values(text: str) -> Any:
    if not _is_marked(text):
        return unname_floats(msgspec.json.decode(text))
    return json.loads(_TOKEN.sub(lambda token: token[0][1:-1] if token[0] in _ESCAPED else token[0], text))


def listed(record: Text | Summary) -> dict[str, Any]:
    """A record's values, with the lists in place of their JSON texts.

    A text that is no list's any more, because a secret in it was masked, stays a text.
    """
    values: dict[str, Any] = dict(record.values)
    for name in record.lists:
        with suppress(*UNDECODABLE, TypeError):
            value = _values(values.get(name, ""))
            if isinstance(value, list):
                values[name] = value
    return values


def name(value: Any) -> Any:
    """As :func:`trackers.records.name_floats`, but :func:`unname` tells texts from floats in a list."""
    if isinstance(value, dict):
        return {key: name(item) for key, item in value.items()}
    text = list_text(value) if isinstance(value, list) else ""
    return {"_list": text} if _is_marked(text) else name_floats(value)


def unname(value: Any) -> Any:
    """The value that :func:`name` was given."""
    if isinstance(value, dict):
        return _values(value["_list"]) if "_list" in value else {key: unname(item) for key, item in value.items()}
    return unname_floats(value)


def content(columns: Any, rows: list[Any]) -> dict[str, Any]:
    """A table's content, with which of the floats without a number and their names in its rows are texts, if any."""
    texts = [number for number, (place, key) in enumerate(_places(rows)) if isinstance(place[key], str)]
    return {"columns": columns, "rows": rows, **({"texts": texts} if texts else {})}


def rows_of(content: dict[str, Any]) -> list[list[Any]]:
    """A table's rows; with floats, and a :class:`Word` for a text, if the content says which are texts."""
    rows: list[list[Any]] = [list(row) for row in content["rows"]]
    if isinstance(content.get("texts"), list):
        rows, known = copy.deepcopy(rows), frozenset(content["texts"])
        for number, (place, key) in enumerate(list(_places(rows))):
            place[key] = Word(place[key]) if number in known else unnamed_float(place[key])
    return rows


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where such floats and names stand in lists and mappings, media apart: container and key."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, list) or (isinstance(item, dict) and "_type" not in item):
            yield from _places(item)
        elif item in FLOAT_NAMES if isinstance(item, str) else isinstance(item, float) and not math.isfinite(item):
            yield value, key
