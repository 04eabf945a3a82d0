"""The relay's main process: starts and restarts deliveries, watches training, writes a finish record if it can't.

The same supervisor serves ``trackers sync``, where there is no training to watch.

The run's environment (git state, packages, machine) is gathered here, because that is slow.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import platform
import random
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from trackers import records
from trackers.backends import registry
from trackers.errors import UsageError
from trackers.hardware import host
from trackers.journal import helper_process, live_files, span_table, status, trust
from trackers.journal.attempts import results_of_killed
from trackers.journal.helper_process import AGAIN, DONE, STOPPED
from trackers.journal.integrity import JournalChecksums
from trackers.journal.lease import read_holder
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.status import PREEMPTED, is_preempted, judged, last_status, noted, observe, outlived, revised
from trackers.journal.stream import FinishSearch, StreamWriter, find_finish, last_record
from trackers.media import MediaStore
from trackers.object_storage import addresses
from trackers.provenance import packages, paths, repository, surroundings
from trackers.records import Environment, Finish, Record, Start, files_of
from trackers.relay.agent import client
from trackers.relay.agent.turns import Turns
from trackers.relay.agent.work_slots import ENDED, GROWN, NEW
from trackers.relay.aggregation.child import Reducing
from trackers.relay.alerting import watch as alert_watch
from trackers.relay.alerting.child import Sending
from trackers.relay.alerting.watch import AlertWatch
from trackers.relay.code_keeper import DISK_PATIENCE_S, CodeKeeper
from trackers.relay.console_collector import ConsoleCollector
from trackers.relay.delivery.cursor_file import is_outdated, read_account
from trackers.relay.nodes.child import Fetching
from trackers.relay.sampling.child import SamplerProcess
from trackers.support import confined, plugins, process_info
from trackers.support.backlog import Backlog
from trackers.support.failpoints import failpoint
from trackers.support.process_info import Watched
from trackers.tracker import RunInfo


def gather_environment(info: RunInfo) -> dict[str, Any]:
    """Nested values for an Environment record; values that can't be determined are absent."""
    values: dict[str, Any] = {
        "host": info.host,
        "os": platform.platform(),
        "python": platform.python_version(),
        "executable": info.python,
        "cpu_count": os.cpu_count() or 0,
        "packages": packages.installed(),
        **host.gpus(),
    }
    if brought := {plugin.name: plugin.version for plugin in plugins.brought() if plugin.allowed}:
        values["plugins"] = brought
    if container := surroundings.container():
        values["container"] = container
    if rerun_of := os.environ.get(paths.RERUN_OF):
        values["rerun_of"] = rerun_of[:200]
    values["git"] = {**info.git, **repository.state(info.git.get("root", ""))} if info.git else {}
    return values


def keep_patch(values: dict[str, Any], run: RunDirectory, attempt: int) -> None:
    """Move the patch out of the values into a file of the run that only its owner may read, and name that instead."""
    patch = values.get("git", {}).pop("patch", None)
    if patch is None:
        return
    path = run.path / f"git-{attempt}.patch"
    try:
        with os.fdopen(confined.open_fd(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(patch.encode("utf-8", "replace"))
    except OSError:  # a full disk: training's records come first
        return
    values["git"]["patch_file"] = path.name


def preload() -> None:
    """Cache what is the same for all forks of this process; a host agent ends when packages change."""
    packages.installed()
    platform.platform()


POLL_S = 0.1
RESTART_S = (0.2, 30.0)
AFTER_FINISH_S = 24 * 3600.0
"""Time after the end of training for which the relay keeps trying to deliver, in seconds."""
LEAVE_S = 25.0
"""The same for one that was asked to end: schedulers kill 30 s after they asked (SLURM's KillWait, Kubernetes)."""
ASK_S = 0.1
"""Between two requests to a delivery to end: it ends at the second one that comes soon after the first."""
STUCK_GRACE_S = 5.0
CODE_LATER_S = 5.0
"""Time after the end of training during which code isn't captured while deliveries use all processors, in seconds."""
SETTLE_S = 0.3
"""Time for which training has the processor to itself when it starts, in seconds, unless it ends sooner."""
RESEND_S = 2.0
"""Wait after a delivery's end for others to end too, before a store with all records is told of it, in seconds."""
LOOK_S = 0.5
"""Interval between checks for a newer attempt, for new records and for stuck deliveries, in seconds."""


class Child:
    """One delivery process, restarted when it dies.

    Attributes:
        size: number of processes it consists of.
        turns: number of times it gave its slot to other deliveries.
        is_resting: it gave its slot back when it had everything; new records restart it.
        offsets: how far it had read each stream then.
        sign: its last sign of life. moved: when that was seen.
        redo: it closed its tracker with an outdated status, and has to run again.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.size = _processes(name)
        self.turns = 0
        self.is_resting = False
        self.bell = self.pidfd = -1
        self.checked = 0.0
        self.sign, self.moved = "", 0.0
        self.offsets: dict[str, int] = {}
        self.done = False
        self.redo = False
        self.stopped = False
        self.deaths = 0
        self.start_at = 0.0
        self.started = 0.0

    def wake(self) -> None:
        """Have it check for records at once."""
        if self.bell >= 0:
            with contextlib.suppress(OSError):
                os.write(self.bell, b".")

    def end_turn(self) -> None:
        """Tell it that its turn is over."""
        if self.bell >= 0:
            os.close(self.bell)
            self.bell = -1


def _processes(name: str) -> int:
    try:
        return registry.precheck(name).processes
    except UsageError:
        return 1


class Supervisor:
    """Runs a run's deliveries until all is delivered.

    Args:
        trackers: which deliveries to run.
        watch: the training process (pid, start) whose death ends the run; None if there is none to watch.
        pidfd: a descriptor of it that is inherited; taken over.
        bell: a pipe over which it says that the run has ended; taken over. -1 for none.
        attempt: whose relay this is; None: the newest's. Where a newer one begins, the work is left to its relay.
        owner: this supervisor may write the node's stream: no other relay lives.
        info: of the run as it is to be delivered (:mod:`trackers.journal.trust`); default: found out here.
        say: called with (text, tracker) for what the user must know.
        limit_s: how long to go on after the run has ended.
        nice: niceness of the processes that it starts while training runs. When training has ended, it waits for
            them, and they have the priority of any other process.
        turns: which of the deliveries may work, beside those of other runs; taken over. Default: all, always.
    """

    def __init__(
        self,
        run: RunDirectory,
        trackers: Sequence[str],
        *,
        watch: tuple[int, float] | None,
        pidfd: int = -1,
        bell: int = -1,
        attempt: int | None = None,
        owner: bool = True,
        info: RunInfo | None = None,
        say: Callable[[str, str], None],
        limit_s: float = AFTER_FINISH_S,
        nice: int = 0,
        turns: Turns | None = None,
    ) -> None:
        self.run = run
        self.info: RunInfo = trust.delivered(run)[0] if info is None else info
        self._turns = turns or Turns()
        self.children = [Child(name) for name in trackers]
        self._settled_at = time.monotonic() + SETTLE_S if watch else 0.0
        self._say = say
        self._watched = Watched(*watch, pidfd) if watch else None
        self._bell = bell
        self._leaving_finish: Finish | None = None
        self._backlog: Backlog | None = None
        self._last: list[Record] = []
        self._last_until = 0.0
        self._gone_at = 0.0
        self._was_death = False
        self._owner = owner
        self._nice = nice
        self._limit_s = limit_s
        self._pythons = registry.other_pythons(trackers, self.info.options)
        self._avoid = (self.info.cwd, self.info.home, os.path.dirname(self.info.program) if self.info.program else "")
        self._attempt = run.attempt() if attempt is None else attempt
        self._may_yield = attempt is not None
        self._attempt_argument = str(self._attempt if self._may_yield else 0)
        self._main_end = FinishSearch(run.stream(StreamName("rank", 0, self._attempt)))
        self._attempt_checked = self._node_checked = self._sizes_read_at = 0.0
        self._sizes: dict[str, int] = {}
        self.superseded = False
        self._node: StreamWriter | None = None
        self._sampler: SamplerProcess | None = None
        self._fetching: Fetching | None = None
        self._reducing: Reducing | None = None
        self._console: ConsoleCollector | None = None
        self._code: CodeKeeper | None = None
        self._checksums = JournalChecksums(run) if owner and watch is not None else None
        self._alerts: AlertWatch | None = None
        self._sending: Sending | None = None
        if watch is not None and owner:
            shared = functools.partial(client.sample, self._turns.name) if self._turns.enabled else None
            self._sampler = SamplerProcess(
                run, self.info, self._attempt, lambda text: say(text, ""), nice=nice, shared=shared
            )
            self._fetching = Fetching(
                run, self.info, self._attempt, lambda text: say(text, ""), ended=False, own_session=False, nice=nice
            )
            self._reducing = Reducing(
                run, self.info, self._attempt, lambda text: say(text, ""), ended=False, own_session=False, nice=nice
            )
            self._code = CodeKeeper(run, self.info, self._attempt, lambda text: say(text, ""))
            self._console = ConsoleCollector(run, self.info, self._attempt, watch[0], lambda text: say(text, ""))
            if alert_watch.has_alerts(self.info):
                self._alerts = AlertWatch(run, self.info, self._attempt, lambda text: say(text, "alerts"))
                if self.info.mode != "offline":
                    self._sending = Sending(
                        run, self.info, lambda text: say(text, "alerts"), own_session=False, nice=nice
                    )
        self._ended_at = 0.0
        self._resend_at = math.inf
        self._resent = 0
        self.stopping = False

    def serve(self, alive: Callable[[], bool] = lambda: True) -> None:
        """Work until the run has ended and every delivery is done or stopped.

        Args:
            alive: asked at each turn, ten times a second; False ends the work at once.
        """
        self.begin()
        try:
            while not self.stopping and alive() and not self._yield() and self.step():
                self._pause()
        finally:
            self.end()

    def _yield(self) -> bool:
        # The relay of the newer attempt waits for this one's lease, and delivers the rest of this attempt too.
        now = time.monotonic()
        if self._may_yield and now - self._attempt_checked >= LOOK_S:
            self._attempt_checked = now
            self.superseded = self.run.attempt() > self._attempt
        return self.superseded

    def own_trackers(self) -> list[str]:
        """Trackers whose deliveries run in this Python."""
        return [child.name for child in self.children if child.name not in self._pythons]

    def begin(self) -> None:
        """Open the node's stream, if this supervisor owns it; deliveries of a run that has ended start at once."""
        is_new = self._owner and self._open_node_stream()
        if self._watched is None:
            return
        if not self._is_over():
            helper_process.lower_priority(self._nice)
        if not self._yield():
            self._poll_children()
        if is_new and self._node is not None:
            values = self._gather()
            if self.info.option("TRACKER_PRIVATE", True):
                keep_patch(values, self.run, self._attempt)
            self._node.write(records.encode(Environment(time=time.time(), values=values)))
        if self._node is not None and self._code is not None:
            self._code.begin()

    def _gather(self) -> dict[str, Any]:
        """Values of the environment: takes tenths of a second of CPU time, during which training may end."""
        if not self.info.git and packages.is_cached():  # a fork: what takes long is known
            return gather_environment(self.info)
        gathered: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: gathered.append(gather_environment(self.info)))
        thread.start()
        while thread.is_alive():
            thread.join(POLL_S)
            self._is_over()
        return gathered[0]

    def _is_over(self) -> bool:
        """Whether training has written its finish record; if so, the rest is done at normal priority."""
        over = self._main_end.read() is not None
        if over:
            self._raise_priority()
        return over

    def step(self) -> bool:
        """Do one round of all work. False when nothing is left to do."""
        self._poll_children()
        if self._sampler is not None:
            self._sampler.poll()
        if self._fetching is not None:
            self._fetching.poll()
        if self._reducing is not None:
            self._reducing.poll()
        if self._console is not None:
            self._console.poll()
        if self._code is not None and not self._ended_at:
            self._code.poll(over=False, crowded=self._turns.waits)
        self._poll_alerts()
        self._mend_node_stream()
        if not self._ended_at and self._has_ended():
            self._ended_at = time.monotonic()
            self._poll_children()  # training waits for these, and for the code only then
            if self._checksums is not None:
                self._checksums.end()
        elif self._checksums is not None and not self._ended_at:
            self._checksums.poll()
        if not self._ended_at or self._awaits_exit():
            return True
        idle = all(child.done or child.stopped for child in self.children)
        idle = idle and (self._sending is None or self._sending.idle)
        if self._code is not None and (not self._is_crowded() or time.monotonic() - self._ended_at > CODE_LATER_S):
            self._code.poll(over=True)
        idle = idle and (self._code is None or self._code.idle)
        if (idle or time.monotonic() >= self._resend_at) and self._resend():
            return True
        return not idle and time.monotonic() - self._ended_at <= self._limit_s

    def end(self) -> None:
        """End the deliveries at their next record and release everything."""
        if self._sampler is not None:
            self._sampler.close()
        if self._fetching is not None:
            self._fetching.close()
        if self._reducing is not None:
            self._reducing.close()
        if self._console is not None:
            self._console.close()
        if self._code is not None:
            self._code.close()
        if self._alerts is not None:
            self._alerts.close()
        self._end_children()
        if self._checksums is not None:
            self._checksums.end()
        if self._sending is not None:
            self._sending.close()
        self._turns.close()
        if self._node is not None:
            self._node.release()
            self._node = None
        if self._watched is not None:
            self._watched.close()
        self._close_bell()

    def _poll_alerts(self) -> None:
        if self._alerts is not None and not self._ended_at:
            self._alerts.poll()
        if self._sending is not None:
            self._sending.poll()

    def _open_node_stream(self) -> bool:
        """Open the node's stream; False if it already has the environment, or the attempt's finish record."""
        name = StreamName("node", 0, self._attempt)
        path = self.run.stream(name)
        last = last_record(path)
        if find_finish(path) is not None and not outlived(self.run, name):
            return False
        self._node = StreamWriter(path)
        if last is None:
            now = time.time()
            start = Start(time=now, attempt=self._attempt, host=process_info.host(), pid=os.getpid())
            self._node.write(records.encode(start))
        return last is None or isinstance(last, Start)

    def _mend_node_stream(self) -> None:
        """Restore the node's stream if it was deleted. Training restores its folder."""
        now = time.monotonic()
        if self._node is not None and now - self._node_checked >= LOOK_S:
            self._node_checked = now
            self._node.mend(lambda: None)

    def _has_ended(self) -> bool:
        """Whether this attempt has ended; writes its finish record to the node's stream if training couldn't."""
        if self._node is None:
            return last_status(self.run).name != "running"
        finish = self._main_end.read()
        if finish is None and not (self._watched.alive() if self._watched else observe(self.run).name == "running"):
            finish = self._main_end.read()
            if finish is None and self._goes_on():
                return False
            finish = finish or self._death()
        if finish is None:
            return False
        self._raise_priority()
        if self._code is not None and self._is_crowded():
            self._code.give_way()
        return self._end_with(finish)

    def _is_crowded(self) -> bool:
        """Whether unfinished deliveries use all processors."""
        unfinished = sum(
            not (child.done or child.stopped) for child in self.children if child.name != addresses.STORAGE
        )
        return unfinished >= process_info.processors()

    def _raise_priority(self) -> None:
        """Return to normal priority: training has ended, and may be waiting for the rest."""
        if not self._nice:
            return
        self._nice = 0
        processes = [child.process for child in self.children if child.process is not None]
        parts = [part.pid for part in (self._sampler, self._fetching, self._reducing) if part is not None]
        helper_process.usual_priority([process.pid for process in processes] + [pid for pid in parts if pid])

    def _goes_on(self) -> bool:
        """Whether a child that training forked continues the run: a daemon, whose parent exits at once."""
        if self._watched is None or self._was_death:
            return False
        code = self._watched.exit_code()
        child = status.living_child(self.run, self._attempt) if code == 0 else None
        if code is None:
            child = status.daemon_child(self.run, self._attempt)
        if child is not None:
            status.follow_child(self.run, self._attempt, child)
            self._watch_child()
            self._gone_at = 0.0
            return True
        now = time.monotonic()
        self._gone_at = self._gone_at or now
        self._was_death = code != 0 or now - self._gone_at > status.GRACE_S
        return not self._was_death

    def _watch_child(self) -> None:
        child = status.named_child(self.run, self._attempt)
        if self._watched is not None and child is not None and child != (self._watched.pid, self._watched.start):
            self._watched.close()
            self._watched = Watched(*child)

    def _end_with(self, finish: Finish) -> bool:
        """Write the finish record, once sampler and reducer have written their last: deliveries stop at it."""
        ended = [part.end() for part in (self._sampler, self._fetching, self._console) if part is not None]
        if self._reducing is not None and (self._fetching is None or self._fetching.over):  # it has what there is
            ended.append(self._reducing.end())
        if not all(ended):
            return False
        self._watch_child()
        if finish.leaving and self._watched is not None:
            if self._watched.alive():
                self._leaving_finish = finish
            else:
                finish = self._corrected(finish, self._watched)
        if self._alerts is not None:
            self._alerts.end(finish)
        if self._node is not None and self._main_end.read() is None:
            last = self._last_records(finish.time)
            if last is None:
                return False
            for record in last:
                self._node.write(records.encode(record))
        self._write_finish(finish)
        live_files.forget(self.run, self._attempt)
        return True

    def _last_records(self, moment: float) -> list[Record] | None:
        """What a killed training would have recorded at its end; None while the disk refuses its files."""
        if self._backlog is None:
            self._backlog = Backlog(MediaStore(self.run.path).place)
            spans = span_table.of_killed(self.run, self._attempt, moment, self.info, self._backlog)
            files = live_files.of_killed(self.run, self._attempt, moment, self._backlog)
            self._last = [*spans, *files, *results_of_killed(self.run, moment)]
            self._last_until = time.monotonic() + DISK_PATIENCE_S
        if self._backlog.retry(all_of_it=True):
            return self._last
        if time.monotonic() < self._last_until:
            return None
        kept = [record for record in self._last if not self._backlog.waits_for(files_of(record))]
        lost = len(self._last) - len(kept)
        self._say(f"{lost} records of files of the killed run were lost: {self._backlog.error}", "")
        return kept

    def _corrected(self, stated: Finish, watched: Watched) -> Finish:
        """Training's own finish record, corrected by the exit code that it then had."""
        code = watched.exit_code()
        return noted(self.run, self._attempt, stated) if code is None else revised(stated, code)

    def _death(self) -> Finish:
        """A finish record for a process that wrote none."""
        now = time.time()
        if is_preempted(self.run, self._attempt):
            return Finish(time=now, status="preempted", reason=PREEMPTED)
        code = self._watched.exit_code() if self._watched else None
        if code is None:
            return Finish(time=now, status="crashed", reason="the process was killed or died")
        return judged(code, now)

    def _awaits_exit(self) -> bool:
        """Whether training has written its finish record and is still exiting; after that, corrects the record."""
        if self._leaving_finish is None or self._watched is None or self._watched.alive():
            return self._leaving_finish is not None
        stated, self._leaving_finish = self._leaving_finish, None
        finish = self._corrected(stated, self._watched)
        if finish is not stated:
            if self._alerts is not None:
                self._alerts.end(finish)
            self._node = StreamWriter(self.run.stream(StreamName("node", 0, self._attempt)))
            self._write_finish(finish)
            self._ended_at = time.monotonic()
            for child in self.children:  # trackers closed with the earlier status close again
                child.done, child.redo = False, True
        return False

    def _write_finish(self, finish: Finish) -> None:
        assert self._node is not None
        self._node.mend(lambda: None)
        failpoint("relay.finish.before")
        self._node.write(records.encode(finish))
        self._node.release()
        self._node = None
        failpoint("relay.finish.after")
        for child in self.children:
            child.wake()

    def _poll_children(self) -> None:
        self._turns.poll()
        settled = time.monotonic() >= self._settled_at or self._is_over()
        for child in self.children:
            if child.done or child.stopped:
                continue
            if child.process is None:
                if time.monotonic() >= child.start_at and self._has_news(child):
                    has_slot = self._turns.request(child.name, child.size, self._urgency(child))
                    if has_slot and settled:
                        self._start(child)
                continue
            code = child.process.poll()
            if code is not None:
                self._reap(child, code)
                continue
            self._end_if_stuck(child)
            if self._turns.is_over(child.name):
                child.end_turn()

    def _urgency(self, child: Child) -> int:
        if self._ended_at:
            return ENDED
        return GROWN if child.turns else NEW

    def _resend(self) -> bool:
        """Restart a finished delivery to a store that has an outdated state of other trackers; False if none has."""
        self._resend_at = math.inf
        for child in self.children:
            if (
                child.done
                and child.name == addresses.STORAGE
                and is_outdated(self.run, read_account(self.run, child.name))
            ):
                low, high = RESTART_S
                child.done = False
                child.start_at = time.monotonic() + (min(high, low * 2 ** min(self._resent, 10)) if self._resent else 0)
                self._resent += 1
                return True
        return False

    def _has_news(self, child: Child) -> bool:
        """Whether there are new records for a delivery that had everything when it gave its slot back."""
        if not child.is_resting or self._ended_at:
            return True
        now = time.monotonic()
        if now - self._sizes_read_at >= LOOK_S:
            self._sizes_read_at, self._sizes = now, self.run.sizes()
        return any(child.offsets.get(stream, 0) < size for stream, size in self._sizes.items())

    def _start(self, child: Child) -> None:
        bell = bell_reader = -1
        try:
            bell_reader, bell = os.pipe()
            os.set_blocking(bell, False)
            child.process = helper_process.start(
                self.run,
                [
                    "delivery",
                    str(self.run.path.resolve()),
                    child.name,
                    str(os.getpid()),
                    self._attempt_argument,
                    str(bell_reader),
                ],
                python=self._pythons.get(child.name, ""),
                avoid=self._avoid,
                new_session=self._watched is None,
                info=self.info,
                pass_fds=(bell_reader,) if bell_reader >= 0 else (),
                nice=self._nice,
                fresh=child.deaths > 0,
            )
        except OSError as error:
            if bell >= 0:
                os.close(bell)
            self._turns.done(child.name)
            self._back_off(child, f"its delivery can't be started: {error}")
            return
        finally:
            if bell_reader >= 0:
                os.close(bell_reader)
        child.bell, child.is_resting = bell, False
        child.pidfd = process_info.open_pidfd(child.process.pid)
        child.started = time.monotonic()
        child.redo = False

    def _reap(self, child: Child, code: int) -> None:
        child.process = None
        if child.pidfd >= 0:
            os.close(child.pidfd)
            child.pidfd = -1
        if self._turns.is_over(child.name):
            child.turns += 1
            child.is_resting, child.offsets = True, read_account(self.run, child.name).offsets
        child.end_turn()
        self._turns.done(child.name)
        if code in (DONE, STOPPED) and child.name != addresses.STORAGE:
            self._resend_at = min(self._resend_at, time.monotonic() + RESEND_S)
        if code == DONE and not child.redo:
            child.done = True
        elif code == DONE:  # it closed with the finish record from before the correction
            child.start_at = time.monotonic()
        elif code == STOPPED:
            child.stopped = True
        elif code == AGAIN:
            child.start_at = time.monotonic()
        else:
            if time.monotonic() - child.started > 60.0:
                child.deaths = 0
            reason = f"signal {-code}" if code < 0 else f"exit code {code}"
            self._back_off(child, f"its delivery died ({reason}) and is started again; see {self.run.relay_log}")

    def _back_off(self, child: Child, text: str) -> None:
        low, high = RESTART_S
        child.start_at = time.monotonic() + min(high, low * 2 ** min(child.deaths, 10)) * random.uniform(0.7, 1.0)
        child.deaths += 1
        if child.deaths > 2:
            self._say(text, child.name)

    def _end_if_stuck(self, child: Child) -> None:
        now = time.monotonic()
        if now - child.checked < LOOK_S:
            return
        child.checked = now
        holder = read_holder(self.run.delivery / f"{child.name}.lease")
        assert child.process is not None
        if holder is None or holder.pid != child.process.pid or holder.allow_s <= 0:
            return
        if child.sign != holder.sign():  # by this process's own clock, however the machine's jumps
            child.sign, child.moved = holder.sign(), now
        silent_s = now - child.moved
        if silent_s > holder.allow_s + STUCK_GRACE_S:
            self._say(f"no progress for {silent_s:.0f} s: its delivery is started again from its cursor", child.name)
            child.process.kill()

    def _end_children(self) -> None:
        running = [child.process for child in self.children if child.process is not None]
        deadline = time.monotonic() + 15.0
        while running and time.monotonic() < deadline:
            for running_process in running:
                running_process.terminate()  # once isn't enough: a whole job is asked so, and delivers meanwhile
            time.sleep(ASK_S)
            running = [running_process for running_process in running if running_process.poll() is None]
        for running_process in running:
            running_process.kill()
            running_process.wait()

    def _pause(self) -> None:
        if self._sampler is not None and self._sampler.ending:
            self._sampler.wait(0.02)
        elif self._reducing is not None and self._reducing.ending:
            time.sleep(0.01)
        elif self._ended_at and self._code is not None and self._code.awaited(time.monotonic() - self._ended_at):
            time.sleep(0.005)
        elif self._watched is not None and (not self._ended_at or self._leaving_finish is not None):
            self._wait_for_training()
        else:
            self._wait_for_a_delivery()

    def _wait_for_training(self) -> None:
        assert self._watched is not None
        self._watched.wait(POLL_S, self._bell, self._turns.descriptor)
        if self._bell >= 0:
            try:
                if os.read(self._bell, 64):
                    return
            except BlockingIOError:
                return
            except OSError:
                pass
            self._close_bell()

    def _close_bell(self) -> None:
        if self._bell >= 0:
            with contextlib.suppress(OSError):
                os.close(self._bell)
            self._bell = -1

    def _wait_for_a_delivery(self) -> None:
        fds = [child.pidfd for child in self.children if child.pidfd >= 0]
        if self._turns.descriptor >= 0:
            fds.append(self._turns.descriptor)
        if fds:
            process_info.readable_ones(fds, POLL_S)
        else:
            time.sleep(POLL_S)

    def stop(self, *_: Any) -> None:
        """Stop soon: as a signal handler."""
        self.stopping = True

    def leave(self, *_: Any) -> None:
        """Stop when training has ended and its last records are delivered, or LEAVE_S after it: as a signal handler.

        Asked a second time, or after the run's end, stop soon.
        """
        if self._ended_at or self._limit_s == LEAVE_S:
            self.stopping = True
        self._limit_s = LEAVE_S
