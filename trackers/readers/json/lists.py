"""A JSON log whose long lists stay on disk: read an item at a time where each stands on a line of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import NotFound

_LIST = re.compile(rb'  "(training_iterations|eval_steps|checkpoints|samples|text|media|artifacts|alerts)": \[\r?\n')
_END = b"  ]"


class Log:
    """A parsed file. head: its members; of lists that were left on disk, an empty one stands there."""

    def __init__(self, path: Path, head: dict[str, Any], places: dict[str, tuple[int, int]]) -> None:
        self.path, self.head, self._places = path, head, places

    def items(self, name: str) -> Iterator[dict[str, Any]]:
        """The items of a list; none if there is no such list.

        Raises:
            NotFound: the file isn't any more as it was.
        """
        if name not in self._places:
            yield from (item for item in self.head.get(name) or [] if isinstance(item, dict))
            return
        begin, end = self._places[name]
        try:
            with self.path.open("rb") as lines:
                lines.seek(begin)
                for line in lines:
                    begin += len(line)
                    yield _item(line)
                    if begin >= end:
                        return
        except (OSError, ValueError) as error:
            raise NotFound(f"json: {self.path} was replaced while it was read: {error}") from None


def read_log(path: Path) -> Log:
    """Parse a file, its long lists left on disk where each item has a line of its own.

    Raises:
        NotFound: it has gone, or isn't a whole JSON object.
    """
    try:
        head, places = _split(path)
        try:
            value = json.loads(head)
            for begin, _ in places.values():
                with path.open("rb") as file:
                    file.seek(begin)
                    _item(file.readline())
        except ValueError:  # written by others, laid out in another way
            value, places = json.loads(path.read_text(encoding="utf-8")), {}
    except FileNotFoundError:
        raise NotFound(f"json: {path} has gone") from None
    except (ValueError, OSError) as error:
        raise NotFound(f"json: {path} isn't whole JSON: {error}") from None
    if not isinstance(value, dict):
        raise NotFound(f"json: {path} holds no JSON object")
    return Log(path, value, places)


def _item(line: bytes) -> dict[str, Any]:
    text = line.strip().removesuffix(b",")
    try:
        item = msgspec.json.decode(text)
    except msgspec.DecodeError:  # NaN, which Python writes
        item = json.loads(text)
    if not isinstance(item, dict):
        raise ValueError("no object on this line")
    return item


def _split(path: Path) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """The file without the items of its lists, and where those lie."""
    head: list[bytes] = []
    places: dict[str, tuple[int, int]] = {}
    name, begin, at = "", 0, 0
    with path.open("rb") as lines:
        for line in lines:
            if name:
                if line.startswith(_END):
                    places[name] = (begin, at)
                    head.append(line)
                    name = ""
            else:
                head.append(line)
                found = _LIST.fullmatch(line)
                if found is not None:
                    name, begin = found[1].decode(), at + len(line)
            at += len(line)
    return b"".join(head), places
