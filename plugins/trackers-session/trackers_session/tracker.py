"""Session logs: ``training_YYYYmmdd_HHMMSS/`` with three logs and two summaries, however the run ends.

One delivery writes them for all ranks, so there is one session id: the run's start time. The logs grow line by line;
the summaries are at most 10 s or 10 % behind while the run goes on, and complete when it has ended or was killed.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends.shared.append_file import DIGESTS, FileShrunk, digests, take_with_rewinds, unseen, verified
from trackers.backends.shared.console_log import STATE as CONSOLE
from trackers.backends.shared.console_log import ConsoleLog
from trackers.backends.shared.directory import option_directory
from trackers.benchmark.speed import Meter, begun_on, starts
from trackers.records import (
    Alert,
    ArtifactRecord,
    Config,
    Console,
    Environment,
    Finish,
    Info,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
    name_floats,
)
from trackers.support import confined
from trackers.support.confined import local
from trackers.tracker import Cursor, RunInfo, State, Status, Verified
from trackers_session import facts, files
from trackers_session.files import TRAINING, SessionFiles
from trackers_session.fold import HEAD_S, SessionFold, SessionState, logged
from trackers_session.precheck import SessionPrecheck, settings

SAVE_S = 10.0
GROWTH = 1.1
"""Minimum interval between two saves of the summary during a run, in seconds, and its growth factor: each save writes
all of it."""
SMALL_BYTES = 1 << 20
"""Below this size it is saved each time."""
IDLE_S = 2.0
"""Time after the last record of a step before its line is written, in seconds."""


class SessionLogState(msgspec.Struct):
    """The tracker's state. logs, lists, generation: of the files. nccl: what was read, by file."""

    name: str = ""
    logs: dict[str, int] = {}
    lists: dict[str, int] = {}
    generation: int = 0
    nccl: dict[str, int] = {}
    rewound: int = 0
    book: SessionState = msgspec.field(default_factory=SessionState)


class SessionTracker(SessionPrecheck):
    """Writes ``SESSION_DIR/training_YYYYmmdd_HHMMSS/``; where training's directory isn't there, to the run's own."""

    accepts = frozenset(
        {Alert, ArtifactRecord, Config, Console, Environment, Finish, Info, Metrics, Start, Summary, Text}
    )
    clock = staticmethod(time.monotonic)

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Find the session's files as they were committed, or reserve a new session's directory."""
        self._info, self._state = info, state
        self._settings = settings(info)
        self._files = SessionFiles(_root(info), info.id, info.path("session"), digests(state))
        self._kept = msgspec.convert(dict(state).get("session", {}), SessionLogState, strict=False)
        self._saved_at, self._saved_bytes, self._changed = float("-inf"), 0, False
        self._quiet_since = self.clock()
        self._nccl_folders = [info.path(files.NCCL_FOLDER)]
        for attempt in info.attempts:
            launch = confined.launch_folder(info.path(), str(attempt.get("launch") or ""))
            if launch is not None:
                self._nccl_folders.append(launch / files.NCCL_FOLDER)
        if not confined.is_plain_name(self._kept.name):
            self._kept = SessionLogState()
        known = bool(self._kept.name)
        answer = None
        self._files.name = self._kept.name
        if not known or self._files.is_others():
            answer = Cursor(0) if known else None
            self._kept = SessionLogState(name=self._files.reserve(info.created, self._first))
            self._files.open({}, {}, 0)
            self._open_console(anew=True)
            self._store()
            state["url"] = str(self._files.directory)
            if answer is None:
                state.save()
            return answer
        try:
            self._files.open(self._kept.logs, self._kept.lists, self._kept.generation)
        except FileShrunk:
            answer = Cursor(0)
            self._kept = SessionLogState(name=self._kept.name)
            self._files.open({}, {}, 0)
            self._store()
        self._open_console(anew=answer is not None)
        if not self._files.path("summary.json").exists():
            self._save(None)
        state["url"] = str(self._files.directory)
        return answer

    def _open_console(self, *, anew: bool) -> None:
        if anew:
            self._state.pop(CONSOLE, None)
        self._console = ConsoleLog(self._files.path("console.log"), _root(self._info), self._state)

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Take a batch, all of it or nothing."""
        take_with_rewinds(unseen(records, self._kept.book.seq), self._kept.rewound, self._take, self._rewind)
        for record in records:
            if isinstance(record, Console):
                self._console.add(record)
        self._gather()
        self._save_if_due()

    def verify(self) -> Verified:
        """Read all files back; see :class:`trackers.tracker.Tracker`."""
        return verified(self._files.paths(), self._files.digests)

    def tick(self) -> None:
        """Write what waits in vain for more, and save the summary when it is due."""
        quiet_s = self.clock() - self._quiet_since
        book = self._kept.book
        if quiet_s >= IDLE_S and book.seq and (book.steps.rows or book.evaluation is not None):
            fold = self._fold()
            fold.flush()
            self._commit(fold)
        if quiet_s >= HEAD_S and book.seq and book.place.waiting:
            fold = self._fold()
            fold.release()
            self._commit(fold)
        self._gather()
        self._save_if_due()

    def close(self, status: Status) -> None:
        """Write how the run ended, and both summaries as they are now."""
        self._gather(last=status.name != "running")
        fold = self._fold()
        fold.flush()
        fold.release()
        fold.end(status.name, status.reason, status.exit_code, status.time or fold.book.totals.ended)
        self._commit(fold)
        self._save(status)
        if status.name != "running":
            files.collect_nccl(self._nccl_folders, self._nccl_folders[0])
        self._files.close()
        self._console.close()

    def _fold(self) -> SessionFold:
        return SessionFold(self._kept.name, self._info, self._settings, copy.deepcopy(self._kept.book))

    def _take(self, batch: Sequence[Record]) -> None:
        if not batch:
            return
        fold = self._fold()
        for record in batch:
            fold.take(record)
            fold.book.seq = max(fold.book.seq, record.seq)
        self._commit(fold)
        self._quiet_since = self.clock()

    def _commit(self, fold: SessionFold) -> None:
        self._files.append({log: "".join(texts) for log, texts in fold.pages.texts.items()}, fold.items)
        self._kept.book = fold.book
        self._store()

    def _store(self) -> None:
        kept = self._kept
        kept.logs, kept.lists = self._files.lengths(), self._files.lists.lengths()
        self._state["session"] = name_floats(msgspec.to_builtins(kept))
        self._state[DIGESTS] = dict(self._files.digests)
        self._changed = True

    def _rewind(self, step: int, attempt: int) -> None:
        """Drop the metrics that an earlier attempt logged above ``step``; what was transferred and seen stays."""
        loss: Any = None
        book = self._kept.book
        meter, begun = Meter(), begun_on(book.begun, book.worlds)
        coming = next(begun)

        def is_kept(name: str, item: dict[str, Any]) -> bool:
            nonlocal loss, coming
            keep = name != TRAINING or item["step"] is None or item["step"] <= step
            if keep and item.get("loss") is not None:
                loss = item["loss"]
            if keep and name == TRAINING and item["step"] is not None:
                time = datetime.fromisoformat(item["timestamp"]).timestamp()
                while time >= coming[1]:
                    meter.start(coming[0], coming[2])
                    coming = next(begun)
                meter.take(item["step"], time, logged(item, book.totals.names))
            return keep

        _, self._kept.generation = self._files.lists.rewrite(is_kept)
        totals, book.meter = book.totals, meter
        totals.loss, totals.top = loss, None if totals.top is None else min(totals.top, step)
        self._kept.rewound = attempt
        self._store()
        self._saved_bytes = 0

    def _gather(self, last: bool = False) -> None:
        """Take over what NCCL wrote meanwhile."""
        offsets = dict(self._kept.nccl)
        while nccl_lines := files.gather_nccl(self._nccl_folders, offsets, last=last):
            fold = self._fold()
            fold.nccl(nccl_lines)
            self._kept.nccl = dict(offsets)
            self._commit(fold)

    def _save_if_due(self) -> None:
        if not self._changed or self.clock() - self._saved_at < SAVE_S:
            return
        size = sum(self._kept.lists.values())
        if size >= self._saved_bytes * GROWTH or size < SMALL_BYTES:
            self._save(None)

    def _save(self, status: Status | None) -> None:
        head = self._head(self._kept.name, status)
        book = self._kept.book
        text = "\n".join(facts.summary_text(head, book.totals, book.speed(), book.snapshots)) + "\n"
        self._files.save(head, text)
        self._state[DIGESTS] = dict(self._files.digests)
        self._saved_at, self._saved_bytes = self.clock(), sum(self._kept.lists.values())
        self._changed = False

    def _head(self, name: str, status: Status | None) -> Mapping[str, Any]:
        book = self._kept.book
        head = facts.session_summary(
            name, self._info, book.facts, book.totals, book.speed().batch, book.attributes, status
        )
        return {**head, **starts(book.begun, book.worlds)}

    def _first(self, name: str) -> Iterable[bytes]:
        self._files.lists.open({}, 0)
        return self._files.pieces(self._head(name, None))


def _root(info: RunInfo) -> Path:
    """Where sessions lie. Relative to training's directory, unless this is another machine, which hasn't that."""
    chosen = option_directory(info, "SESSION_DIR")
    named = Path(str(info.option("SESSION_DIR", "."))).expanduser()
    if chosen is None:
        return Path(info.directory)
    if not named.is_absolute() and not Path(local(info.cwd) or ".").is_dir():
        return info.path(*named.parts)
    return chosen
