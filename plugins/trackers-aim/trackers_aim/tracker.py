"""Aim: a store on disk, written by Aim's own client.

Aim keeps one value of a metric at a step, under a key that is made of both: what comes again replaces itself. So a run
that is delivered once more is there once. Its hash is made from the run's identity, so that a process that lost its
state finds it. Samples without a step lie at the number of their record. A rewind removes what lies above it.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import logging
import math
import shlex
import sqlite3
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends.shared import media_files
from trackers.backends.shared.append_file import make_folder, take_with_rewinds, unavailable, unseen
from trackers.backends.shared.directory import option_directory
from trackers.backends.shared.kept_file import keep
from trackers.errors import Unavailable
from trackers.formats import vendor_system_names
from trackers.metrics.unasked import parted
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
    Summary,
    Text,
    merge,
    name_floats,
    plain_name,
    take_results,
)
from trackers.support import confined
from trackers.tracker import Cursor, RunInfo, State, Status
from trackers_aim import values
from trackers_aim.precheck import AimPrecheck

HASH_CHARS = 24
"""Length of a run's hash: aim/sdk/utils.py, generate_run_hash."""
LOG = "__log_records"
FINAL, ABOUT, PARAMETERS = "final", "trackers", "__system_params"
"""Attributes of the run: its results, what Aim has no field for (energy and tokens, too), and the environment."""


class AimState(msgspec.Struct):
    """The tracker's state. seq: highest record taken. rewound: the newest attempt whose rewind was done. kinds: of a
    name: "number", or of media. config, results, environment: so far. begun: whether the store has the run."""

    seq: int = 0
    rewound: int = 0
    begun: bool = False
    kinds: dict[str, str] = {}
    config: dict[str, Any] = {}
    results: dict[str, Any] = {}
    environment: dict[str, Any] = {}


class AimTracker(AimPrecheck):
    """Writes to the store ``AIM_DIR/.aim``, or to ``aim/.aim`` in the run's directory."""

    machine = "apart"
    accepts = ALL_KINDS

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Make the run, or open it again; one that the store lost is delivered anew.

        Raises:
            Unavailable: the store can't be opened.
        """
        self._info, self._state = info, state
        chosen = option_directory(info, "AIM_DIR")
        self._root = info.path("aim") if chosen is None else chosen
        digest = hashlib.sha256(f"{info.project}\0{info.id}\0{info.created}".encode()).hexdigest()
        self._hash = digest[:HASH_CHARS]
        self._committed = msgspec.convert(dict(state).get("marks", {}), AimState)
        state["native_id"] = self._hash
        state["url"] = f"aim up --repo {shlex.quote(str(self._root))}"
        chunks = self._root / ".aim" / "meta" / "chunks" / self._hash
        lost = self._committed.begun and not chunks.is_dir()
        if lost:
            self._committed = AimState()
        with self._vendor():
            make_folder(self._root / ".aim", Path(info.directory) if chosen is None else self._root)
            self._run = self._open_run(chunks)
            self._write_attributes(info)
        self._committed.begun = True
        return Cursor(0) if lost else None

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Write the batch; a part of it that was written before an error is written again."""
        with self._vendor():
            take_with_rewinds(unseen(records, self._committed.seq), self._committed.rewound, self._take, self._rewind)
        self._state["marks"] = name_floats(msgspec.to_builtins(self._committed))

    def close(self, status: Status) -> None:
        """Close the run; one that has ended gets its end and its status."""
        with self._vendor():
            ended = status.name != "running"
            self._about(status=status.name, exit_code=status.exit_code, reason=status.reason)
            if ended:
                self._run.meta_run_tree["end_time"] = status.time or self._info.created
            self._run._resources.set_run_end_time = lambda: None  # the client would write its own clock's
            self._run.close()

    def _open_run(self, chunks: Path) -> Any:
        import aim
        from aim.sdk.errors import MissingRunError

        made = (self._root / ".aim" / "VERSION").is_file()  # to make a store locks its index, which `aim up` holds
        repo = aim.Repo.from_path(str(self._root), init=not made)
        chunks.mkdir(parents=True, exist_ok=True)
        logging.getLogger("aim.sdk.lock_manager").setLevel(logging.ERROR)  # it warns of the lock that a lease guards
        created = datetime.fromtimestamp(self._info.created, timezone.utc).replace(tzinfo=None)
        repo.request_props(self._hash, False, created)
        for _ in range(5):
            with contextlib.suppress(MissingRunError):  # the client remembers for half a second which runs there are
                return aim.Run(
                    run_hash=self._hash,
                    repo=repo,
                    experiment=self._info.project,
                    force_resume=True,
                    system_tracking_interval=None,
                    log_system_params=False,
                    capture_terminal_logs=False,
                )
            time.sleep(0.2)
        raise Unavailable(f"Aim doesn't find its run {chunks}; it is tried again")

    @contextlib.contextmanager
    def _vendor(self) -> Iterator[None]:
        """Turn the errors of the client's databases into ours."""
        from aimrocks.errors import RocksIOError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except OSError as error:
            raise unavailable("write", self._root, error) from error
        except (SQLAlchemyError, RocksIOError, sqlite3.Error, RuntimeError) as error:
            raise Unavailable(f"Aim's store in {self._root}: {error}; it is tried again") from error

    def _take(self, batch: Sequence[Record]) -> None:
        draft = msgspec.structs.replace(
            self._committed, kinds=dict(self._committed.kinds), results=dict(self._committed.results)
        )
        if any(isinstance(record, Config) for record in batch):
            draft.config = copy.deepcopy(draft.config)
        for record in batch:
            self._write(record, draft)
            draft.seq = max(draft.seq, record.seq)
        if draft.config != self._committed.config:
            for name, value in values.to_stored(draft.config).items():
                self._attribute(name, value)
        if draft.results != self._committed.results:
            asked, unasked = parted(draft.results)
            self._attribute(FINAL, values.to_stored(asked))
            if unasked or parted(self._committed.results)[1]:
                self._about(results=values.to_stored(unasked))
        self._committed = draft

    def _write(self, record: Record, draft: AimState) -> None:
        import aim

        if isinstance(record, Metrics):
            for name, value in record.values.items():
                if name.startswith(SUMMARY_PREFIX):
                    draft.results[plain_name(name)] = value
                elif vendor_system_names.is_machine(record, name):
                    own, context = values.machine(name)
                    self._track(record, own, values.number(value), context)
                else:
                    self._track(record, _unambiguous_name(name, "number", draft), values.number(value))
        elif isinstance(record, Text):
            for name, text in record.values.items():
                self._track(record, _unambiguous_name(name, "text", draft), aim.Text(text))
        elif isinstance(record, Media):
            made = values.medium(record, self._info)
            if made is not None:
                first = made[0] if isinstance(made, list) else made
                self._track(record, _unambiguous_name(record.name, type(first).__name__.lower(), draft), made)
        elif isinstance(record, Config):
            merge(draft.config, record.values, record.whole)
        elif isinstance(record, Summary):
            take_results(draft.results, record)
        elif isinstance(record, ArtifactRecord):
            self._artifact(record)
        elif isinstance(record, Alert):
            from aim.sdk.logging import LogRecord

            text = f"{record.title}: {record.text}" if record.text else record.title
            level = values.LEVELS.get(record.level, values.LEVELS["INFO"])
            line = LogRecord(text, level, timestamp=record.time, logger_info=("", 0))
            self._track(record, LOG, line, at=record.seq)
        elif isinstance(record, Environment):
            draft.environment = merge(copy.deepcopy(draft.environment), record.values)
            self._attribute(PARAMETERS, values.to_stored(draft.environment))
        elif isinstance(record, Info):
            self._describe(record.name, record.tags, record.notes)
            if record.group is not None:
                self._about(group=record.group)

    def _track(
        self, record: Record, name: str, value: Any, context: dict[str, Any] | None = None, at: int | None = None
    ) -> None:
        """Put a value at its step and time; ``Run.track`` knows only the clock's."""
        step = at if at is not None else record.seq if record.step is None else record.step
        self._run._tracker._track(value, record.time, name, step, None, context=context or {})

    def _attribute(self, name: str, value: Any) -> None:
        """Set an attribute of the run: ``Run.__setitem__``, which would hide an error."""
        self._run.meta_run_attrs_tree[name or "_"] = value
        self._run.meta_attrs_tree[name or "_"] = value

    def _about(self, **fields: Any) -> None:
        for name, value in fields.items():
            self._run.meta_run_attrs_tree[ABOUT, name] = value
            self._run.meta_attrs_tree[ABOUT, name] = value

    def _write_attributes(self, info: RunInfo) -> None:
        """Write the attributes that have changed since the run was opened last; records have changed the others."""
        now = {name: getattr(info, name) for name in ("name", "tags", "notes", "group", "job_type")}
        before = dict(self._state.get("told", {})) if self._committed.begun else {}
        new = {name: value for name, value in now.items() if value and before.get(name) != value}
        self._describe(new.get("name"), new.get("tags"), new.get("notes"))
        self._about(id=info.id, **{name: new[name] for name in ("group", "job_type") if name in new})
        self._state["told"] = now

    def _describe(self, name: str | None, tags: list[str] | None, notes: str | None) -> None:
        run = self._run
        if name is not None:
            run.name = name
        if notes is not None:
            run.description = notes
        if tags is not None:
            for tag in set(run.tags) - set(tags):
                run.remove_tag(tag)
            for tag in tags:
                if tag not in run.tags:
                    run.add_tag(tag)

    def _artifact(self, record: ArtifactRecord) -> None:
        """Keep an artifact's files below the store's ``artifacts``, and name them to the run."""
        from aim.sdk.objects.artifact import Artifact

        folder = self._root / "artifacts" / self._hash
        for file in record.files:
            parts = confined.parts(file.path) or ["file"]
            if file.file:
                local = media_files.path(self._info, file)
                path = folder.joinpath(*confined.parts(record.name), *parts)
                keep(self._info, local, path, self._root, self._root / ".artifact.tmp")
                uri = f"file://{folder}"
            else:
                uri, path = file.uri, Path(parts[-1])
            name = "/".join((*confined.parts(record.name), *parts))
            about = {field: getattr(record, field) for field in ("name", "type", "time", "aliases", "description")}
            about["name"] = "/".join(confined.parts(record.name))
            made = Artifact(
                str(path), uri=uri, name=name, **{ABOUT: values.to_stored({**about, "metadata": record.metadata})}
            )
            if not file.file:
                made.storage["uri"] = file.uri
            self._run.meta_run_tree.subtree("artifacts")[name] = made

    def _rewind(self, last_step: int, attempt: int) -> None:
        """Remove what lies above a step; samples of the machine and lines of the log have none."""
        run = self._run
        for context, names in run.meta_run_tree.get("traces", {}).items():
            for name, about in names.items():
                if not name.startswith(values.SYSTEM) and name != LOG:
                    self._truncate_series(context, name, about.get("version", 1), last_step)
        run._tracker.sequence_infos.clear()
        run._tracker._preload_sequence_infos()
        self._committed = msgspec.structs.replace(self._committed, rewound=attempt)

    def _truncate_series(self, context: int, name: str, version: int, last_step: int) -> None:
        """Remove a series' values above a step, and correct what the run says of the series.

        Args:
            version: 2 for numbers, whose keys are hashes of their steps; 1 for objects, whose keys are the steps.
        """
        tree, trace = self._run.meta_run_tree, ("traces", context, name)
        series = self._run.series_run_trees[version].subtree((context, name))
        columns = ("val", "time", "epoch", "step") if version == 2 else ("val", "time", "epoch")
        steps = dict(series.array("step" if version == 2 else "time").items())
        steps = steps if version == 2 else {key: key for key in steps}
        for key in [key for key, step in steps.items() if step > last_step]:
            for column in columns:
                del series[column, key]
            del steps[key]
        if not steps:
            del tree[trace]
            for kind in tree.get("typed_traces", {}):
                del tree["typed_traces", kind, context, name]
            return
        top = max(steps, key=lambda key: steps[key])
        about = {"last_step": steps[top]}
        if version == 2:
            by_key = {key: series["val", key] for key in steps}
            numbers = [value for value in by_key.values() if value == value]
            about |= {"last": by_key[top]}
            about |= {"max": max(numbers, default=-math.inf), "min": min(numbers, default=math.inf)}
        for field, value in about.items():
            tree["traces", context, name, field] = value


def _unambiguous_name(name: str, kind: str, draft: AimState) -> str:
    """A name for one kind of data in Aim: a second kind of the same name gets a suffix."""
    known = draft.kinds.setdefault(name, kind)
    return name if known == kind else f"{name} ({kind})"
