"""Which of the program's own files were imported, as training tells the relay: ``code-<attempt>.modules``.

JSON lines. The first says where the program's own files lie; each other one is a module's name, its file, and that
file's size and time of change as it was seen then: a file that was changed since isn't what ran.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from trackers.errors import UNDECODABLE
from trackers.journal.run_directory import RunDirectory
from trackers.provenance.paths import ENDING, is_below
from trackers.support import confined
from trackers.support.interruption import pass_on

SPOOL_BYTES = 32 * 1024 * 1024


class Head(msgspec.Struct, omit_defaults=True):
    """root: the directory that own files lie below. flags: of the interpreter (``-O``, ``-X dev``). variables: of the
    environment, those that decide what is imported and computed.
    """

    root: str
    flags: list[str] = []
    variables: dict[str, str] = {}


class Module(NamedTuple):
    """name: dotted. path: absolute. size in bytes, changed: nanoseconds, as the module was seen."""

    name: str
    path: str
    size: int = -1
    changed: int = 0


def import_path(module: Module, root: str) -> str | None:
    """The directory, relative to the root, that a module was found from; None where its place says nothing."""
    parts = module.name.split(".")
    file = Path(module.path)
    above = file.parent.parents if file.name == "__init__.py" else file.parents
    if module.name == "__main__" or len(above) < len(parts):
        return None
    top = str(above[len(parts) - 1])
    if top == root:
        return "."
    return os.path.relpath(top, root) if is_below(top, root) else None


def read(run: RunDirectory, attempt: int) -> tuple[Head | None, list[Module]]:
    """What training has told so far; (None, []) where it told nothing that can be read."""
    path = run.path / f"code-{attempt}.{ENDING}"
    try:
        lines = confined.read(path, root=run.path, most=SPOOL_BYTES).split(b"\n")
    except OSError as error:
        pass_on(error)
        return None, []
    head, modules = None, {}
    try:
        head = msgspec.json.decode(lines[0], type=Head)
        for line in lines[1:-1]:
            module = Module(*msgspec.json.decode(line, type=tuple[str, str, int, int]))
            modules[module.name] = module
    except UNDECODABLE:  # a torn line of a killed process
        pass
    return head, list(modules.values())


def lines(modules: Iterable[Module]) -> bytes:
    """Lines of the file."""
    return b"".join(msgspec.json.encode(module) + b"\n" for module in modules)
