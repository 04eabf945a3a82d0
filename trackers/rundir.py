"""A run on disk: which file lies where, how runs are found, and how files are replaced whole."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import string
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from trackers.errors import NotFound, UsageError
from trackers.failpoints import failpoint
from trackers.packed import SUFFIX, open_file
from trackers.tracker import RunInfo

_ALPHABET = string.ascii_lowercase + string.digits
_STREAM = re.compile(r"(?P<writer>rank|node|sampler|reducer)-(?P<number>\d+)\.(?P<attempt>\d+)")
_SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._\-]{0,127}")

TAIL_BYTES = 65536
"""How much of a stream is looked through at a time for its last complete line."""


class StreamName(NamedTuple):
    """``rank-0.1``: who writes (rank, node, sampler or reducer), its number, and the attempt."""

    writer: str
    number: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.writer}-{self.number}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> StreamName | None:
        match = _STREAM.fullmatch(text)
        return cls(match["writer"], int(match["number"]), int(match["attempt"])) if match else None


class RunDirectory:
    """Paths inside ``runs/<project>/<run id>/``. Makes nothing until asked to."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    @property
    def identity(self) -> Path:
        return self.path / "run.json"

    @property
    def archive(self) -> Path:
        """What was packed, by ``trackers archive``; without this file the run isn't archived."""
        return self.path / "archive.json"

    def archived(self) -> bool:
        """Whether its files are packed: they can be read, and written once they are restored."""
        return self.archive.exists()

    @property
    def streams(self) -> Path:
        return self.path / "streams"

    @property
    def delivery(self) -> Path:
        return self.path / "delivery"

    @property
    def media(self) -> Path:
        return self.path / "media"

    @property
    def relay_log(self) -> Path:
        return self.path / "relay.log"

    @property
    def messages(self) -> Path:
        return self.path / "messages.jsonl"

    def stream(self, name: StreamName) -> Path:
        return self.streams / f"{name}.jsonl"

    def stream_names(self) -> list[StreamName]:
        """All streams there are, ranks first, in order of number and attempt."""
        found = set()
        with contextlib.suppress(FileNotFoundError):
            for entry in os.listdir(self.streams):
                stem = entry.removesuffix(SUFFIX)
                name = StreamName.parse(stem.removesuffix(".jsonl")) if stem.endswith(".jsonl") else None
                if name is not None:
                    found.add(name)
        return sorted(found, key=lambda name: (name.attempt, name.writer != "rank", name.writer, name.number))

    def sizes(self) -> dict[str, int]:
        """Bytes of complete lines in each stream. A torn tail that a killed writer left isn't waited for."""
        found = {}
        for name in self.stream_names():
            with contextlib.suppress(OSError), open_file(self.stream(name)) as file:
                end = file.seek(0, os.SEEK_END)
                newline = -1
                while end > 0 and newline < 0:
                    start = max(0, end - TAIL_BYTES)
                    file.seek(start)
                    newline = file.read(end - start).rfind(b"\n")
                    end = start + newline + 1 if newline >= 0 else start
                found[str(name)] = end
        return found

    def attempt(self) -> int:
        """The newest attempt's number; 0 before the first."""
        return max((name.attempt for name in self.stream_names()), default=0)

    def delivery_state(self, tracker: str) -> Path:
        return self.delivery / f"{tracker}.json"

    def deliveries(self) -> list[str]:
        """Trackers that a delivery was ever begun for."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(
                entry.removesuffix(".json")
                for entry in os.listdir(self.delivery)
                if entry.endswith(".json") and not entry.startswith(".")
            )
        return []

    def make(self) -> None:
        """Make the directory and its folders; an existing one is fine."""
        for path in (self.streams, self.delivery, self.media):
            path.mkdir(parents=True, exist_ok=True)

    def need_restored(self) -> None:
        """Raise UsageError if the run is archived: who writes to it needs its files as they were."""
        if self.archived():
            raise UsageError(f"run {self.path} is archived: `trackers restore {self.path} --yes`, then again")

    def read_info(self) -> RunInfo:
        """The run's identity, with ``directory`` set.

        Raises:
            NotFound: no readable ``run.json`` here.
        """
        try:
            info = msgspec.json.decode(self.identity.read_bytes(), type=RunInfo, strict=False)
        except FileNotFoundError:
            raise NotFound(f"no run in {self.path}: there is no run.json; `trackers ls` lists runs") from None
        except (msgspec.DecodeError, OSError) as error:
            raise NotFound(f"{self.identity} can't be read: {error}") from None
        info.directory = str(self.path.resolve())
        return info

    def write_info(self, info: RunInfo) -> None:
        stored = msgspec.structs.replace(info, directory="")
        replace_file(self.identity, msgspec.json.format(msgspec.json.encode(stored)) + b"\n")


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file whole: a reader sees the old or the new content, never a part.

    Raises:
        OSError: nothing was changed; no temporary file is left behind.
    """
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")
    failpoint("file.write.before")
    try:
        temporary.write_bytes(content)
        failpoint("file.rename.before")
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    failpoint("file.rename.after")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; {} if it is missing, empty or damaged."""
    try:
        value = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


def new_id() -> str:
    """Eight random letters and digits, as W&B's run ids."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(8))


def check_id(run_id: str) -> str:
    """The id itself, if it can name a directory on every filesystem and a run in every tracker.

    Raises:
        UsageError: it can't.
    """
    if not _SAFE_ID.fullmatch(run_id) or run_id.endswith(".") or ".." in run_id:
        raise UsageError(
            f"run id {run_id[:80]!r} can't be a file name: use letters, digits, '-', '_' and '.', "
            "begin with a letter, digit or '_', at most 128 characters"
        )
    return run_id


def project_folder(project: str) -> str:
    """A project's name as one path component: what isn't a letter, digit or one of ``-_. `` is %-encoded."""
    name = quote(project, safe=" -_.")
    if name.strip(". ") == "":
        name = name.replace(".", "%2E").replace(" ", "%20")
    if len(name) > 200:
        raise UsageError(f"project name of {len(project)} characters is too long for a folder: use at most 200")
    return name


def find_runs(root: Path) -> Iterator[RunDirectory]:
    """Every run below ``runs/``, or the one run if ``root`` is a run's directory itself."""
    if (root / "run.json").exists():
        yield RunDirectory(root)
        return
    for identity in sorted(root.glob("*/run.json")) + sorted(root.glob("*/*/run.json")):
        yield RunDirectory(identity.parent)


def asked_for(references: Iterable[str], root: Path) -> list[str]:
    """What a command was given, or ``root`` where that is nothing at all.

    Raises:
        UsageError: one of them is empty: an unset variable of a shell, that mustn't mean everything here.
    """
    found = list(references)
    if any(not reference.strip() for reference in found):
        raise UsageError("a run's name is empty (an unset variable?): give an id, a name, latest or a directory")
    return found or [str(root)]


def find_run(reference: str, root: Path) -> RunDirectory:
    """A run by directory, id, name, ``project/id`` or ``latest``.

    Raises:
        NotFound: nothing fits, or several runs have that name (the message lists their ids).
    """
    given = Path(reference).expanduser()
    if (given / "run.json").exists():
        return RunDirectory(given)
    runs = list(find_runs(root))
    if not runs:
        raise NotFound(f"no runs in {root}: give --dir, or a run's directory")
    if reference == "latest":
        return max(runs, key=lambda run: run.identity.stat().st_mtime)
    exact = [run for run in runs if reference in (run.path.name, f"{run.path.parent.name}/{run.path.name}")]
    if len(exact) == 1:
        return exact[0]
    named = exact or [run for run in runs if _name_of(run) == reference]
    if len(named) == 1:
        return named[0]
    if named:
        listed = ", ".join(f"{run.path.parent.name}/{run.path.name}" for run in named)
        raise NotFound(f"{len(named)} runs are called {reference!r}: {listed}; name one by its id")
    raise NotFound(f"no run {reference!r} in {root}; `trackers ls` lists them")


def _name_of(run: RunDirectory) -> str:
    try:
        return run.read_info().name
    except NotFound:
        return ""
