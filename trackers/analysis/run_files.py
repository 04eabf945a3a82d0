"""What a run keeps beside numbers: media, texts and artifacts; listed, and fetched into a directory.

Names and paths come from the run, which somebody else may have written: nothing is read outside of the run's directory,
and nothing is written outside of the output directory, nor through a link in it.
"""

from __future__ import annotations

import contextlib
import csv
import fnmatch
import io
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from trackers.errors import NotFound, UsageError, did_you_mean, examples
from trackers.formats.csv_cell import csv_cell
from trackers.formats.pixels import array_as_png
from trackers.readers.helpers import check_size
from trackers.readers.logged_tables import is_part
from trackers.records import ArtifactRecord, Media, MediaFile, Record, Text, name_floats
from trackers.support import atomic_write, confined

COMPARED_BYTES = 1024 * 1024
"""Bytes compared at a time, to see whether a file is there already."""
LONGEST_NAME = 150
"""Maximum length of one part of a file's name made from the name of a record, in characters."""
LONGEST_ENDING = 10


class LoggedItem(NamedTuple):
    """One record of media, one text, or one version of an artifact.

    kind: image, audio, video, table, histogram, html, text, or an artifact's type: model, dataset, file, … step: None
    without one. time: Unix seconds. files: how many. size: their bytes. record: what it was made from. before: of a
    table that is logged in parts the earlier ones, whose rows are its first.
    """

    kind: str
    name: str
    step: int | None
    time: float
    files: int
    size: int
    record: Record
    before: tuple[MediaFile, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        fields = self._asdict()
        del fields["record"], fields["before"]
        if isinstance(self.record, ArtifactRecord):
            fields["paths"] = [file.path for file in self.record.files]
            fields["aliases"] = self.record.aliases
            fields["version"] = None if self.record.version is None else f"v{self.record.version}"
        return fields

    @property
    def is_artifact(self) -> bool:
        """Whether these are files that were logged as such."""
        return isinstance(self.record, ArtifactRecord)


def logged_items(records: Iterable[Record], root: Path | None) -> list[LoggedItem]:
    """All media, texts and artifacts among a run's records, in their order.

    Args:
        root: the directory that files are relative to; None: they lie elsewhere.
    """
    entries = []
    parts: dict[str, tuple[MediaFile, ...]] = {}
    for record in records:
        match record:
            case Media():
                size = sum(_size(item, root) for item in record.items)
                before = parts.get(record.name, ()) if is_part(record) else ()
                entries.append(
                    LoggedItem(
                        record.type, record.name, record.step, record.time, len(record.items), size, record, before
                    )
                )
                if is_part(record):
                    parts[record.name] = (*before, *record.items)
            case ArtifactRecord():
                size = sum(file.size for file in record.files)
                entries.append(
                    LoggedItem(record.type, record.name, record.step, record.time, len(record.files), size, record)
                )
            case Text():
                for name, text in record.values.items():
                    size = len(text.encode("utf-8", "surrogatepass"))
                    entries.append(LoggedItem("text", name, record.step, record.time, 1, size, record))
    return entries


def summed(items: Iterable[LoggedItem]) -> dict[str, list[dict[str, Any]]]:
    """``media`` and ``artifacts``: for each name its ``kind``, ``count``, ``files``, ``size``, ``first_step`` and
    ``last_step``, in the order of first appearance.
    """
    entries: dict[tuple[bool, str, str], dict[str, Any]] = {}
    for item in items:
        entry = entries.setdefault(
            (item.is_artifact, item.kind, item.name),
            {"name": item.name, "kind": item.kind, "count": 0, "files": 0, "size": 0, "first_step": item.step},
        )
        entry["count"] += 1
        entry["files"] += item.files
        entry["size"] += item.size
        entry["last_step"] = item.step
    return {
        "media": [entry for (is_artifact, _, _), entry in entries.items() if not is_artifact],
        "artifacts": [entry for (is_artifact, _, _), entry in entries.items() if is_artifact],
    }


def _size(item: MediaFile, root: Path | None) -> int:
    if not item.file:
        return len(_json(item.data))
    if root is not None and confined.is_inside(item.file):
        with contextlib.suppress(OSError):
            return os.lstat(root / item.file).st_size
    return 0


class Choice(NamedTuple):
    """What to fetch. path: one file of an artifact; "": all of its files."""

    item: LoggedItem
    path: str = ""


def choose(items: Sequence[LoggedItem], name: str, step: int | None = None, every: bool = False) -> list[Choice]:
    """The logged items that a name means: media, a text, an artifact, a pattern, or ``artifact/path/of/one/file``.

    Args:
        step: only what was logged at this step. every: not only the last of each name.

    Raises:
        NotFound: there is no such name, or none at that step; the message names what is near.
    """
    matching = [Choice(item) for item in items if item.name == name]
    matching = matching or [
        Choice(item, path)
        for item in items
        if isinstance(item.record, ArtifactRecord) and name.startswith(f"{item.name}/")
        for path in [name[len(item.name) + 1 :]]
        if any(file.path == path for file in item.record.files)
    ]
    matching = matching or [Choice(item) for item in items if fnmatch.fnmatchcase(item.name, name)]
    names = list(dict.fromkeys(item.name for item in items))
    if not matching:
        near = did_you_mean(name, names, f"; there is {examples(names)}" if names else ": it keeps no files at all")
        raise NotFound(f"the run has no file {name!r}{near}")
    if step is not None:
        steps = [choice.item.step for choice in matching if choice.item.step is not None]
        matching = [choice for choice in matching if choice.item.step == step]
        if not matching:
            raise NotFound(f"{name!r} has nothing at step {step}; it has {examples(dict.fromkeys(steps))}")
    if every or step is not None:
        return matching
    last = {(choice.item.name, choice.item.kind, choice.path): choice for choice in matching}
    return list(last.values())


class Fetched(NamedTuple):
    """path: of the file. created: False where it existed already. size: bytes."""

    path: Path
    item: LoggedItem
    created: bool
    size: int


class _Target(NamedTuple):
    """relative: parts below the output. file: of the run, or "" where content holds it."""

    relative: tuple[str, ...]
    item: LoggedItem
    file: str
    content: bytes


def fetch(
    choices: Sequence[Choice], root: Path | None, output: Path, *, numbered: bool = False, raw: bool = False,
    force: bool = False,
) -> tuple[list[Fetched], list[str]]:  # fmt: skip
    """Write files into a directory, which is made: media as ``name-step.png``, artifacts as ``name/path``.

    Args:
        root: the directory that files of the run are relative to. numbered: artifacts as ``name-step/path``, since
            several versions of one are fetched. raw: files as they are kept; otherwise arrays of images become PNG,
            tables CSV. force: replace files that are there and differ.

    Returns:
        the files, and why others are not among them.

    Raises:
        UsageError: a file is there and differs, or can't be written. NotFound: there is nothing that can be fetched.
    """
    targets: list[_Target] = []
    problems: list[str] = []
    used: set[tuple[str, ...]] = set()
    for choice in choices:
        for target in _targets(choice, root, numbered, raw, problems):
            targets.append(target._replace(relative=_free(target.relative, used)))
            used.add(targets[-1].relative)
    try:
        output = atomic_write.real(output)
        output.mkdir(parents=True, exist_ok=True)
        existing = [not force and _is_there(target, root, output) for target in targets]
        fetched = []
        for target, is_there in zip(targets, existing, strict=True):
            path = output.joinpath(*target.relative)
            try:
                size = path.stat().st_size if is_there else _write(target, root, output)
                fetched.append(Fetched(path, target.item, not is_there, size))
            except NotFound as error:
                problems.append(str(error))
    except OSError as error:
        raise UsageError(f"{error.filename or output} can't be written: {error.strerror or error}") from None
    if not fetched:
        raise NotFound(problems[0] if problems else "there is no file in it")
    return fetched, problems


def _targets(choice: Choice, root: Path | None, numbered: bool, raw: bool, problems: list[str]) -> Iterator[_Target]:
    entry, record = choice.item, choice.item.record
    step = "" if entry.step is None else f"-{entry.step}"
    match record:
        case Text():
            yield _Target(
                _path_parts(f"{entry.name}{step}", "txt"),
                entry,
                "",
                record.values[entry.name].encode("utf-8", "replace"),
            )
        case Media():
            for number, item in enumerate(record.items):
                stem = f"{entry.name}{step}" + (f"-{number}" if len(record.items) > 1 else "")
                try:
                    content, form = _converted(entry.kind, item, root, raw, entry.before)
                    yield _Target(_path_parts(stem, form), entry, "" if content else item.file, content)
                except NotFound as error:
                    problems.append(f"{entry.name}: {error}")
        case ArtifactRecord():
            folder = _path_parts(entry.name + (step if numbered else ""))
            for file in record.files:
                if choice.path in ("", file.path):
                    if file.file:
                        yield _Target(
                            (*folder, *map(_safe_part, confined.parts(file.path) or ["file"])), entry, file.file, b""
                        )
                    else:
                        problems.append(
                            f"{entry.name}/{file.path} isn't kept with the run: it is {file.uri or 'nowhere'}"
                        )


def _converted(
    kind: str, item: MediaFile, root: Path | None, raw: bool, before: Sequence[MediaFile]
) -> tuple[bytes, str]:
    """The content of an item in a form that other programs open, and that form; b"": as its file is."""
    form = item.format.lower()
    form = form if form.isascii() and form.isalnum() and len(form) <= LONGEST_ENDING else "bin"
    if not raw and kind == "image" and form == "npy":
        return _png(_content(item, root)), "png"
    if not raw and kind == "table":
        table = _csv([_content(part, root) if part.file else _json(part.data) for part in (*before, item)])
        if table:
            return table, "csv"
    return (b"", form) if item.file else (_json(item.data), "json")


def _content(item: MediaFile, root: Path | None) -> bytes:
    with _open_file(item.file, root) as file:
        return file.read(confined.READ_BYTES)


def _open_file(file: str, root: Path | None) -> BinaryIO:
    """Open a file of the run.

    Raises:
        NotFound: it has gone, or lies elsewhere.
    """
    if root is None or not confined.is_inside(file):
        raise NotFound(f"{file!r} is no file in the run's directory")
    root = root.absolute()
    try:
        check_size(root / file)
        return confined.open_file(root / file, root=root)
    except OSError as error:
        raise NotFound(f"{file} can't be read: {error.strerror or error}") from None


def _png(content: bytes) -> bytes:
    try:
        return array_as_png(content)
    except (ImportError, ValueError) as error:
        raise NotFound(f"{error}: --raw gives it as it is kept") from None


def _csv(parts: Sequence[bytes]) -> bytes:
    """A table as CSV, its parts below each other; b"" where it is none."""
    try:
        tables = [msgspec.json.decode(content) for content in parts]
        rows = [tables[0]["columns"], *(row for table in tables for row in table["rows"])]
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([_cell(cell) for cell in row] for row in rows)
    except (ValueError, TypeError, KeyError, RecursionError):
        return b""
    return out.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    return _json(value).decode() if isinstance(value, (dict, list)) else "" if value is None else csv_cell(value)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(name_floats(value))


def _path_parts(name: str, ending: str = "") -> tuple[str, ...]:
    """A name as the parts of a relative path without ``..``."""
    parts = [_safe_part(part) for part in confined.parts(name)] or ["file"]
    if parts[0].startswith("."):  # nobody's .ssh in the current directory
        parts[0] = f"_{parts[0][1:]}"
    if ending:
        parts[-1] += f".{ending}"
    return tuple(parts)


def _safe_part(part: str) -> str:
    text = "".join(char if char.isprintable() else "_" for char in part)[:LONGEST_NAME]
    return text if confined.is_plain_name(text) else "file"


def _free(parts: tuple[str, ...], used: set[tuple[str, ...]]) -> tuple[str, ...]:
    candidate, number = parts, 1
    while candidate in used:
        number += 1
        stem, dot, ending = parts[-1].rpartition(".")
        candidate = (*parts[:-1], f"{stem}-{number}{dot}{ending}" if stem else f"{parts[-1]}-{number}")
    return candidate


def _is_there(target: _Target, root: Path | None, output: Path) -> bool:
    """Whether the output has the file already.

    Raises:
        UsageError: another file is there.
    """
    path = output.joinpath(*target.relative)
    if not os.path.lexists(path):
        return False
    with contextlib.suppress(OSError, NotFound), confined.open_file(path, root=output) as existing:
        source: BinaryIO = _open_file(target.file, root) if target.file else io.BytesIO(target.content)
        with source:
            while (block := source.read(COMPARED_BYTES)) == existing.read(COMPARED_BYTES):
                if not block:
                    return True
    raise UsageError(f"{path} exists and stays: name another --output; --force replaces it")


def _write(target: _Target, root: Path | None, output: Path) -> int:
    """Write one file; returns its size.

    Raises:
        NotFound: what it is copied from can't be read. OSError: it can't be written.
    """
    source: BinaryIO = _open_file(target.file, root) if target.file else io.BytesIO(target.content)
    path = output.joinpath(*target.relative)
    with source:
        confined.make_folder(path.parent, root=output) if len(target.relative) > 1 else None
        partial = confined.temporary(path)
        try:
            with confined.open_file(partial, "xb", root=output) as file:
                shutil.copyfileobj(source, file, COMPARED_BYTES)
                size = file.tell()
            confined.replace(partial, path, root=output)
        except BaseException:
            with contextlib.suppress(OSError):
                confined.remove(partial, root=output)
            raise
    return size
