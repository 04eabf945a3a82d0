"""A run on disk: which file lies where, how runs are found, and how files are replaced whole."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shlex
import stat
import string
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from trackers.errors import Damaged, NotFound, UsageError
from trackers.journal import signature
from trackers.journal.stream import StreamReader
from trackers.records import (
    EDITS,
    TIME_MAX,
    Config,
    CorruptLine,
    Info,
    Start,
    check_depth,
    decode,
    merge,
    name_floats,
    sound,
)
from trackers.support import confined
from trackers.support.failpoints import failpoint
from trackers.support.interruption import pass_on, suppress
from trackers.support.seekable_zstd import SUFFIX, open_file
from trackers.tracker import RunInfo

_ALPHABET = string.ascii_lowercase + string.digits
_STREAM = re.compile(r"(rank|node|sampler|reducer|console|alerts|edits)-(0|[1-9]\d{0,9})\.(0|[1-9]\d{0,9})", re.ASCII)
_SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._\-]{0,127}")

DOOMED = "run.json.deleting"
"""The name that ``run.json`` has while its run is being deleted: nobody takes the rest for a run."""

TRASH = ".trash"
"""Folder beside runs for those that were removed and can be brought back (:mod:`trackers.editing.trash`)."""

SMALL_BYTES = 64 * 1024 * 1024
"""No identity of a run and no state of a delivery is longer."""

SHARES = {"owner": 0o700, "group": 0o770, "umask": 0o777}
"""``TRACKER_SHARE``: what new directories of runs give to whom, of what the umask allows."""

CONSOLE = "console"
"""Folder of a run, or of a launch, for what its processes print."""

FILES = "files"
"""Folder of a run for the script's own files."""

MOST_ATTEMPTS = 2**31
HOLE_BYTES = 64 * 1024 * 1024
TAIL_BYTES = 65536
"""Bytes read at a time in search of a stream's last complete line."""


class StreamName(NamedTuple):
    """``rank-0.1``: who writes (rank, node, sampler, reducer, console, alerts, edits), its number, and the attempt."""

    writer: str
    number: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.writer}-{self.number}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> StreamName | None:
        match = _STREAM.fullmatch(text)
        return cls(match[1], int(match[2]), int(match[3])) if match else None


EDITS_STREAM = StreamName(EDITS, 0, 1)


class RunDirectory:
    """Paths inside ``runs/<project>/<run id>/``. Makes nothing until asked to."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    @property
    def quoted(self) -> str:
        """The directory as a shell takes it, in the commands that messages name."""
        return shlex.quote(str(self.path))

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
    def console(self) -> Path:
        """What training printed and the relay hasn't put into the journal yet."""
        return self.path / CONSOLE

    @property
    def shared(self) -> Path:
        """A file that is there once a child of the process that began an attempt has recorded something."""
        return self.path / "shared"

    @property
    def relay_log(self) -> Path:
        return self.path / "relay.log"

    @property
    def messages(self) -> Path:
        return self.path / "messages.jsonl"

    def stream(self, name: StreamName) -> Path:
        return self.streams / f"{name}.jsonl"

    def stream_names(self) -> list[StreamName]:
        """All streams there are, ranks first, in order of number and attempt; edits are the last."""
        names = set()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.listdir(self.streams):
                stem = entry.removesuffix(SUFFIX)
                name = StreamName.parse(stem.removesuffix(".jsonl")) if stem.endswith(".jsonl") else None
                if name is not None:
                    names.add(name)

        def order(name: StreamName) -> tuple[object, ...]:
            return name.writer == EDITS, name.attempt, name.writer != "rank", name.writer, name.number

        return sorted(names, key=order)

    def sizes(self) -> dict[str, int]:
        """Bytes of complete lines in each stream. A torn tail that a killed writer left isn't waited for."""
        sizes = {}
        for name in self.stream_names():
            with suppress(OSError), open_file(self.stream(name)) as file:
                end = file.seek(0, os.SEEK_END)
                newline = -1
                size, empty = end, True
                while end > 0 and newline < 0:
                    start = max(0, end - TAIL_BYTES)
                    file.seek(start)
                    block = file.read(end - start)
                    newline = block.rfind(b"\n")
                    end = start + newline + 1 if newline >= 0 else start
                    empty = empty and newline < 0 and not block.strip(b"\0")
                    if empty and size - end > HOLE_BYTES:  # it may be of any length, and has nothing
                        end = 0
                sizes[str(name)] = end
        return sizes

    def attempt(self) -> int:
        """The newest attempt's number; 0 before the first."""
        return max((name.attempt for name in self.stream_names()), default=0)

    def delivery_state(self, tracker: str) -> Path:
        return self.delivery / f"{tracker}.json"

    def deliveries(self) -> list[str]:
        """Trackers that a delivery was ever begun for."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(
                entry.removesuffix(".json")
                for entry in os.listdir(self.delivery)
                if entry.endswith(".json") and not entry.startswith(".")  # a killed process's temporary file
            )
        return []

    def make(self, share: str = "owner") -> None:
        """Make the directory and its folders; an existing one is fine.

        Args:
            share: who can read it, see :data:`SHARES`; its files follow it (:func:`trackers.support.confined.open_fd`).
        """
        for path in (self.streams, self.delivery, self.media):
            confined.make_own(self.path, SHARES.get(share, 0o700))
            confined.make_folder(path)

    def need_regular(self) -> None:
        """Raise UsageError if a pipe, a device or a link lies where the run's own files must be.

        No process can read or write those, so waiting for them to become usable would never end.
        """
        for folder in (self.path, self.streams, self.delivery):
            for entry in _entries(folder):
                try:
                    mode = entry.stat(follow_symlinks=False).st_mode
                except FileNotFoundError:  # a lease that was given back meanwhile
                    continue
                if stat.S_ISREG(mode) or entry.name == self.identity.name:
                    continue
                kinds = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder"}
                if folder == self.path:
                    must_be_folder = entry.name in (self.streams.name, self.delivery.name)
                    must_be_file = entry.name in (self.relay_log.name, self.messages.name, "relay.lease")
                    wrong = not stat.S_ISDIR(mode) if must_be_folder else must_be_file or stat.S_IFMT(mode) not in kinds
                else:
                    wrong = True
                if wrong:
                    what = kinds.get(stat.S_IFMT(mode), "a pipe or a device")
                    raise UsageError(f"{entry.path} is {what}, and no process can use it: remove it, then again")

    def need_own_directory(self) -> None:
        """Raise UsageError if a link lies in its place: who changes a run changes nothing elsewhere."""
        if self.path.is_symlink():
            raise UsageError(f"{self.path} is a link to a directory, and only that one can be changed: name it instead")

    def need_restored(self) -> None:
        """Raise UsageError if the run is archived: who writes to it needs its files as they were."""
        if self.archived():
            raise UsageError(f"run {self.path} is archived: `trackers restore {self.quoted} --yes`, then again")

    def _has_identity_elsewhere(self, error: OSError) -> bool:
        """True if ``run.json`` isn't a regular file and the journal holds the run's identity."""
        return error.errno in (errno.ELOOP, errno.EINVAL) and self.info_by_journal() is not None

    def read_info(self, *, edited: bool = True) -> RunInfo:
        """The run's identity, with ``directory`` set: by ``run.json``, or by the journal where that is lost or damaged.

        Args:
            edited: with what was edited since. False: as training wrote it, which trackers name their files by.

        Raises:
            NotFound: there is neither here, or it can't be read. Damaged: it doesn't say who a run is.
        """
        try:
            info = self.stored_info()
        except FileNotFoundError:
            recorded = self.info_by_journal()
            if recorded is None:
                raise NotFound(f"no run in {self.path}: there is no run.json; `trackers ls` lists runs") from None
            info = recorded
        except OSError as error:
            pass_on(error)
            again = "; remove it: the journal says who the run is" if self._has_identity_elsewhere(error) else ""
            raise NotFound(f"{self.identity} can't be read: {error.strerror or error}{again}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            pass_on(error)
            recorded = self.info_by_journal()
            if recorded is None:
                raise Damaged(f"{self.identity} is damaged: {error}; put it back from a backup") from None
            info = recorded
        if not abs(info.created) < TIME_MAX:
            info.created = 0.0
        info.trackers = [name for name in info.trackers if confined.is_plain_name(name)]
        known = range(MOST_ATTEMPTS + 1)  # by its type: JSON's true would be in it, too
        info.attempts = [one for one in info.attempts if type(n := one.get("number", 0)) is int and n in known]
        info.directory, info.home, info.foreign = os.path.realpath(self.path), "", False
        if edited:
            self._edit(info)
        return info

    def _edit(self, info: RunInfo) -> None:
        """Apply a run's edits to its identity; edits that can't be read are skipped."""
        path = self.stream(EDITS_STREAM)
        if not (os.path.lexists(path) or os.path.lexists(f"{path}{SUFFIX}")):  # as most; commands ask thousands of runs
            return
        block = b""
        with suppress(OSError), open_file(path) as file:
            block = file.read(SMALL_BYTES)
        begin = 0
        for line in block.split(b"\n")[:-1]:
            record = None
            with contextlib.suppress(CorruptLine):
                record = decode(line.strip(b"\0")) if line else None
            if isinstance(record, Info):
                for name, value in record.changes().items():
                    if name == "name" or begin >= info.edits:  # run.json has the others
                        setattr(info, name, value)
            begin += len(line) + 1
        info.edits = max(info.edits, begin)

    def stored_info(self) -> RunInfo:
        """What ``run.json`` says.

        Raises:
            OSError: it can't be read. ValueError, RecursionError, MemoryError: it doesn't say who a run is.
        """
        info = msgspec.json.decode(read_small(self.identity), type=RunInfo, strict=False)
        for nested in (info.config, info.options, info.git, info.attempts):
            check_depth(nested)
        return info

    def info_by_journal(self) -> RunInfo | None:
        """The run's identity by the heads of its attempts' streams; None where no stream has a record.

        Id and project are the directory's where the heads don't say them: those of earlier versions, and damaged ones.
        """
        if (self.path / DOOMED).exists():
            return None
        ranks = [name for name in self.stream_names() if name.writer == "rank"]
        heads = [(name.attempt, StreamReader(self.stream(name)).read(2)) for name in ranks]
        starts = [(number, head[0]) for number, head in heads if head and isinstance(head[0], Start)]
        if not starts:
            times = [record.time for _, head in heads for record in head]
            name, project = self.path.name, unquote(self.path.parent.name)
            known = RunInfo(id=name, name=name, project=project, trackers=self.deliveries())
            return msgspec.structs.replace(known, created=min(times)) if times else None
        config: dict[str, Any] = {}
        for _, head in heads:
            for record in head[1:]:
                if isinstance(record, Config):
                    merge(config, record.values)
        for _, start in reversed(starts):
            with suppress(ValueError, RecursionError):
                check_depth(start.run)
                return msgspec.convert({**start.run, "config": config}, RunInfo, strict=False)
        first, last = starts[0][1], starts[-1][1]
        return RunInfo(
            id=self.path.name,
            name=self.path.name,
            project=unquote(self.path.parent.name),
            trackers=self.deliveries(),
            config=config,
            created=first.time,
            host=last.host,
            boot_id=last.boot_id,
            pid_namespace=last.pid_namespace,
            pid=last.pid,
            pid_start=last.pid_start,
            attempts=[
                {"number": number, "time": start.time, "host": start.host, "pid": start.pid} for number, start in starts
            ],
        )

    def put_back(self) -> bool:
        """Put ``run.json`` back as the journal has it, with the seal that its writer gave it, if it is lost or damaged.
        True if that was so.

        Raises:
            OSError: it can't be written.
        """
        try:
            self.stored_info()
        except (FileNotFoundError, ValueError, RecursionError, MemoryError) as error:
            pass_on(error)
            info = self.info_by_journal()
            if info is not None:
                self._store(info)
            return info is not None
        return False

    def write_info(self, info: RunInfo) -> None:
        """Store the run's identity, sealed as this user's own.

        Raises:
            OSError: it can't be written.
        """
        self._store(sealed(info))

    def _store(self, info: RunInfo) -> None:
        replace_file(self.identity, msgspec.json.format(msgspec.json.encode(info)) + b"\n")


def sealed(info: RunInfo) -> RunInfo:
    """A run's identity as it is stored, sealed as this user's own."""
    config = name_floats(info.config)  # JSON has null for them otherwise
    stored = msgspec.structs.replace(info, directory="", home="", foreign=False, seal="", config=config)
    stored = msgspec.json.decode(_encoded(stored), type=RunInfo, strict=False)
    stored.seal = signature.sign(stored)
    return stored


def in_journal(info: RunInfo) -> dict[str, Any]:
    """A run's identity as the first record of a stream has it: the configuration follows in a record of its own."""
    stored: dict[str, Any] = msgspec.to_builtins(sealed(info))
    stored.pop("config", None)
    return stored


def _encoded(info: RunInfo) -> bytes:
    try:
        content = msgspec.json.encode(info)
        msgspec.json.decode(content, type=RunInfo, strict=False)
    except (TypeError, ValueError, RecursionError) as error:
        pass_on(error)
        content = msgspec.json.encode(sound(info))
    return content


def replace_file(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Replace a file whole: a reader sees the old or the new content, never a part.

    Raises:
        OSError: nothing was changed; no temporary file is left behind.
    """
    failpoint("file.write.before")
    confined.write_whole(path, content, before=lambda: failpoint("file.rename.before"), mode=mode)
    failpoint("file.rename.after")


def read_small(path: Path) -> bytes:
    """A file of our own that is small by nature.

    Raises:
        OSError: it can't be read. ValueError: it is larger than :data:`SMALL_BYTES`.
    """
    with confined.open_file(path) as file:
        content = file.read(min(SMALL_BYTES, os.fstat(file.fileno()).st_size) + 1)  # room for what it has, no more
    if len(content) > SMALL_BYTES:
        raise ValueError(f"it is longer than {SMALL_BYTES:,} bytes")
    return content


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; {} if it is missing, empty or damaged."""
    try:
        value = msgspec.json.decode(read_small(path))
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        pass_on(error)
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
    """A project's name as one path component: what isn't a letter, digit or one of ``-_. `` is %-encoded, and so is a
    dot at the beginning: what looks through directories passes over hidden folders."""
    name = quote(project, safe=" -_.")
    if name.strip(". ") == "":
        name = name.replace(".", "%2E").replace(" ", "%20")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > 200:
        raise UsageError(f"project name of {len(project)} characters is too long for a folder: use at most 200")
    return name


def is_run(path: Path | str) -> bool:
    """Whether a directory is a run's: it has an identity, or a journal from which that can be had."""
    if os.path.exists(f"{path}/run.json"):
        return True
    try:
        entries = os.listdir(f"{path}/streams")
    except OSError as error:
        pass_on(error)
        return False
    if os.path.exists(f"{path}/{DOOMED}"):
        return False
    stems = {entry: entry.removesuffix(SUFFIX).removesuffix(".jsonl") for entry in entries if entry.startswith("rank-")}
    ranks = [entry for entry, stem in stems.items() if StreamName.parse(stem) is not None]
    return any(os.path.getsize(f"{path}/streams/{entry}") for entry in ranks)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def folders(path: Path | str) -> list[str]:
    """The folders in a directory that runs or projects may be, by path; [] where it can't be read.

    A project may have any name (``..%2Fevil``); where the ranks of launches write is none.
    """
    try:
        with os.scandir(path) as entries:
            others = (confined.LAUNCHES, TRASH)
            return sorted(entry.path for entry in entries if entry.name not in others and confined.is_folder(entry))
    except OSError as error:
        pass_on(error)
        return []


def runs_in(project: Path | str) -> list[str]:
    """The directories of runs right in a folder. A hidden one is being deleted: no run's id begins with a dot."""
    return [path for path in folders(project) if _may_be_run(path) and is_run(path)]


def run_paths(root: Path | str, accept: Callable[[str], bool] = is_run) -> list[str]:
    """Paths of the runs below ``runs/``, or of the one run if ``root`` is a run's directory itself.

    Args:
        accept: whether a directory is a run's, where the caller knows more than its files say.
    """
    if accept(str(root)):
        return [str(root)]
    runs: list[str] = []
    projects: list[str] = []
    for path in folders(root):
        (runs if _may_be_run(path) and accept(path) else projects).append(path)
    return runs + [path for project in projects for path in folders(project) if _may_be_run(path) and accept(path)]


def _may_be_run(path: str) -> bool:
    return path[path.rfind(os.sep) + 1] != "."


def find_runs(root: Path) -> Iterator[RunDirectory]:
    """Every run of :func:`run_paths`."""
    return map(RunDirectory, run_paths(root))


def asked_for(references: Iterable[str], root: Path) -> list[str]:
    """The references that a command was given, or ``root`` if there are none.

    Raises:
        UsageError: one of them is empty: an unset variable of a shell, that mustn't mean everything here.
    """
    named = list(references)
    if any(not reference.strip() for reference in named):
        raise UsageError("a run's name is empty (an unset variable?): give an id, a name, latest or a directory")
    return named or [str(root)]
