"""TensorBoard: one event file per session, written without TensorFlow and exact after any restart.

The file's committed length is in the state, so it is cut back to it when it is opened again; the records that
follow give the same bytes, and a TensorBoard that reads along notices nothing. What only the end of a run can
tell (results, hparams, status) is written behind the committed length: a run that goes on after its end loses
that tail, and gets a new one.

Results are columns of HPARAMS beside the settings, and no scalars: TensorBoard would show a chart of one point for each
of them, before training's. What we know of a run lies under one tag (``trackers/run``), one card of its Text page.
"""

from __future__ import annotations

import contextlib
import copy
import glob
import itertools
import math
import mmap
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends.shared.append_file import FileShrunk, OwnedFile, file_name, make_folder, remove, unseen
from trackers.backends.shared.directory import option_directory
from trackers.backends.tensorboard.precheck import TensorboardPrecheck
from trackers.errors import Unavailable
from trackers.formats import vendor_system_names
from trackers.formats.tensorboard_event import FRAME_BYTES, SECOND_KIND, TFRecordFramer, unframe
from trackers.metrics.unasked import is_unasked
from trackers.records import (
    ALL_KINDS,
    SUMMARY_PREFIX,
    Alert,
    ArtifactRecord,
    Config,
    Environment,
    Info,
    Media,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
    final_name,
    flatten,
    merge,
    name_floats,
    nearest_double,
    take_results,
)
from trackers.support import confined
from trackers.support.confined import local
from trackers.tracker import Cursor, RunInfo, State, Status, Verified

FILE_VERSION = "brain.Event:2"
"""First event of each file: https://github.com/tensorflow/tensorboard, backend/event_processing/event_util.py."""

SUFFIX = ".trackers"
"""End of the names of our event files, so that a foreign one in the same directory is left alone."""

STEP_MAX = 2**63 - 1
AGAIN_BYTES = 8 * 1024 * 1024
"""Maximum number of bytes held in memory of what is written again where training goes back."""

ABOUT = "trackers/run"
"""The tag of what isn't training's: configuration, environment, status and so on, each under a heading."""

LINKS = ".tensorboard"
"""The folder of a project with a link to each run's folder, so that TensorBoard lists runs by their names alone."""


class TensorBoardState(msgspec.Struct):
    """The tracker's state, from which a new process continues.

    files: names and committed lengths, oldest first. seq: highest record taken. step: of the last record.
    top: the highest step. rewound: the newest attempt whose rewind was written. attempt: the newest with a START.
    ended: the status in the tail. over: tags whose points lie at a step metric instead of the step. folder: where the
    files lie, below the directory that all runs of the project share, or the run's own. about: name, group, tags and
    notes, as they were changed last. kinds: of the data below tags that hold no scalars, and of which name
    where they have a suffix.
    """

    files: dict[str, int] = {}
    folder: str = ""
    about: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    seq: int = 0
    step: int = 0
    top: int = -1
    rewound: int = 0
    attempt: int = 0
    ended: str = ""
    over: set[str] = set()
    kinds: dict[str, str] = {}
    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}


class TensorboardTracker(TensorboardPrecheck):
    """Writes TensorBoard event files to ``TENSORBOARD_DIR/<project>/<name>``, or the run's ``tensorboard/<name>``.

    TensorBoard names a run by its folder, so the folder has the run's name: the one that it began with, for good, and
    its id too where another run has that name. The folders of a project's runs have links in ``LINKS``.
    Values are float32, as TensorBoard holds them. A metric without a step gets the last one.
    """

    machine = "apart"
    accepts = ALL_KINDS
    single_axis = True

    @staticmethod
    def preload() -> None:
        """Import what deliveries need (:class:`trackers.tracker.Tracker`)."""
        from tensorboard.compat.proto import event_pb2  # noqa: F401

        from trackers.backends.tensorboard import summary_protos  # noqa: F401

    @staticmethod
    def own_files(info: RunInfo, state: State) -> list[Path]:
        """What of the run lies outside of its directory (:class:`trackers.tracker.Tracker`)."""
        _, parent, own = _directories(info)
        if option_directory(info, "TENSORBOARD_DIR") is None:
            return []
        folder = _folder_there(parent, own, info, shared=True)
        return [parent / folder] if folder else []

    def __init__(self) -> None:
        self._row = ""
        """The run's name in HPARAMS, which no other run of the project has."""
        self._tags: dict[tuple[str, str], str] = {}
        self._kinds: dict[str, str] = {}
        self._joined: dict[str, str] = {}
        self._file: OwnedFile | None = None
        self._began = False

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Find the event files as they were committed; a damaged one makes the run be written anew."""
        from tensorboard.compat.proto import event_pb2

        from trackers.backends.tensorboard import summary_protos

        self._info, self._state = info, state
        self._event, self._protos = event_pb2.Event, summary_protos
        self._session_log = event_pb2.SessionLog
        self._frame = TFRecordFramer().frame
        self._root = option_directory(info, "TENSORBOARD_DIR") or Path(info.directory)
        self._committed = msgspec.convert(dict(state).get("marks", {}), TensorBoardState)
        logdir, parent, own = _directories(info)
        known = self._committed.folder
        known = known if confined.is_plain_name(known) else ""
        shared = option_directory(info, "TENSORBOARD_DIR") is not None
        there = known or _folder_there(parent, own, info, shared=shared)
        self._folder = there or (_new_folder(parent, own, info, self._root) if shared else own)
        self._directory = parent / local(self._folder)
        answer = None
        try:
            for name, length in self._committed.files.items():
                if not (confined.is_plain_name(name) and name.endswith(SUFFIX)):
                    raise FileShrunk(f"{name} is no event file of ours")
                if (self._directory / name).stat().st_size < length:
                    raise FileShrunk(name)
        except (FileShrunk, FileNotFoundError):
            self._committed, answer = TensorBoardState(), Cursor(0)
        self._committed.folder = self._folder
        # Of scalars, which may be many, the tags are looked up in the files, when they matter first.
        self._kinds, self._resumed = dict(self._committed.kinds), bool(self._committed.files)
        if not self._committed.files:
            self._begin()
        self._remove_uncommitted()
        shown = self._folder
        if not shared:
            logdir, shown = _linked(logdir, self._directory, self._folder, info)
        self._row = info.name if shown == file_name(info.name) else shown
        state["url"] = f"tensorboard --logdir {shlex.quote(str(logdir))}"
        return answer

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Append one event for each record, all of the batch or nothing."""
        fresh = unseen(records, self._committed.seq)
        if not fresh:
            return
        file = self._begin()
        draft = copy.copy(self._committed)
        data = bytearray()
        for record in fresh:
            event = self._write_record(record, draft)
            if event is not None:
                data += self._frame(event.SerializeToString())
            if isinstance(record, Start) and record.from_step is not None and event is not None and draft.over:
                file.append(bytes(data))
                data.clear()
                self._write_again(file, record)
            draft.seq = max(draft.seq, record.seq)
        file.append(bytes(data))
        self._commit(draft)

    def _write_again(self, file: OwnedFile, start: Start) -> None:
        """Write once more what still counts of that which a session's START makes TensorBoard forget: it goes by the
        step alone, and of metrics over a step metric other points count than of those at the step.

        Args:
            start: says the last step of training that counts.
        """
        marks = [(at, event.step) for at, event in enumerate(self._events()) if event.HasField("session_log")]
        if not marks:  # its file is damaged
            return
        *earlier, (end, begin) = marks
        data = bytearray()
        for at, event in enumerate(itertools.islice(self._events(), end)):
            if not begin <= event.step < min((step for place, step in earlier if place > at), default=math.inf):
                continue
            kept = [one for one in event.summary.value if int(one.node_name or event.step) <= (start.from_step or 0)]
            if kept:
                again = self._event(wall_time=event.wall_time, step=event.step)
                again.summary.value.extend(kept)
                data += self._frame(again.SerializeToString())
            if len(data) >= AGAIN_BYTES:
                file.append(bytes(data))
                data.clear()
        file.append(bytes(data))

    def _events(self) -> Iterator[Any]:
        """The run's events, as far as they are written; a damaged one is the last (:meth:`verify` finds it)."""
        for name in self._committed.files:
            with (
                contextlib.suppress(ValueError),
                confined.open_file(self._directory / name, root=self._root) as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
            ):
                for data in unframe(content):
                    yield self._event.FromString(data)

    def verify(self) -> Verified:
        """Read the event files back against their own checksums; see :class:`trackers.tracker.Tracker`."""
        bad, size = [], 0
        for name, length in self._committed.files.items():
            path = self._directory / name
            try:
                with (
                    confined.open_file(path, root=self._root) as file,
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
                ):
                    size += len(content)
                    whole = sum(len(data) + FRAME_BYTES for data in unframe(content))
                    problem = "" if whole == len(content) >= length else f"{whole:,} bytes of whole records"
            except (OSError, ValueError) as error:  # ValueError: an empty file, too
                problem = str(error)
            if problem:
                bad.append(f"{path} ({problem})")
                with contextlib.suppress(OSError):
                    confined.remove(path, root=self._root)
        files = "1 file" if len(self._committed.files) == 1 else f"{len(self._committed.files)} files"
        return Verified(f"{files}, {size:,} bytes", bad, Cursor(0) if bad else None)

    def close(self, status: Status) -> None:
        """Write results, hparams and the status; nothing for a run that goes on, or that ended so before."""
        if status.name != "running" and (self._began or self._committed.ended != status.name):
            file = self._begin()
            length = file.length
            file.append(self._frame(self._tail(status).SerializeToString()))
            draft = copy.copy(self._committed)
            draft.files = {**draft.files, file.path.name: length}
            draft.ended = status.name
            self._committed = draft
            self._state["marks"] = _state(draft)
        if self._file is not None:
            self._file.check()
            self._file.close()
            self._file = None
        self._began = False

    def _begin(self) -> OwnedFile:
        """The file that takes the next event: cut back to its committed length, or new after an end."""
        if self._file is not None:
            return self._file
        names = list(self._committed.files)
        try:
            if self._committed.ended:
                # A loader that has read the tail goes on with the next file, not with other bytes in this one.
                self._owned(names[-1]).open(self._committed.files[names[-1]]).close()
                names.append(f"{names[0].removesuffix(f'0000{SUFFIX}')}{len(names):04d}{SUFFIX}")
            elif not names:
                host = file_name(self._info.host, "host", 60)
                begun = f"events.out.tfevents.{int(self._info.created):010d}.{host}.{self._info.pid}"
                first = f"{begun}.{file_name(self._info.id)}.0000{SUFFIX}"
                shared = option_directory(self._info, "TENSORBOARD_DIR") is not None
                for stale in self._directory.glob(f"events.out.tfevents.*{SUFFIX}"):
                    if _is_ours(stale.name, self._info, shared=shared):
                        remove(stale)  # its state is lost: what it has is written again
                names.append(first)
            file = self._owned(names[-1]).open(self._committed.files.get(names[-1], 0))
        except FileShrunk as error:
            # Only while running: open found it whole. The next open starts over.
            raise Unavailable(f"{error}; the event files are written anew at the next start") from error
        if file.length == 0:
            header = self._event(wall_time=self._info.created, file_version=FILE_VERSION)
            file.append(self._frame(header.SerializeToString()))
        self._file, self._began = file, True
        draft = copy.copy(self._committed)
        draft.ended = ""
        self._commit(draft)
        return file

    def _remove_uncommitted(self) -> None:
        """Remove event files of this run that the state doesn't name: they hold what is going to be written again."""
        first = next(iter(self._committed.files)).removesuffix(f"0000{SUFFIX}")
        for path in self._directory.glob(f"{glob.escape(first)}*{SUFFIX}"):
            if path.name not in self._committed.files:
                with contextlib.suppress(OSError):
                    confined.remove(path, root=self._root)

    def _owned(self, name: str) -> OwnedFile:
        return OwnedFile(self._directory / name, self._root)

    def _commit(self, draft: TensorBoardState) -> None:
        assert self._file is not None
        draft.files = {**draft.files, self._file.path.name: self._file.length}
        draft.kinds = {tag: kind for tag, kind in self._kinds.items() if kind != "scalar"}
        self._committed = draft
        self._state["marks"] = _state(draft)

    def _write_record(self, record: Record, draft: TensorBoardState) -> Any:
        """The event for one record, or None; ``draft`` is what the state becomes."""
        if isinstance(record, Start):
            return self._session_start(record, draft)
        if record.step is not None:
            draft.step = min(record.step, STEP_MAX)
            draft.top = max(draft.top, draft.step)
        event = self._event(wall_time=record.time, step=draft.step)
        match record:
            case Metrics():
                self._scalars(event.summary, record, draft)
            case Summary():
                draft.summary = take_results(dict(draft.summary), record, final_name)
            case Config():
                draft.config = merge(copy.deepcopy(draft.config), record.values, record.whole)
                self._add_about(event.summary, configuration=draft.config)
            case Text():
                for name, text in record.values.items():
                    event.summary.value.append(self._protos.text(self._tag(name, "text"), text))
            case Media():
                event.summary.value.extend(self._protos.media(self._tag(record.name, record.type), record, self._info))
            case ArtifactRecord():
                self._add_about(event.summary, artifact=self._protos.artifact(record))
            case Alert():
                self._add_about(event.summary, alert=f"**{record.level}** {record.title}\n\n{record.text}")
            case Info():
                draft.about = {**draft.about, **record.changes()}
                self._add_about(event.summary, info=record.changes())
            case Environment():
                draft.environment = merge(copy.deepcopy(draft.environment), record.values)
                self._add_about(event.summary, environment=record.values)
        for value in event.summary.value if self._joined else ():
            if value.tag in self._joined:  # TensorBoard shows the name where the plugin has a place for it
                value.metadata.display_name = self._joined[value.tag]
                value.metadata.summary_description = SECOND_KIND
        for value in event.summary.value if record.trained is not None else ():
            value.node_name = str(record.trained)  # tells what counts at one place of the step metric
            draft.over = draft.over if value.tag in draft.over else draft.over | {value.tag}
        return event if event.summary.value else None

    def _session_start(self, record: Start, draft: TensorBoardState) -> Any:
        """A session's START: Python's loader forgets points at and above its step, if the first session has one too.

        One for each attempt, none for the streams beside training's: they begin when something may be there already.
        """
        step = draft.top + 1
        rewinds = record.from_step is not None and record.attempt > draft.rewound
        if record.attempt <= draft.attempt and not rewinds:
            return None
        draft.attempt = max(draft.attempt, record.attempt)
        if record.from_step is not None and rewinds:
            draft.rewound = record.attempt
            axis = record.from_step if record.axis is None else record.axis
            lasts = [record.axes.get(tag, axis) for tag in draft.over]
            step = min(step, record.from_step + 1, *lasts)
            draft.step, draft.top = min(draft.step, record.from_step), min(draft.top, max([record.from_step, *lasts]))
        event = self._event(wall_time=record.time, step=step)
        event.session_log.status = self._session_log.START
        return event

    def _scalars(self, summary: Any, record: Metrics, draft: TensorBoardState) -> None:
        add = summary.value.add
        for name, value in record.values.items():
            if name.startswith(SUMMARY_PREFIX):
                draft.summary = {**draft.summary, name: value}
                continue
            if record.step is None and vendor_system_names.is_machine(record, name):
                (group,) = vendor_system_names.grouped({name: value}, vendor_system_names.LAST)
                metadata = {"summary_description": vendor_system_names.SAMPLE}
                add(tag=self._tag(group, "scalar"), simple_value=nearest_double(value), metadata=metadata)
                continue
            tag = self._tags.get((name, "scalar")) or self._tag(name, "scalar")
            add(tag=tag, simple_value=nearest_double(value))

    def _tag(self, name: str, kind: str) -> str:
        """The tag of a name. TensorBoard shows one kind of data under a tag, so a second kind gets a suffix."""
        tag = self._tags.get((name, kind))
        if tag is None:
            tag = name.encode("utf-8", "replace").decode() or "(no name)"  # protobuf takes no lone surrogate
            if self._resumed and kind != "scalar" and tag not in self._kinds:
                self._resumed = False
                values = itertools.chain.from_iterable(event.summary.value for event in self._events())
                self._kinds = {value.tag: "scalar" for value in values if value.HasField("simple_value")} | self._kinds
            own, holds = tag, kind
            while self._kinds.setdefault(tag, holds) != holds:
                tag, holds = f"{tag}/{kind}", f"{kind} of {own}"
            if tag != own:
                self._joined[tag] = own
            self._tags[name, kind] = tag
        return tag

    def _add_about(self, summary: Any, **sections: Any) -> None:
        """Add what is known of the run: text as it is, all else as JSON."""
        summary.value.append(self._protos.sections(self._tag(ABOUT, "text"), sections))

    def _tail(self, status: Status) -> Any:
        event = self._event(wall_time=status.time or self._info.created, step=self._committed.step)
        code = "" if status.exit_code is None else f" (exit code {status.exit_code})"
        reason = f": {status.reason}" if status.reason else ""
        about, results = dict(self._committed.about), self._committed.summary
        changed = about.get("group")
        group = (self._info.group if changed is None else changed) or ""
        begun = {"job_type": self._info.job_type, "tags": list(self._info.tags), "notes": self._info.notes}
        told = {name: value for name, value in {**begun, **about, "group": group}.items() if value}
        sections = {"results": results, "info": told, "configuration": self._committed.config,
                    "environment": self._committed.environment}  # fmt: skip
        self._add_about(
            event.summary, status=f"{status.name}{code}{reason}", **{n: part for n, part in sections.items() if part}
        )
        shown = {self._protos.FIRST + name: value for name, value in results.items() if not is_unasked(name)}
        hparams = {**dict(flatten(shown)), **dict(flatten(self._committed.config))}
        event.summary.value.extend(self._protos.hparam_session(self._row, hparams, self._info.created, status, group))
        return event


def _directories(info: RunInfo) -> tuple[Path, Path, str]:
    """What to give TensorBoard as log directory; where the folders of runs lie; and the name of this run's."""
    chosen = option_directory(info, "TENSORBOARD_DIR")
    if chosen is None:
        return info.path().parent, info.path("tensorboard"), file_name(info.name)
    parent = chosen / file_name(info.project, "project")
    return parent, parent, file_name(info.name)


def _folder_there(parent: Path, own: str, info: RunInfo, *, shared: bool) -> str:
    """The folder in which the run's event files lie already, whatever its name was then; "" where there is none.

    Args:
        shared: other runs have folders beside this one's.
    """
    run_id = file_name(info.id)
    try:
        inside = (path for path in parent.iterdir() if path.is_dir() and not path.is_symlink())
        known = sorted(path.name for path in inside)
    except OSError:
        return ""
    for folder in dict.fromkeys([own, f"{own}-{run_id}", *known]):
        with contextlib.suppress(OSError):
            if any(_is_ours(name, info, shared=shared) for name in os.listdir(parent / folder)):
                return folder
    return ""


def _is_ours(name: str, info: RunInfo, *, shared: bool) -> bool:
    """Whether a file of that name is one of the run's event files.

    Args:
        shared: other runs have folders beside this one's, or may have files in it.
    """
    if not (name.startswith("events.out.tfevents.") and name.endswith(SUFFIX)):
        return False
    own = rf"\.\d+\.{re.escape(file_name(info.id))}\.\d{{4,}}{re.escape(SUFFIX)}$"
    return not shared or re.search(own, name) is not None


def _new_folder(parent: Path, own: str, info: RunInfo, root: Path) -> str:
    """A folder for a run beside others: of two with one name, the second's has its id too."""
    try:
        make_folder(parent, root)
        os.mkdir(parent / own)
    except FileExistsError:
        return f"{own}-{file_name(info.id)}"
    except OSError:  # said when the file is opened
        pass
    return own


def _linked(project: Path, directory: Path, folder: str, info: RunInfo) -> tuple[Path, str]:
    """The folder with a link to each of the project's runs, by its name, and this run's name there; where none can be
    made, the project's own folder."""
    links = project / LINKS
    try:
        confined.make_folder(links, root=project)
        target = os.path.relpath(directory, links)
        for stale in links.iterdir():
            if stale.is_symlink() and not stale.exists():  # of a run that was removed
                with contextlib.suppress(FileNotFoundError):
                    confined.remove(stale, root=project)
        for link in (links / folder, links / f"{folder}-{file_name(info.id)}"):
            with contextlib.suppress(FileExistsError):
                confined.link(link, target, root=project)
            if link.is_symlink() and os.readlink(link) == target:
                return links, link.name
    except OSError:  # a filesystem without links, or somebody's link in the folder's place
        pass
    return project, f"{folder}-{file_name(info.id)}"


def _state(state: TensorBoardState) -> Any:
    return name_floats(msgspec.to_builtins(state))
