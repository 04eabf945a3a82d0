"""Provenance of a run (command, code, packages, machine), and differences between two runs."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers import records
from trackers.errors import Damaged, NotFound
from trackers.journal.run_directory import RunDirectory
from trackers.provenance import manifest
from trackers.provenance.paths import is_below
from trackers.readers.run_data import RunData
from trackers.records import Environment, Start, name_floats
from trackers.support import confined
from trackers.support.redaction import MASK, mask, mask_argv

_APART = frozenset({"packages", "git", "argv", "args", "program", "executable", "cwd", "root", "code_path", "codePath",
                    "startedAt", "started_at", "heartbeatAt", "writer_id", "disk", "rerun_of"})  # fmt: skip
"""Fields of an environment that don't describe the machine: shown elsewhere, or irrelevant for a comparison."""
_OF_ONE_PIECE = re.compile(r"^gpus\..*\.(uuid|bus)$|^machines\.[^.]+\.disks\.")
"""What differs between two pieces of the same machinery."""
_GIT = {"remote_url": "remote"}


class Code:
    """A run's own files, as its record of code has them.

    Attributes:
        files: by path. commit: that the record was made at; "" without one. root: directory that they lie below.
    """

    def __init__(self, run: RunDirectory, record: manifest.Manifest) -> None:
        files = [file for file in record.files if file.origin != manifest.DELETED]
        self.files = {file.path: file for file in files}
        self.commit = str(record.git.get("commit", ""))
        self.root = record.root
        self._archive = manifest.Archive(run, record)

    def text(self, path: str) -> list[str] | None:
        """A file's lines; [] where there is no such file, None where it is no text or its content isn't there."""
        file = self.files.get(path)
        if file is None:
            return []
        if file.link:
            return [f"a link to {file.link}"]
        try:
            content = self._archive.read(file) if file.bytes <= COMPARED_BYTES else b"\0"
        except Damaged:
            return None
        if b"\0" in content:
            return None
        return content.decode("utf-8", "replace").splitlines()


class Provenance(msgspec.Struct, kw_only=True):
    """Everything is empty where the source doesn't say. Secrets are masked.

    program: the script's path, ``-m package``, or ``<notebook>``. config: flat. git: commit, branch, remote, dirty,
    patch. hardware: the machine, flat. data: digests of files of data. code: the program's own files, where they were
    recorded.
    """

    name: str
    source: str
    program: str = ""
    argv: list[str] = []
    cwd: str = ""
    python: str = ""
    ranks: int = 1
    config: dict[str, Any] = {}
    git: dict[str, Any] = {}
    packages: dict[str, str] = {}
    hardware: dict[str, Any] = {}
    data: dict[str, str] = {}
    code: Code | None = None


COMPARED_BYTES = 1_000_000
"""Maximum size of a file whose lines are compared."""


def portrait(data: RunData) -> Provenance:
    """A run's provenance, from its identity where it is one of ours, and from its recorded environment."""
    provenance = Provenance(name=data.run.name or data.run.id, source=data.run.source)
    provenance.config = dict(records.flatten(mask(data.config), "."))
    machine: dict[str, Any] = {}
    for record in data.records():
        if isinstance(record, Environment):
            records.merge(machine, record.values)
        elif isinstance(record, Start):
            provenance.ranks = max(provenance.ranks, record.world_size)
    provenance.program = str(machine.get("program", ""))
    provenance.argv = mask_argv([str(word) for word in machine.get("argv") or machine.get("args") or []])
    provenance.python = str(machine.get("executable", ""))
    provenance.cwd = str(machine.get("cwd") or machine.get("root") or "")
    git = machine.get("git") if isinstance(machine.get("git"), dict) else {}
    provenance.git = {_GIT.get(name, name): value for name, value in (git or {}).items() if name != "root"}
    packages = machine.get("packages")
    provenance.packages = {str(k): str(v) for k, v in packages.items()} if isinstance(packages, dict) else {}
    hardware = {name: value for name, value in mask(machine).items() if name not in _APART}
    provenance.hardware = {
        name: value for name, value in records.flatten(hardware, ".") if not _OF_ONE_PIECE.search(name)
    }
    _take_identity(data, provenance)
    return provenance


def _take_identity(data: RunData, provenance: Provenance) -> None:
    patch = provenance.git.pop("patch_file", None)
    run = RunDirectory(data.run.directory or "")
    try:
        info = run.read_info() if data.run.directory else None
    except NotFound:  # a directory of another kind of source
        return
    if info is None or info.id != data.run.id:
        return
    with contextlib.suppress(NotFound):
        record = manifest.read(run)
        provenance.code = Code(run, record)
        provenance.packages = provenance.packages or dict(record.packages)
        for name, origin in record.origins.items():
            where = f"{origin.url}@{origin.commit[:12]}" if origin.commit else origin.url
            provenance.packages[name] = f"{provenance.packages.get(name, '')} ({where})"
        for file in record.data:
            provenance.data[file.path] = file.digest or file.why
    if confined.is_plain_name(patch) and str(patch).endswith(".patch"):
        with contextlib.suppress(OSError):  # it may be its owner's alone
            provenance.git["patch"] = confined.read(Path(str(data.run.directory)) / str(patch)).decode(
                "utf-8", "replace"
            )
    provenance.program, provenance.argv, provenance.cwd = info.program, mask_argv(info.argv), info.cwd
    provenance.python = info.python or provenance.python
    provenance.git = {**{name: value for name, value in info.git.items() if name != "root"}, **provenance.git}
    provenance.hardware.setdefault("host", info.host)


def command(provenance: Provenance) -> str:
    """The command line that starts the run again, quoted for a POSIX shell.

    Raises:
        NotFound: the run doesn't say how it was started, or it was typed into a notebook or a console.
    """
    if provenance.program in ("<notebook>", "<python>"):
        where = "a notebook" if provenance.program == "<notebook>" else "a Python console"
        raise NotFound(f"run {provenance.name!r} was started in {where}: there is no command that does it again")
    if not provenance.program:
        raise NotFound(f"run {provenance.name!r} ({provenance.source}) doesn't say how it was started")
    program = provenance.program.split(" ", 1) if provenance.program.startswith("-m ") else [provenance.program]
    words = [provenance.python or "python", *program, *provenance.argv]
    line = " ".join(quote(word) for word in words)
    return f"cd {quote(provenance.cwd)} && {line}" if provenance.cwd else line


def quote(word: str) -> str:
    """A word as a shell reads it back; control characters, which a terminal would obey, in ``$'…'``."""
    if all(char.isprintable() for char in word):
        return shlex.quote(word)
    text = "".join(
        char
        if char.isprintable() and char not in "'\\"
        else "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))
        for char in word
    )
    return f"$'{text}'"


def remarks(provenance: Provenance) -> list[str]:
    """Remarks for running it again: commit, uncommitted changes, ranks, masked secrets."""
    lines = []
    if provenance.git.get("commit"):
        changes = ", with uncommitted changes (`trackers diff` and run.json's patch have them)"
        dirty = changes if provenance.git.get("dirty") else ""
        lines.append(f"at commit {provenance.git['commit']}{dirty}")
    if provenance.ranks > 1:
        lines.append(f"it ran on {provenance.ranks} ranks: start it with your launcher")
    if any(MASK in word for word in provenance.argv):
        lines.append(f"{MASK} stands for a secret: put it in again")
    return lines


PARTS = ("config", "argv", "git", "code", "data", "packages", "hardware")


_SURVEYED = "os"
"""A fact that each survey of a machine has."""


class Difference(msgspec.Struct):
    """part: one of :data:`PARTS`. name: setting, package, … first, second: None where that run has none.

    Of a file of the code they are the lines that only that run has; "" where these can't be told. lines: both with the
    lines around them, as ``diff -u`` writes them.
    """

    part: str
    name: str
    first: Any
    second: Any
    lines: list[str] = []


def diff(first: Provenance, second: Provenance) -> list[Difference]:
    """Everything that isn't the same, part by part; of uncommitted changes the lines that differ.

    What one of the runs doesn't say isn't compared: of where it ran each fact, of git, data and packages the part.
    """
    both = first.code is not None and second.code is not None
    differences = _mappings("config", first.config, second.config)
    differences += _mappings("argv", _command(first, both), _command(second, both))
    if first.git and second.git:
        differences += _repositories(first.git, second.git, with_patch=not both)
    if first.code is not None and second.code is not None:
        differences += _files(first.code, second.code)
    for part in ("data", "packages"):
        if getattr(first, part) and getattr(second, part):
            differences += _mappings(part, getattr(first, part), getattr(second, part))
    return differences + _machines(first.hardware, second.hardware)


def _repositories(first: Mapping[str, Any], second: Mapping[str, Any], *, with_patch: bool) -> list[Difference]:
    """What of two states of a repository differs. with_patch: uncommitted changes too, where no files tell more."""
    apart = {"patch": None}
    if first.get("commit") and first.get("commit") == second.get("commit"):
        apart["branch"] = None
    differences = _mappings("git", {**first, **apart}, {**second, **apart})
    old, new = (str(git.get("patch") or "").splitlines() for git in (first, second))
    if old != new and with_patch:
        lines = list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]
        removed, added = ([line[1:] for line in lines if line.startswith(sign)] for sign in "-+")
        differences.append(Difference("git", "patch", "\n".join(removed) or None, "\n".join(added) or None))
    return differences


def _machines(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Difference]:
    if (_SURVEYED in first) != (_SURVEYED in second):  # nobody looked at the machine of one of them
        common = first.keys() & second.keys()
        first, second = ({name: machine[name] for name in machine if name in common} for machine in (first, second))
    return _mappings("hardware", first, second)


def _files(first: Code, second: Code) -> list[Difference]:
    """Files of the code that aren't the same; one that only one of the runs imported has only one side."""
    differences = []
    for path in sorted({*first.files, *second.files}):
        sides = [code.files.get(path) for code in (first, second)]
        states = [(file.digest, file.link, file.bytes) if file is not None else None for file in sides]
        if states[0] == states[1]:
            continue
        old, new = first.text(path), second.text(path)
        if old is None or new is None:
            empty = ["" if file is not None else None for file in sides]
            differences.append(Difference("code", path, empty[0], empty[1]))
            continue
        lines = list(difflib.unified_diff(old, new, n=2, lineterm=""))[2:]
        removed, added = ("\n".join(line[1:] for line in lines if line.startswith(sign)) for sign in "-+")
        differences.append(
            Difference(
                "code", path, removed if sides[0] is not None else None, added if sides[1] is not None else None, lines
            )
        )
    return differences


def to_json(differences: list[Difference]) -> list[dict[str, Any]]:
    """JSON values."""
    entries = [dict(name_floats(msgspec.structs.asdict(entry))) for entry in differences]
    return [{name: value for name, value in entry.items() if name != "lines" or value} for entry in entries]


def shortened(parts: Sequence[Sequence[str]], most: int) -> list[list[str]]:
    """Lines of several parts, shortened to at most ``most`` in all, as long as each part can have three.

    A part that isn't shown whole ends with a line that says how many are missing.
    """
    share = [min(len(part), 3) for part in parts]
    remaining = most - sum(share)
    while remaining > 0 and any(size < len(part) for size, part in zip(share, parts, strict=True)):
        index = min((n for n, part in enumerate(parts) if share[n] < len(part)), key=share.__getitem__)
        share[index] += 1
        remaining -= 1
    return [
        list(part) if size >= len(part) else [*part[: size - 1], f"  and {len(part) - size + 1:,} more lines: --full"]
        for size, part in zip(share, parts, strict=True)
    ]


def _mappings(part: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Difference]:
    names = dict.fromkeys([*first, *second])
    pairs = ((name, first.get(name), second.get(name)) for name in names)
    return [Difference(part, *pair) for pair in pairs if name_floats(pair[1]) != name_floats(pair[2])]


def _command(provenance: Provenance, below: bool) -> dict[str, Any]:
    """The command line by name: options with their values, other words by position.

    Args:
        below: name paths from the root of the program's own files: the same program may lie elsewhere.
    """
    root = provenance.code.root if below and provenance.code is not None else ""

    def named(path: str) -> str:
        return os.path.relpath(path, root) if root and (path == root or is_below(path, root)) else path

    by_name: dict[str, Any] = {}
    if provenance.program:
        by_name["program"] = named(provenance.program)
    position, words = 0, list(provenance.argv)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-") or _is_number(word):
            by_name[f"argument {position}"] = word
            position += 1
        elif equals:
            by_name[name] = value
        elif words and (not words[0].startswith("-") or _is_number(words[0])):
            by_name[word] = words.pop(0)
        else:
            by_name[word] = "given"
    for name, text in (("python", provenance.python), ("cwd", named(provenance.cwd))):
        if text:
            by_name[name] = text
    return by_name


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
