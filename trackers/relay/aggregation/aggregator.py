"""Values across ranks, out of band: reads each rank's stream of rows, and records one number of all of them.

Training never waits: a rank that is late, stopped or dead is named once, and the value is recorded without it after a
deadline, with ``stragglers/missing`` beside it and ``stragglers/rank_<n>`` where a rank goes missing (1) or
comes back (0).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from trackers import records
from trackers.errors import NotFound
from trackers.journal.attempts import AttemptHistory
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.metrics.summary import SummaryFold
from trackers.ranks import nodes
from trackers.ranks.launch import end_of, folder_of, rank_streams, remove_if_empty, span
from trackers.ranks.meeting import NETWORK
from trackers.ranks.nodes import ArrivalsReader
from trackers.records import Metrics, Number, Summary
from trackers.reductions import KINDS
from trackers.relay.aggregation.output import (
    ALIVE,
    DEAD,
    ENDED,
    FAILED,
    FINISHED,
    STOPPED,
    UNSEEN,
    OutputState,
    RankFile,
    Reduced,
    SeriesState,
)
from trackers.relay.aggregation.window import Cell, Gathering, StepRanges, WindowCells
from trackers.support import confined

LOOK_S = 0.5
"""Time between checks for new streams and for ranks that have died, in seconds."""
MOST_NAMED = 32
"""Maximum number of missing ranks that get a value of their own."""
STRAGGLERS = "stragglers/"
KEPT = "ranks"
"""Folder in the run's directory for the ranks' streams after they are reduced."""
FIRST_S = 60.0
"""How long the first values wait for ranks that send their streams from other nodes, in seconds."""
UNNUMBERED = (
    ". Nodes send what they have where the launcher numbers them: torchrun, srun and mpirun do; else set "
    "LOCAL_RANK and LOCAL_WORLD_SIZE on each rank"
)
_WORDS = {
    DEAD: "is dead",
    FAILED: "has failed",
    STOPPED: "is stopped (SIGSTOP, a debugger?)",
    ALIVE: "is late",
    UNSEEN: "is late",
}


class Reducer:
    """Reduces one attempt.

    Args:
        wait_s: how long a value waits for a rank.
        ended: the attempt is over: no rank adds anything.
        say: called with one line for the user.
    """

    def __init__(self, run: RunDirectory, attempt: int, *, wait_s: float, ended: bool, say: Callable[[str], None]):
        info = run.read_info()
        folder = folder_of(run, info, attempt)
        entry = next((e for e in info.attempts if e.get("number") == attempt), {})
        if folder is None:
            raise NotFound(f"attempt {attempt} of {run.path} has no values across ranks")
        self.run = run
        self.attempt = attempt
        self._folder = folder
        self._wait_s = wait_s
        self._say = say
        self._ended = ended
        self._ended_at = 0.0
        self._ranks = range(int(entry.get("ranks", 1)))
        self._gathering = Gathering(self._ranks, int(entry.get("rank", 0)), say)
        self._reduced = Reduced(run, attempt)
        sends = nodes.store_of(info, folder) is not None
        has_others = int(entry.get("nodes", 1)) > 1
        self._arrivals = ArrivalsReader(folder, sends and has_others)
        self._unnumbered = (
            UNNUMBERED if (sends or info.option("TRACKER_NODES", "") == NETWORK) and not has_others else ""
        )
        self._began_at = time.monotonic()
        self._first_s = 0.0 if self._arrivals.final else FIRST_S
        self._files: dict[StreamName, RankFile] = {}
        self._by_rank: dict[int, RankFile] = {}
        self._gone: set[int] = set()
        self._pending_output: tuple[list[bytes], bool] | None = None
        self._looked_at = -1e9
        self._named_states: dict[int, str] = {}
        self._missed_counts: dict[int, int] = {}
        superseded = AttemptHistory(run)
        self._until, self._limit = superseded.until(attempt), superseded.limit(attempt)
        state = self._reduced.state
        self._defines = list(state.defines)
        self._marked, self._time = set(state.marked), state.time
        self._gathering.seeds = self._reduced.seeds
        for name, stored in state.series.items():
            owed = {rank: StepRanges(spans) for rank, spans in stored.owed.items()}
            givers = set(self._ranks) - set(stored.never)
            series = WindowCells(name, KINDS[stored.kind], self._ranks, givers=givers, owed=owed)
            series.awaited -= set(stored.waived)
            self._gathering.series[name] = series

    @property
    def done(self) -> bool:
        """Whether everything is passed on, and nothing more can come."""
        return self._reduced.state.done

    def end(self) -> None:
        """Training is over: ranks that haven't ended are waited for until the deadline."""
        self._ended = True

    def step(self) -> bool:
        """Read new rows, and pass on complete values. True if there were new rows."""
        if self.done:
            return False
        now = time.monotonic()
        if self._ended and not self._ended_at:
            # The deadline runs from the end of the main rank, which may be long ago.
            self._ended_at = now - max(0.0, time.time() - end_of(self.run, self.attempt))
        if now - self._looked_at >= LOOK_S or self._ended:
            self._looked_at = now
            self._reduced.restore_if_deleted()
            self._add_streams()
        if self._pending_output is not None and not self._append():  # the disk is full: keep it, and read nothing more
            return False
        busy = False
        self._arrivals.refresh()  # before the streams whose state it has
        for file in self._files.values():
            for row, line, columns, only in file.read(self._defines):
                busy = True
                if self._is_in_attempt(row):
                    self._gathering.add(file.rank, row.step, row.time, line, columns, row.values, now, only)
                else:
                    line.left = 0
        self._update_gone(now)
        self._publish(now)
        return busy

    def close(self) -> None:
        """Release the stream; another reducer can continue."""
        self._reduced.close()

    def _is_in_attempt(self, row: records.RankRow) -> bool:
        if self._until is not None and row.time > self._until:
            return False
        return self._limit is None or (row.step or 0) <= self._limit

    def _add_streams(self) -> None:
        """Add new streams of ranks."""
        streams = rank_streams(self._folder)
        kept_folder = self.run.path / KEPT
        streams.update({name: path for name, path in rank_streams(kept_folder).items() if name.attempt == self.attempt})
        if not streams.keys() - self._files.keys():
            return
        served_span = span(self._folder, self.run, self.attempt)
        positions = self._reduced.state.streams
        for name, path in streams.items():
            if name in self._files or name.number not in self._ranks:
                continue
            file = RankFile(name, path, positions.get(str(name)), self._arrivals)
            if path.parent != kept_folder and (
                served_span is None or file.began is None or not served_span[0] < file.began <= served_span[1]
            ):
                continue
            newest = self._by_rank.get(file.rank)
            if newest is not None and str(newest.name) not in positions and not newest.lines:
                del self._files[newest.name]  # a newer process has replaced its writer before it was read
            self._files[name] = file
            self._by_rank[file.rank] = file

    def _update_gone(self, now: float) -> None:
        over = bool(self._ended_at) and now - self._ended_at > self._wait_s
        gone = set()
        for rank in self._ranks:
            file = self._by_rank.get(rank)
            if file is None:
                if over and self._arrivals.final:
                    gone.add(rank)
            elif file.is_finished() or (over and file.current and not file.may_grow):
                gone.add(rank)
        newly_gone = [file for rank in sorted(gone - self._gone) if (file := self._by_rank.get(rank)) is not None]
        for state, singular, plural in ((DEAD, "is dead", "are dead"), (FAILED, "has failed", "have failed")):
            lost = [file for file in newly_gone if file.state() == state]
            if lost and not self._ended:
                self._named_states.update({file.rank: state for file in lost})
                who = f"{', '.join(map(str, lost[:8]))}{' …' if len(lost) > 8 else ''}"
                why = f" ({lost[0].reason})" if lost[0].reason else ""
                verb = singular if len(lost) == 1 else plural
                self._say(f"{who} {verb}{why}: from here on values across ranks are recorded without")
        self._gone = gone

    def _late_ranks(self, series: WindowCells, opened: float) -> Collection[int] | None:
        """Ranks that are too late for a series' first cell; None: the cell can wait."""
        due = opened + self._wait_s
        if time.monotonic() < due:
            return None
        missing = series.waits_for()
        files = [self._by_rank.get(rank) for rank in missing]
        if any(file is not None and file.current < due for file in files):  # not read to its end after the deadline
            return None
        if None in files and (self._arrivals.may_come(due) or time.monotonic() - self._began_at < self._first_s):
            return None
        elsewhere = [rank for rank in missing if rank not in series.givers and self._logs(rank)]
        if elsewhere:
            series.awaited.difference_update(elsewhere)
            givers = _ranges(sorted(series.givers))
            self._say(
                f"{series.name} is logged by rank {givers} only, rank {_ranges(elsewhere)} never did: "
                "it is a value of those that log it"
            )
        return [rank for rank in missing if rank not in elsewhere]

    def _logs(self, rank: int) -> bool:
        file = self._by_rank.get(rank)
        return file is not None and file.rows

    def _publish(self, now: float) -> None:
        ready = self._gathering.ready(self._gone, self._late_ranks)
        lines = [records.encode(record) for record in self._records(ready)]
        finishing = self._is_over()
        if finishing:
            lines += self._summary_lines(ready)
        if lines or finishing:
            self._pending_output = lines, finishing
            self._append()

    def _append(self) -> bool:
        assert self._pending_output is not None
        lines, finishing = self._pending_output
        if not self._reduced.append(lines, self._state(finishing)):
            return False
        self._pending_output = None
        if finishing:
            self._keep_streams()
        return True

    def _records(self, ready: list[tuple[WindowCells, Cell]]) -> list[records.Record]:
        groups: dict[tuple[int | None, float], list[tuple[WindowCells, Cell]]] = {}
        for series, cell in ready:
            groups.setdefault((cell.step, cell.time), []).append((series, cell))
        output: list[records.Record] = []
        for (step, moment), members in sorted(groups.items(), key=lambda group: group[0][1]):
            values: dict[str, Number] = {}
            missing: set[int] = set()
            came: set[int] = set()
            for series, cell in members:
                series.result(cell, values)
                missing.update(cell.missing)
                came.update(cell.parts)
            missing = {rank for rank in missing if self._state_of(rank) != FINISHED}
            self._mark_missing(step, values, missing, came)
            self._time = max(moment, self._time)
            results = {name: value for name, value in values.items() if name.startswith(records.SUMMARY_PREFIX)}
            rest = {name: value for name, value in values.items() if name not in results}
            if rest:
                output.append(Metrics(step=step, time=self._time, values=rest))
            if results:
                output.append(Summary(step=step, time=self._time, values=dict(results)))
        return output

    def _mark_missing(self, step: int | None, values: dict[str, Number], missing: set[int], came: set[int]) -> None:
        """Add the missing ranks to the values, and name them to the user."""
        back = (self._marked & came) - missing
        if not missing and not back:
            return
        values[STRAGGLERS + "missing"] = len(missing)
        fresh = sorted(missing - self._marked)
        for rank in fresh[:MOST_NAMED]:
            values[f"{STRAGGLERS}rank_{rank}"] = 1
        for rank in sorted(back)[:MOST_NAMED]:
            values[f"{STRAGGLERS}rank_{rank}"] = 0
            self._named_states.pop(rank, None)
            count = self._missed_counts.pop(rank, 0)
            self._say(f"{self._by_rank[rank]} is back at step {step}; {count} values were recorded without it")
        for rank in missing:
            self._missed_counts[rank] = self._missed_counts.get(rank, 0) + 1
            if rank in fresh:
                self._name_missing(rank, self._state_of(rank), f"step {step} is recorded without it")
        self._marked = (self._marked | missing) - back

    def _name_missing(self, rank: int, state: str, what: str) -> None:
        if self._named_states.get(rank) == state:
            return
        self._named_states[rank] = state
        file = self._by_rank.get(rank)
        if file is None:
            where = (
                "into the same TRACKER_DIR (of several nodes: a shared one, or a store; or with TRACKER_NODES=network)"
            )
            if not self._arrivals.final:
                where = "also on other nodes (where it does, relay.log of the launch there says why nothing comes)"
            self._say(
                f"rank {rank} hasn't logged any value across ranks within {self._wait_s:g} s: {what}. Every rank "
                f"has to log them, {where} and under the same TRACKER_RUN_ID{self._unnumbered}"
            )
        elif state in (DEAD, FAILED):
            self._say(f"{file} {_WORDS[state]}: {what}")
        else:
            self._say(f"{file} {_WORDS.get(state, 'is late')}: {what}, after {self._wait_s:g} s; nobody waits for it")

    def _state_of(self, rank: int) -> str:
        file = self._by_rank.get(rank)
        return UNSEEN if file is None else file.state()

    def _is_over(self) -> bool:
        if not self._ended_at or len(self._gone) < len(self._ranks):
            return False
        return not any(series.cells for series in self._gathering.series.values())

    def _summary_lines(self, ready: list[tuple[WindowCells, Cell]]) -> list[bytes]:
        """Encoded results of values across ranks that ``define_metric`` asked for."""
        for rank, file in self._by_rank.items():
            if file.state() not in ENDED:
                self._say(f"{file} hadn't ended {self._wait_s:g} s after the main rank: what it adds now is left out")
            self._missed_counts.pop(rank, None)
        fold = SummaryFold()
        for define in self._defines:
            fold.define(define)
        if not fold.definitions.ask_for_results():
            return []
        explicit = explicit_results(self.run, self.attempt)
        rows = (*self._reduced.results(), *self._records_of(ready), *explicit)
        for record in sorted(rows, key=lambda record: record.time):
            if isinstance(record, Metrics):
                fold.update(record.values)
            elif isinstance(record, Summary) and record.removed:
                fold.give(Summary(time=record.time, values={}, removed=record.removed))
        names = {records.final_name(name) for record in explicit for name in record.values}
        values = {name: value for name, value in fold.results().items() if name not in names}
        return [records.encode(Summary(time=self._time, values=values, derived=True))] if values else []

    def _records_of(self, ready: list[tuple[WindowCells, Cell]]) -> list[records.Record]:
        output: list[records.Record] = []
        for series, cell in ready:
            values: dict[str, Number] = {}
            series.result(cell, values)
            output.append(Metrics(step=cell.step, time=cell.time, values=values))
        return output

    def _state(self, done: bool) -> OutputState:
        partly = self._gathering.open_names([line for file in self._files.values() for line in file.partly()])
        series = {}
        for name, cells in self._gathering.series.items():
            owed = {rank: steps.spans for rank, steps in cells.owed.items() if steps}
            never = [rank for rank in self._ranks if rank not in cells.givers]
            waived = [rank for rank in self._ranks if rank not in cells.awaited]
            series[name] = SeriesState(kind=cells.kind.kind, never=never, waived=waived, owed=owed)
        positions = dict(self._reduced.state.streams)
        positions |= {str(name): file.position(partly) for name, file in self._files.items()}
        return OutputState(
            streams=positions,
            series=series,
            defines=self._defines,
            marked=sorted(self._marked),
            time=self._time,
            done=done,
        )

    def _keep_streams(self) -> None:
        """Move the ranks' streams into the run's directory, so that they are deleted with it."""
        kept_folder = self.run.path / KEPT
        for file in self._by_rank.values():
            if file.state() in ENDED and file.path.parent != kept_folder:
                target = kept_folder / f"{StreamName('rank', file.rank, self.attempt)}.jsonl"
                try:
                    confined.make_folder(kept_folder)
                    confined.move(file.path, target)
                except OSError:  # they stay in the launch's folder, which is no harm
                    return
        if span(self._folder, self.run, self.attempt) is not None:
            remove_if_empty(self._folder)


def explicit_results(run: RunDirectory, attempt: int) -> list[Summary]:
    """The results that the main rank recorded itself."""
    found: list[Summary] = []
    try:
        with confined.open_file(run.stream(StreamName("rank", 0, attempt))) as lines:
            for line in lines:
                if b'"kind":"summary"' in line:
                    record = records.decode(line.rstrip(b"\n"))
                    if isinstance(record, Summary) and not record.derived:
                        found.append(record)
    except (OSError, records.CorruptLine):
        pass
    return found


def _ranges(ranks: Sequence[int]) -> str:
    """Ranges of ranks: ``0-3, 6``."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
