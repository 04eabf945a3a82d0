"""Differences between two runs: configuration, command, code, packages, hardware."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import msgspec

from trackers.analysis.provenance import Provenance
from trackers.records import name_floats

PARTS = ("config", "argv", "git", "packages", "hardware")


class Difference(msgspec.Struct):
    """part: one of :data:`PARTS`. name: setting, package, … first, second: None where that run has none."""

    part: str
    name: str
    first: Any
    second: Any


def diff(first: Provenance, second: Provenance) -> list[Difference]:
    """Everything that isn't the same, part by part; of uncommitted changes the lines that differ."""
    found = _mappings("config", first.config, second.config)
    found += _mappings("argv", _command(first), _command(second))
    found += _mappings("git", {**first.git, "patch": None}, {**second.git, "patch": None})
    patches = [str(of.git.get("patch") or "") for of in (first, second)]
    if patches[0] != patches[1]:
        one, other = (patch.splitlines() for patch in patches)
        lines = list(difflib.unified_diff(one, other, n=0, lineterm=""))[2:]
        gone, come = ([line[1:] for line in lines if line.startswith(sign)] for sign in "-+")
        found.append(Difference("git", "patch", "\n".join(gone) or None, "\n".join(come) or None))
    found += _mappings("packages", first.packages, second.packages)
    found += _mappings("hardware", first.hardware, second.hardware)
    return found


def to_json(found: list[Difference]) -> list[dict[str, Any]]:
    """JSON values."""
    return [dict(name_floats(msgspec.structs.asdict(entry))) for entry in found]


def _mappings(part: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Difference]:
    names = dict.fromkeys([*first, *second])
    pairs = ((name, first.get(name), second.get(name)) for name in names)
    return [Difference(part, name, one, other) for name, one, other in pairs if not _same(one, other)]


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


def _command(of: Provenance) -> dict[str, Any]:
    """The command line by name: options with their values, other words by their place."""
    found: dict[str, Any] = {}
    if of.program:
        found["program"] = of.program
    place, words = 0, list(of.argv)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-") or _is_number(word):
            found[f"argument {place}"] = word
            place += 1
        elif equals:
            found[name] = value
        elif words and (not words[0].startswith("-") or _is_number(words[0])):
            found[word] = words.pop(0)
        else:
            found[word] = "given"
    for name, text in (("python", of.python), ("cwd", of.cwd)):
        if text:
            found[name] = text
    return found


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
