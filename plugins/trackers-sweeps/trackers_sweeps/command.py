"""The words of the command that trains a point: values in the place of their names, and the macros of W&B's sweeps.

W&B's macros: https://docs.wandb.ai/models/sweeps/sweep-config-keys#command
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from trackers.errors import UsageError, did_you_mean, examples
from trackers_sweeps.space import Point

_NAME = r"[^\W\d][\w./-]*"
_VARIABLE = re.compile(r"\$\{envvar:([A-Za-z0-9_]*)\}")
_MACRO = re.compile(r"\$\{\w+\}")
ALL_VALUES = (
    "${args}", "${args_no_equals}", "${args_no_hyphens}", "${args_no_boolean_flags}", "${args_append_hydra}",
    "${args_override_hydra}", "${args_json}", "${args_json_file}",
)  # fmt: skip
"""Macros that stand for all values."""
MACROS = ("${env}", "${interpreter}", *ALL_VALUES)


def arguments(
    command: Sequence[str],
    point: Point,
    nested: Mapping[str, Sequence[str]] | None = None,
    json_file: Path = Path("args.json"),
) -> list[str]:
    """The words that train a point.

    ``{NAME}`` stands for a value, ``{{NAME}}`` for ``{NAME}`` itself; ``${NAME}`` is the shell's. Where no value is
    named, and none of W&B's ``${args…}``, the values follow as ``--NAME=VALUE``.

    Args:
        nested: see :func:`tree`. json_file: what ``${args_json_file}`` stands for.

    Raises:
        UsageError: ``${envvar:NAME}`` without such a variable.
    """
    pairs = [f"{name}={text_of(value)}" for name, value in point.items()]
    flags = [f"--{pair}" for pair in pairs]
    switches = [f"--{name}" if value is True else f"--{name}={text_of(value)}"
                for name, value in point.items() if value is not False]  # fmt: skip
    macros = {
        "${env}": ["/usr/bin/env"], "${interpreter}": [sys.executable], "${args}": flags, "${args_no_hyphens}": pairs,
        "${args_no_equals}": [word for name, value in point.items() for word in (f"--{name}", text_of(value))],
        "${args_no_boolean_flags}": switches, "${args_append_hydra}": [f"+{pair}" for pair in pairs],
        "${args_override_hydra}": [f"++{pair}" for pair in pairs],
        "${args_json}": [json.dumps(tree(point, nested or {}))], "${args_json_file}": [str(json_file)],
    }  # fmt: skip
    braces = _braces(point)
    named = any(match["known"] is not None for word in command for match in braces.finditer(word))

    def value(match: re.Match[str]) -> str:
        if match["itself"] is not None:
            return "{" + match["itself"] + "}"
        return match[0] if match["known"] is None else text_of(point[match["known"]])

    words: list[str] = []
    for word in command:
        # A value is a text, also one that looks like a variable: it may be of a file.
        parts = [
            _variable(part) if at % 2 else braces.sub(value, part) for at, part in enumerate(_VARIABLE.split(word))
        ]
        words += macros[word] if word in macros else ["".join(parts)]
    if not named and not any(word in ALL_VALUES for word in command):
        words += flags
    return words


def check(command: Sequence[str], names: Collection[str], *, macros: bool = False) -> None:
    """Refuse what looks like a parameter in braces and is none, before anything is trained.

    Args:
        names: of the parameters. macros: the command is a W&B file's: its macros are checked, its braces are its own.

    Raises:
        UsageError: the nearest known name, and how braces are written that the program itself needs.
    """
    known = list(dict.fromkeys(names))
    for word in command:
        if macros:
            if _MACRO.fullmatch(word) and word not in MACROS:
                raise UsageError(f"unknown macro {word}{did_you_mean(word, MACROS)} Known: {', '.join(MACROS)}")
            continue
        for match in _braces(known).finditer(word):
            if match["other"] is not None:
                raise UsageError(
                    f"{{{match['other']}}} in the command is no parameter{did_you_mean(match['other'], known)} Known: "
                    f"{examples(known)}; braces that the program itself needs: {{{{{match['other']}}}}}"
                )


def _braces(names: Collection[str]) -> re.Pattern[str]:
    """``{{itself}}``, ``{known}``, or another name in braces; not ``${…}``. Longest names first."""
    known = "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)"
    return re.compile(
        rf"(?<!\$)\{{\{{(?P<itself>{known}|{_NAME})\}}\}}|(?<!\$)\{{(?:(?P<known>{known})|(?P<other>{_NAME}))\}}"
    )


def _variable(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise UsageError(f"${{envvar:{name}}} in the command: there is no environment variable {name!r}") from None


def tree(point: Point, nested: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """A point's values as a configuration: nested ones in mappings, as W&B gives them.

    Args:
        nested: the path of each parameter that is nested, by its name in the point.
    """
    configuration: dict[str, Any] = {}
    for name, value in point.items():
        *above, last = nested.get(name, (name,))
        inner = configuration
        for part in above:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return configuration


def text_of(value: Any) -> str:
    """A value as it follows a flag."""
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, (list, dict)) else str(value)
