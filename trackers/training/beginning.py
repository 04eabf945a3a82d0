"""The main rank's run: its directory, its first records and what works beside it, one step after the other."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from trackers import configuration, records
from trackers._version import __version__
from trackers.alerts import PROJECT_FILE
from trackers.backends import registry
from trackers.errors import NotFound, UsageError
from trackers.formats.word_list import split_words
from trackers.journal.attempts import AttemptHistory
from trackers.journal.messages import Message, show
from trackers.journal.run_directory import RunDirectory, check_id, in_journal
from trackers.journal.status import watch
from trackers.journal.stream import StreamWriter
from trackers.object_storage.addresses import store_of
from trackers.provenance.paths import RERUN_OF
from trackers.ranks import launch, meeting
from trackers.ranks.transport import RankTransport, runs_root
from trackers.records import Config, Environment, Record, Start
from trackers.relay.client import RelayClient
from trackers.support import git_head, machines, name_clash, processes, schedulers, script
from trackers.support.clock import Clock
from trackers.support.interruption import pass_on
from trackers.support.redaction import hide, mask_argv, mask_source
from trackers.support.run_requests import AGREED
from trackers.tracker import RunInfo
from trackers.training import console_capture, environment, forking, imported_code, notebook_cells, stores
from trackers.training import resume as resumption
from trackers.training.exit_hooks import ending
from trackers.training.recorder import Recorder
from trackers.training.resume import OpenedAttempt
from trackers.training.run import Run, banner_line
from trackers.training.stopping import Board


@dataclass(frozen=True)
class InitRequest:
    """What ``init`` was asked for, checked: see :func:`trackers.training.init.init`.

    Attributes:
        trackers: their names. options: all, by their Kconfig symbols.
    """

    trackers: list[str]
    options: Any
    config: dict[str, Any]
    mode: str
    resume: str | None
    step: int | None
    transport: RankTransport


class Continuation(NamedTuple):
    """Where a run that goes on stands; as it is here, that of a new one.

    Attributes:
        first_step: of this attempt. last_step: the earlier attempts', None where it isn't known.
        rewind: the step that it goes back to.
        changed: how the configuration differs from the earlier one. last_time: of the earlier records, 0.0 without any.
    """

    first_step: int = 0
    last_step: int | None = None
    rewind: int | None = None
    changed: Mapping[str, Any] = MappingProxyType({})
    last_time: float = 0.0


def begin(request: InitRequest, on_finish: Callable[[Run], None]) -> Run:
    """Begin the run that is asked for, or a further attempt of it.

    Args:
        on_finish: called with the run when it has finished.

    Raises:
        UsageError, NotFound: as :func:`trackers.training.init.init` says; nothing of the attempt is left then.
    """
    return _Beginning(request).run(on_finish)


class _Beginning:
    """The steps of :func:`begin`, and what more than one of them needs to know."""

    def __init__(self, request: InitRequest) -> None:
        self.request = request
        options, transport = request.options, request.transport
        self.clock = Clock()
        self.now = self.clock.now()
        self.asked_name = str(options["TRACKER_RUN_NAME"] or "")
        self.asked_id = check_id(str(options["TRACKER_RUN_ID"])) if options["TRACKER_RUN_ID"] else ""
        self.notes: list[str] = []
        self.info = self._identity()
        self.inline = bool(options["TRACKER_INLINE"])
        self.has_relay = bool(options["TRACKER_RELAY"]) and not self.inline
        self.node = environment.node_position()
        self.listens = transport.network and self.has_relay and self.node.nodes > 1
        self.store = store_of(options["TRACKER_DIR"]) if request.mode == "online" else ""
        self.runs_again = bool(os.environ.get(RERUN_OF))
        self.forked_from = str(options["TRACKER_FORK_FROM"] or "")
        self.origin: forking.ForkOrigin | None = None

    def run(self, on_finish: Callable[[Run], None]) -> Run:
        """All steps, in their order."""
        opened, brought = self._open()
        went_on = self._go_on(opened)
        start = self._write(opened, went_on)
        recorder = self._recorder(opened, went_on, start)
        result = Run(recorder, on_finish, self._watch_script(recorder, opened))
        ending.add(result)
        for line in self._what_to_know(opened, went_on, brought):
            show(Message(self.now, line))
        return result

    def _identity(self) -> RunInfo:
        """Which run this is, by which program, where; its id may be found out later."""
        options, config = self.request.options, self.request.config
        program, argv = script.program()
        cwd, pid = Path.cwd(), os.getpid()
        template = self.asked_name
        name = configuration.fill_template(template, config) if template else configuration.run_name(program, self.now)
        return RunInfo(
            id=self.asked_id,
            name=mask_source(name),
            project=str(options["TRACKER_PROJECT"] or configuration.project_name(config, program, cwd)),
            trackers=self.request.trackers,
            group=mask_source(str(options["TRACKER_GROUP"])) or None,
            job_type=mask_source(str(options["TRACKER_JOB_TYPE"])) or None,
            tags=list(dict.fromkeys(split_words(mask_source(str(options["TRACKER_TAGS"]))))),
            notes=mask_source(str(options["TRACKER_NOTES"])) or None,
            config=config,
            mode=self.request.mode,
            options=hide(options.to_dict()),
            created=self.now,
            program=program,
            argv=mask_argv(argv),
            cwd=str(cwd),
            python=sys.executable,
            host=machines.host(),
            boot_id=machines.boot_id(),
            pid_namespace=machines.pid_namespace(),
            pid=pid,
            pid_start=processes.process_start(pid),
            user=script.user(),
            git=git_head.read(imported_code.program_directory(program, str(cwd)), self.notes),
        )

    def _open(self) -> tuple[OpenedAttempt, list[str]]:
        """The run's directory with a stream of this attempt's own; and which runs were brought from the store."""
        request, info, store = self.request, self.info, self.store
        root = runs_root(request.options)
        sought = store and (self.asked_id or request.resume)
        brought = stores.fetch(store, root, info.project, self.asked_id, request.resume) if sought else []
        launched = request.transport.launch

        def claimed(run: Path) -> tuple[int, str]:
            return stores.claimed(store, run) if store else (0, "")

        def watching(run: RunDirectory) -> None:
            refresh = functools.partial(stores.fetch_lease, store, run.path) if store else None
            watch([run], _say, refresh=refresh)

        opened = resumption.open_attempt(
            root, self.asked_id, request.resume, info.name if self.asked_name else "", info,
            launched.run_id() if launched is not None else "", self.runs_again, claimed, watching,
        )  # fmt: skip
        info.id, info.directory = opened.run.path.name, str(opened.run.path)
        info.options["TRACKER_FORK_FROM"] = ""  # once the run is there, ``forked_from`` says it
        if self.forked_from and opened.before is None:  # else this goes on with what was forked then
            self.origin = self._found(opened, root)
        self._add_project_rules(opened.run.path.parent)
        return opened, brought

    def _found(self, opened: OpenedAttempt, root: Path) -> forking.ForkOrigin:
        """The run and step that this one is forked from."""
        try:
            project, parent = forking.parent_of(self.forked_from)
            if self.store and parent:
                stores.fetch(self.store, root, project or self.info.project, parent, None)
            return forking.find(self.forked_from, root, self.info.project)
        except (UsageError, NotFound):
            opened.discard()
            raise

    def _add_project_rules(self, project: Path) -> None:
        """Have the project's alert rules hold for this run, too."""
        if os.path.lexists(project / PROJECT_FILE):  # most have none, and load nothing for it
            from trackers.alerts import project_rules

            found = project_rules.read(project)
            alerts, left = project_rules.together(str(self.info.option("TRACKER_ALERTS") or ""), found.texts)
            self.info.options["TRACKER_ALERTS"] = alerts
            self.notes += found.problems
            self.notes += [f"{project / PROJECT_FILE}: too many rules for a run: {text} isn't watched" for text in left]

    def _go_on(self, opened: OpenedAttempt) -> Continuation:
        """Take over what a continued run keeps."""
        step = self.request.step
        if self.origin is not None:
            changed = forking.inherit(self.info, self.origin)
            shared = self.origin.step
            return Continuation(shared + 1, shared, None, changed, self.origin.history.last_time())
        if opened.before is None:
            return Continuation() if step is None else Continuation(first_step=step + 1)
        history = AttemptHistory(opened.run)
        changed = resumption.take_over(self.info, opened.before, history, opened.run.read_info())
        last = resumption.last_step(opened, history) if step is None else step
        first_step = 0 if last is None else last + 1
        known = first_step - 1 if first_step and step is None else None
        return Continuation(first_step, known, step, changed, history.last_time())

    def _write(self, opened: OpenedAttempt, went_on: Continuation) -> Start:
        """The attempt's first records, ``run.json``, and whatever others find it by.

        Raises:
            UsageError: the directory can't be written, or the id was taken meanwhile; nothing is left of the attempt.
        """
        run, writer = opened.run, opened.writer
        rewind, results = went_on.rewind, []
        self.info.attempts.append(self._attempt(opened.attempt, went_on))
        start = self._start(opened, went_on)
        if rewind is not None:
            history = AttemptHistory(run)
            (start.axis, start.axes, start.since), results = history.axes_at(rewind), history.results_set()
        lines: list[Record] = [start]
        if self.request.config or self.origin is not None:
            lines.append(Config(time=self.now, values=self.info.config))
        if opened.before is not None:
            lines += resumption.told_anew(self.info, run, start.time)
        try:
            _append(writer, lines)
            if self.origin is not None:  # after the start that says whose run this is
                forking.write(self.origin, run)
            if rewind is not None:  # what counts after the rewind shows once the start that says so is written
                _append(writer, resumption.results_at(rewind, run, results, start.time))
            self._publish(opened)
        except OSError as error:
            pass_on(error)
            opened.discard()
            raise UsageError(f"{run.path} can't be written ({error.strerror}): choose another TRACKER_DIR") from None
        environment.direct_nccl_log(
            self.request.trackers, self.request.transport.folder or run.path, self.request.transport.rank
        )
        if described := environment.describe(self.request.transport.ranks):
            writer.write(records.encode(Environment(time=start.time, values=described)))
        return start

    def _start(self, opened: OpenedAttempt, went_on: Continuation) -> Start:
        last_time = went_on.last_time
        return Start(
            # Never before what is there already, though this machine's clock may be behind: see relay.order.
            time=max(self.now, last_time + 1e-6) if last_time else self.now,
            attempt=opened.attempt,
            rank=self.request.transport.rank,
            world_size=self.request.transport.ranks,
            host=self.info.host,
            pid=self.info.pid,
            from_step=went_on.rewind,
            until=resumption.noted_until(opened),
            run=in_journal(self.info),
        )

    def _attempt(self, number: int, went_on: Continuation) -> dict[str, Any]:
        """What ``run.json`` says of this attempt."""
        info, transport = self.info, self.request.transport
        entry: dict[str, Any] = {
            "number": number,
            "time": self.now,
            "host": info.host,
            "pid": info.pid,
            "argv": info.argv,
            "version": __version__,
        }
        job = schedulers.job()
        if job is not None:
            entry |= job.to_entry()
        if went_on.changed:
            entry["changed"] = went_on.changed
        if went_on.rewind is not None:
            entry["from_step"] = went_on.rewind
        if self.node.nodes > 1:
            entry |= {"node": self.node.node_of(transport.main), "nodes": self.node.nodes}
        if transport.folder is not None:
            entry |= {
                "launch": os.path.relpath(transport.folder, info.directory),
                "ranks": transport.ranks,
                "rank": transport.rank,
            }
        return entry

    def _publish(self, opened: OpenedAttempt) -> None:
        """Let others know the attempt: ``run.json``, the store's claim, what the launch's other ranks look for."""
        run, transport = opened.run, self.request.transport
        with resumption.alone(run) if self.asked_id or self.request.resume else contextlib.nullcontext():
            own = len(self.info.attempts)
            stored = resumption.merge_attempts(self.info, run)
            if len(stored.attempts) > own and self.asked_id and self.request.resume in (None, "never"):
                opened.discard()  # another process of this id was quicker
                raise UsageError(resumption.TAKEN.format(self.asked_id, run.path.parent))
            run.write_info(stored)
        if self.store and (self.asked_id or opened.before is not None):
            stores.claim(self.store, run.path, opened.attempt, opened.discard)
        if transport.folder is not None:
            launch.register(transport.folder, run, opened.attempt, self.now)
            Board(transport.folder / AGREED).clear()
            if self.listens:
                meeting.listen(transport.folder, self.request.options, first=self.node.node_of(transport.main) == 0)

    def _recorder(self, opened: OpenedAttempt, went_on: Continuation, start: Start) -> Recorder:
        """What writes the run's records, with the relay and the trackers that are inside this process."""
        request, info, run = self.request, self.info, opened.run
        inside = [name for name in request.trackers if self.inline or registry.precheck(name).inside]
        beside = [name for name in request.trackers if name not in inside]
        relay = RelayClient(run, info, beside if request.mode == "online" else [], start=self.has_relay)
        code = imported_code.begin(run, info, opened.attempt, request.options, self.has_relay)
        relay.start()
        fanout = _inline_delivery(run, info, inside, request.transport if self.inline else None) if inside else None
        across = request.transport.open(lambda text: recorder.problem(text))
        recorder = Recorder(
            info, run, opened.writer, relay,
            clock=self.clock.now, first_step=went_on.first_step, inside=fanout, across=across,
        )  # fmt: skip
        if len(info.attempts) > 1:
            recorder.go_on_with_axes()
        recorder.late = environment.later(request.transport.ranks, recorder.now)
        if code is not None:
            recorder.pollers.append(code.poll)
            recorder.endings.append(code.end)
        return recorder

    def _watch_script(self, recorder: Recorder, opened: OpenedAttempt) -> Any:
        """Record what the script prints and a notebook's cells. What captures the console, if anything does."""
        run, transport, options = opened.run, self.request.transport, self.request.options
        capture = console_capture.begin(
            run.console, transport.rank, opened.attempt, options, alone=transport.ranks <= 1
        )
        if capture is not None:
            recorder.pollers.append(capture.poll)
        cells = notebook_cells.begin(run, self.info, opened.attempt, options)
        if cells is not None:
            recorder.pollers.append(cells.poll)
            recorder.endings.append(cells.poll)
        if self.listens and transport.folder is not None and not meeting.own_secret():
            recorder.pollers.append(meeting.Announcing(transport.folder).poll)
        return capture

    def _what_to_know(self, opened: OpenedAttempt, went_on: Continuation, brought: list[str]) -> list[str]:
        """Lines for the user: the banner, and what isn't as he may think."""
        info, before = self.info, opened.before
        lines = [banner_line(info, self.request.trackers), *self.notes]
        if self.asked_name and before is not None and mask_source(self.asked_name) != info.name:
            lines.append(
                f"run {info.id} keeps the name {info.name!r}: name={self.asked_name!r} isn't taken for a resumed run"
            )
        if self.runs_again and self.asked_id and self.asked_id != info.id:
            lines.append(f"run {self.asked_id!r} stays as it is: this one, which runs it again, has another id")
        if went_on.changed:
            whose = f"{self.origin.text}'s" if self.origin is not None else "the last attempt's"
            lines.append(resumption.notice(went_on.changed, whose))
        if before is not None and info.directory in brought:
            lines.append(stores.notice(before.host, went_on.last_time, went_on.last_step, before.options))
        if before is not None and opened.alive:
            lines.append(
                f"process {before.pid} on {before.host} seemed to be still at this run: from now on only this "
                "attempt's records count"
            )
        return [*lines, *filter(None, [name_clash.complaint()])]


def _append(writer: StreamWriter, lines: list[Record]) -> None:
    """Write records, of which the run's beginning can't do without one."""
    writer.write(b"".join(map(records.encode, lines)))
    if not writer.healthy:
        raise writer.error or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _say(text: str) -> None:
    show(Message(time.time(), text))


def _inline_delivery(run: RunDirectory, info: RunInfo, names: list[str], transport: RankTransport | None) -> Any:
    """Trackers in this process; with ``transport``, values across ranks too."""
    from trackers.relay.aggregation.worker import InlineReducer
    from trackers.training.inline import InlineDelivery  # the deliveries' code is loaded only where they run here

    if transport is None or transport.folder is None:
        return InlineDelivery(run, names, _say)
    wait_s = float(info.option("TRACKER_REDUCE_WAIT", 10))
    return InlineDelivery(run, names, _say, InlineReducer(run, int(info.attempts[-1]["number"]), wait_s, _say))
