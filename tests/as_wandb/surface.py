"""Calls of W&B's public API (surface.txt), made with W&B's own client and with this package under its name.

``python -m tests.as_wandb.surface`` prints the table of calls that differ, which docs/wandb-scripts.md shows.
``python surface.py real`` and ``… ours`` print, one JSON line a call, what came of each.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import datetime
import enum
import functools
import io
import itertools
import json
import math
import os
import pathlib
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

CALLS = pathlib.Path(__file__).with_name("surface.txt")
LONGEST = 60


class Outcome(NamedTuple):
    """What came of a call: the value in words, or the names of the exception's classes, the first one its own."""

    value: str = ""
    raised: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"raises {self.raised[0]}" if self.raised else self.value


REASONS = {
    "never": "Once a run has begun, no call raises: what can't be recorded is named in one line",
    "more": "Taken here; W&B's client refuses it, or fails",
    "config": "A value may change",
    "summary": "Names of nested values are joined with `/`",
    "later": "Taken by `init`; of trackers that are chosen, each says what it refuses before the first step",
    "settings": "Settings of any release are taken, also as a mapping; `init` names what has no effect",
    "pixels": "Images of floats and of 16 bits are scaled; W&B's client cuts values to whole numbers modulo 256",
    "offline": "The directory of runs has what is logged at once; W&B's client asks its service, also offline",
    "files": "The size of media in an artifact is known once it is logged",
    "digest": "A digest of its own",
    "identity": "Media are compared by identity, and rows are numbered by plain integers",
    "status": "The state of each tracker",
    "types": "A type of W&B's that isn't provided: it can be imported, and says what to call in its place",
    "charts": "A chart that can't be made is one line on stderr",
    "error": "Another exception, whose message says what to give",
    "tags": "Blanks around a tag are left out, each is kept once, and one text is tags with commas between them",
    "older": "Names, arguments and variables of W&B's earlier releases stay",
    "service": "W&B's login, requirements and service",
    "disabled": "A disabled run gives what scripts go on with",
}
"""Why a call differs, by the word that stands behind it in surface.txt."""


def calls() -> Iterator[tuple[str, str, str]]:
    """Section, call and the word of why it differs, "" for none."""
    section = ""
    for line in CALLS.read_text("utf-8").splitlines():
        if line.startswith("== "):
            section = line[3:]
        elif line and not line.startswith("#"):
            call, _, why = line.partition("  ## ")
            yield section, call, why


def shown(value: Any) -> str:
    """A value in words that are the same wherever it is the same to a script; of an object its class alone."""
    kind = type(value).__name__
    if isinstance(value, type):
        return f"class {value.__name__}"
    if isinstance(value, enum.Enum):
        return f"{kind}.{value.name}"
    if type(value).__module__ == "numpy" and kind != "ndarray":
        value = value.item()
    for plain in (bool, int, float, str, bytes):
        if isinstance(value, plain):
            words = repr(plain(value))
            return words if len(words) <= LONGEST else f"{plain.__name__} {words[:LONGEST]}…"
    if value is None:
        return "None"
    if kind == "ndarray":
        return f"array {value.tolist()}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(shown, value))
        if type(value) not in (list, tuple):
            return kind
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if type(value) is dict:
        return "{" + ", ".join(sorted(f"{shown(key)}: {shown(item)}" for key, item in value.items())) + "}"
    return kind


def attempt(call: str, names: dict[str, Any]) -> Outcome:
    """Make one call."""
    try:
        try:
            code = compile(call, "<call>", "eval")
        except SyntaxError:
            exec(compile(call, "<call>", "exec"), names)
            return Outcome("None")
        return Outcome(shown(eval(code, names)))
    except Exception as error:
        wandb, exceptions = names["wandb"], names["exceptions"]
        called = {
            **{name: getattr(of, name, None) for of in (wandb.errors, exceptions) for name in dir(of)},
            **{name: getattr(wandb, name) for name in ("Error", "CommError", "UsageError")},
        }
        aliases = [name for name, kind in called.items() if isinstance(kind, type) and isinstance(error, kind)]
        return Outcome(raised=(*(kind.__name__ for kind in type(error).__mro__), *aliases))


def _pixels(wandb: Any) -> Callable[[Any], Any]:
    def pixels(value: Any) -> Any:
        import numpy as np

        return np.asarray(wandb.Image(value).image).tolist()

    return pixels


def _begun(wandb: Any) -> Callable[..., Any]:
    def begun(**arguments: Any) -> Any:
        try:
            return wandb.init(**{"mode": "offline", "project": "p", **arguments})
        finally:
            wandb.finish()

    return begun


def main(which: str) -> None:
    """Make all calls, and print what came of them."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    if which == "ours":
        import trackers

        trackers.install_as_wandb()
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np
    import pandas as pd
    import PIL.Image
    import torch
    import wandb
    from wandb.sdk.artifacts import exceptions

    from tests.as_wandb import patterns

    known = {
        "exceptions": exceptions,
        "wandb": wandb, "np": np, "torch": torch, "pd": pd, "PIL": PIL, "plt": plt, "argparse": argparse,
        "pathlib": pathlib, "math": math, "json": json, "copy": copy, "pickle": pickle, "os": os,
        "collections": collections, "datetime": datetime, "pixels": _pixels(wandb), "wait": patterns.eventually,
        "begun": _begun(wandb),
    }  # fmt: skip
    start = os.getcwd()
    for section, group in itertools.groupby(calls(), lambda one: one[0]):
        names = dict(known)
        os.makedirs(os.path.join(start, section), exist_ok=True)
        os.chdir(os.path.join(start, section))
        for _, call, _ in group:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                outcome = attempt(call, names)
            out.write(json.dumps(outcome) + "\n")
        wandb.finish()
    out.close()


def outcomes(which: str, place: pathlib.Path, start: Any) -> list[Outcome]:
    """What came of each call, made in a process of its own."""
    folder = place / which
    folder.mkdir()
    root = pathlib.Path(__file__).parents[2]
    variables = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "TRACKER_INLINE": "y", "PYTHONPATH": str(root)}
    done = start([sys.executable, __file__, which], cwd=folder, env={**os.environ, **variables})
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return [Outcome(value, tuple(raised)) for value, raised in lines]


def same(theirs: Outcome, ours: Outcome) -> bool:
    """Whether a script can't tell them apart: equal values, or an exception that the same ``except`` catches."""
    if theirs.raised and ours.raised:
        return theirs.raised[0] in ours.raised
    return theirs == ours or (not theirs.raised and not ours.raised and _equal(theirs.value, ours.value))


def _equal(one: str, other: str) -> bool:
    """Numbers such as 1 and 1.0."""
    try:
        return float(one) == float(other)
    except ValueError:
        return False


class Call(NamedTuple):
    """A call, what came of it there and here, and the word of why that differs; "" for a call that mustn't differ."""

    section: str
    call: str
    theirs: Outcome
    ours: Outcome
    why: str


def compared(place: pathlib.Path, start: Any) -> list[Call]:
    """All calls, made by W&B's client and by this package."""
    theirs, ours = (outcomes(which, place, start) for which in ("real", "ours"))
    return [
        Call(section, call, there, here, why)
        for (section, call, why), there, here in zip(calls(), theirs, ours, strict=True)
    ]


def table(made: list[Call]) -> str:
    """The calls that differ, by reason, as Markdown."""
    lines = []
    for word, reason in REASONS.items():
        lines += [f"**{reason}**", "", "| call | W&B's client | here |", "| --- | --- | --- |"]
        rows = [f"| `{_cell(one.call)}` | {_cell(one.theirs)} | {_cell(one.ours)} |" for one in made if one.why == word]
        lines += [*dict.fromkeys(rows), ""]
    return "\n".join(lines)


def _cell(words: object) -> str:
    text = str(words).replace("|", "\\|")
    return text if len(text) <= 2 * LONGEST else f"{text[: 2 * LONGEST]}…"


if __name__ == "__main__" and len(sys.argv) > 1:
    main(sys.argv[1])
elif __name__ == "__main__":
    import subprocess

    with tempfile.TemporaryDirectory() as scratch:
        run = functools.partial(subprocess.run, capture_output=True, text=True, check=False)
        print(table(compared(pathlib.Path(scratch), run)))
