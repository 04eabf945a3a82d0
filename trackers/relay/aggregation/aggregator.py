"""Values across ranks, out of band: reads what each rank left in files, and records one number of all of them.

Training waits for nobody: a rank that is late, stopped or dead is named, once, and the value is recorded without it
after a deadline, with ``stragglers/missing`` beside it and ``stragglers/rank_<n>`` where a rank goes missing (1) or
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
from trackers.ranks.launch import end_of, folder_of, rank_streams, span, tidy
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
"""Between looks for ranks that have come and ranks that have died."""
MOST_NAMED = 32
"""Maximum number of missing ranks that get a value of their own."""
STRAGGLERS = "stragglers/"
KEPT = "ranks"
"""Folder in the run's directory for the ranks' streams after they are reduced."""
FIRST_S = 60.0
"""How long the first values wait for ranks of other nodes that send theirs through a store, in seconds."""
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
        ended: the attempt is over: nobody adds anything any more.
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
        sent = nodes.store_of(info, folder) is not None
        several = int(entry.get("nodes", 1)) > 1
        self._arrivals = ArrivalsReader(folder, sent and several)
        self._unnumbered = UNNUMBERED if (sent or info.option("TRACKER_NODES", "") == NETWORK) and not several else ""
        self._began = time.monotonic()
        self._first_s = 0.0 if self._arrivals.final else FIRST_S
        self._files: dict[StreamName, RankFile] = {}
        self._by_rank: dict[int, RankFile] = {}
        self._gone: set[int] = set()
        self._held: tuple[list[bytes], bool] | None = None
        self._looked = -1e9
        self._word: dict[int, str] = {}
        self._without: dict[int, int] = {}
        superseded = AttemptHistory(run)
        self._until, self._limit = superseded.until(attempt), superseded.limit(attempt)
        state = self._reduced.state
        self._defines = list(state.defines)
        self._marked, self._time = set(state.marked), state.time
        self._gathering.seeds = self._reduced.seeds
        for name, kept in state.series.items():
            owed = {rank: StepRanges(spans) for rank, spans in kept.owed.items()}
            givers = set(self._ranks) - set(kept.never)
            series = WindowCells(name, KINDS[kept.kind], self._ranks, givers=givers, owed=owed)
            series.awaited -= set(kept.waived)
            self._gathering.series[name] = series

    @property
    def done(self) -> bool:
        """Everything is passed on, and nothing more can come."""
        return self._reduced.state.done

    def end(self) -> None:
        """Training is over: ranks that haven't ended have the deadline left."""
        self._ended = True

    def turn(self) -> bool:
        """Read what has come and pass on what is complete. True if there was anything to read."""
        if self.done:
            return False
        now = time.monotonic()
        if self._ended and not self._ended_at:
            # The deadline runs from the end of the main rank, which may be long ago.
            self._ended_at = now - max(0.0, time.time() - end_of(self.run, self.attempt))
        if now - self._looked >= LOOK_S or self._ended:
            self._looked = now
            self._reduced.see_there()
            self._look()
        if self._held is not None and not self._append():  # the disk is full: nothing is forgotten meanwhile
            return False
        busy = False
        self._arrivals.look()  # before what it speaks of is read
        for file in self._files.values():
            for row, line, columns, only in file.read(self._defines):
                busy = True
                if self._counts(row):
                    self._gathering.add(file.rank, row.step, row.time, line, columns, row.values, now, only)
                else:
                    line.left = 0
        self._see_gone(now)
        self._publish(now)
        return busy

    def close(self) -> None:
        """Leave everything as it is; another one can go on."""
        self._reduced.close()

    def _counts(self, row: records.RankRow) -> bool:
        if self._until is not None and row.time > self._until:
            return False
        return self._limit is None or (row.step or 0) <= self._limit

    def _look(self) -> None:
        """Take in streams that have come."""
        streams = rank_streams(self._folder)
        kept = self.run.path / KEPT
        streams.update({name: path for name, path in rank_streams(kept).items() if name.attempt == self.attempt})
        if not streams.keys() - self._files.keys():
            return
        served = span(self._folder, self.run, self.attempt)
        marks = self._reduced.state.streams
        for name, path in streams.items():
            if name in self._files or name.number not in self._ranks:
                continue
            file = RankFile(name, path, marks.get(str(name)), self._arrivals)
            if path.parent != kept and (
                served is None or file.began is None or not served[0] < file.began <= served[1]
            ):
                continue
            newest = self._by_rank.get(file.rank)
            if newest is not None and str(newest.name) not in marks and not newest.lines:
                del self._files[newest.name]  # of a process that a newer one replaced before anybody looked
            self._files[name] = file
            self._by_rank[file.rank] = file

    def _see_gone(self, now: float) -> None:
        over = bool(self._ended_at) and now - self._ended_at > self._wait_s
        gone = set()
        for rank in self._ranks:
            file = self._by_rank.get(rank)
            if file is None:
                if over and self._arrivals.final:
                    gone.add(rank)
            elif file.gone() or (over and file.current and not file.comes):
                gone.add(rank)
        fresh = [file for rank in sorted(gone - self._gone) if (file := self._by_rank.get(rank)) is not None]
        for state, one, several in ((DEAD, "is dead", "are dead"), (FAILED, "has failed", "have failed")):
            lost = [file for file in fresh if file.state() == state]
            if lost and not self._ended:
                self._word.update({file.rank: state for file in lost})
                who = f"{', '.join(map(str, lost[:8]))}{' …' if len(lost) > 8 else ''}"
                why = f" ({lost[0].reason})" if lost[0].reason else ""
                are = one if len(lost) == 1 else several
                self._say(f"{who} {are}{why}: from here on values across ranks are recorded without")
        self._gone = gone

    def _behind(self, series: WindowCells, opened: float) -> Collection[int] | None:
        """Who is too late for a series' first cell; None: it can wait."""
        due = opened + self._wait_s
        if time.monotonic() < due:
            return None
        missing = series.waits_for()
        files = [self._by_rank.get(rank) for rank in missing]
        if any(file is not None and file.current < due for file in files):  # not read to its end since
            return None
        if None in files and (self._arrivals.may_come(due) or time.monotonic() - self._began < self._first_s):
            return None
        elsewhere = [rank for rank in missing if rank not in series.givers and self._logs(rank)]
        if elsewhere:
            series.awaited.difference_update(elsewhere)
            there = _listed(sorted(series.givers))
            self._say(
                f"{series.name} is logged by rank {there} only, rank {_listed(elsewhere)} never did: "
                "it is a value of those that log it"
            )
        return [rank for rank in missing if rank not in elsewhere]

    def _logs(self, rank: int) -> bool:
        file = self._by_rank.get(rank)
        return file is not None and file.rows

    def _publish(self, now: float) -> None:
        ready = self._gathering.ready(self._gone, self._behind)
        lines = [records.encode(record) for record in self._records(ready)]
        finishing = self._is_over()
        if finishing:
            lines += self._results(ready)
        if lines or finishing:
            self._held = lines, finishing
            self._append()

    def _append(self) -> bool:
        assert self._held is not None
        lines, finishing = self._held
        if not self._reduced.append(lines, self._state(finishing)):
            return False
        self._held = None
        if finishing:
            self._keep_streams()
        return True

    def _records(self, ready: list[tuple[WindowCells, Cell]]) -> list[records.Record]:
        groups: dict[tuple[int | None, float], list[tuple[WindowCells, Cell]]] = {}
        for series, cell in ready:
            groups.setdefault((cell.step, cell.time), []).append((series, cell))
        found: list[records.Record] = []
        for (step, moment), members in sorted(groups.items(), key=lambda group: group[0][1]):
            values: dict[str, Number] = {}
            missing: set[int] = set()
            came: set[int] = set()
            for series, cell in members:
                series.result(cell, values)
                missing.update(cell.missing)
                came.update(cell.parts)
            missing = {rank for rank in missing if self._state_of(rank) != FINISHED}
            self._mark(step, values, missing, came)
            self._time = max(moment, self._time)
            results = {name: value for name, value in values.items() if name.startswith(records.SUMMARY_PREFIX)}
            rest = {name: value for name, value in values.items() if name not in results}
            if rest:
                found.append(Metrics(step=step, time=self._time, values=rest))
            if results:
                found.append(Summary(step=step, time=self._time, values=dict(results)))
        return found

    def _mark(self, step: int | None, values: dict[str, Number], missing: set[int], came: set[int]) -> None:
        """Say who is missing, beside the values and to the user."""
        back = (self._marked & came) - missing
        if not missing and not back:
            return
        values[STRAGGLERS + "missing"] = len(missing)
        fresh = sorted(missing - self._marked)
        for rank in fresh[:MOST_NAMED]:
            values[f"{STRAGGLERS}rank_{rank}"] = 1
        for rank in sorted(back)[:MOST_NAMED]:
            values[f"{STRAGGLERS}rank_{rank}"] = 0
            self._word.pop(rank, None)
            count = self._without.pop(rank, 0)
            self._say(f"{self._by_rank[rank]} is back at step {step}; {count} values were recorded without it")
        for rank in missing:
            self._without[rank] = self._without.get(rank, 0) + 1
            if rank in fresh:
                self._name(rank, self._state_of(rank), f"step {step} is recorded without it")
        self._marked = (self._marked | missing) - back

    def _name(self, rank: int, state: str, what: str) -> None:
        if self._word.get(rank) == state:
            return
        self._word[rank] = state
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

    def _results(self, ready: list[tuple[WindowCells, Cell]]) -> list[bytes]:
        """What ``define_metric`` asked for, of values across ranks."""
        for rank, file in self._by_rank.items():
            if file.state() not in ENDED:
                self._say(f"{file} hadn't ended {self._wait_s:g} s after the main rank: what it adds now is left out")
            self._without.pop(rank, None)
        fold = SummaryFold()
        for define in self._defines:
            fold.define(define)
        if not fold:
            return []
        for record in (*self._reduced.results(), *self._records_of(ready)):
            if isinstance(record, Metrics):
                fold.update(record.values)
        given = explicit_results(self.run, self.attempt)
        values = {name: value for name, value in fold.results().items() if name not in given}
        return [records.encode(Summary(time=self._time, values=values))] if values else []

    def _records_of(self, ready: list[tuple[WindowCells, Cell]]) -> list[records.Record]:
        found: list[records.Record] = []
        for series, cell in ready:
            values: dict[str, Number] = {}
            series.result(cell, values)
            found.append(Metrics(step=cell.step, time=cell.time, values=values))
        return found

    def _state(self, done: bool) -> OutputState:
        partly = self._gathering.open_names([line for file in self._files.values() for line in file.partly()])
        series = {}
        for name, one in self._gathering.series.items():
            owed = {rank: steps.spans for rank, steps in one.owed.items() if steps}
            never = [rank for rank in self._ranks if rank not in one.givers]
            waived = [rank for rank in self._ranks if rank not in one.awaited]
            series[name] = SeriesState(kind=one.kind.kind, never=never, waived=waived, owed=owed)
        marks = dict(self._reduced.state.streams)
        marks |= {str(name): file.mark(partly) for name, file in self._files.items()}
        return OutputState(
            streams=marks,
            series=series,
            defines=self._defines,
            marked=sorted(self._marked),
            time=self._time,
            done=done,
        )

    def _keep_streams(self) -> None:
        """Put the ranks' streams into the run's directory, where they end with it."""
        kept = self.run.path / KEPT
        for file in self._by_rank.values():
            if file.state() in ENDED and file.path.parent != kept:
                target = kept / f"{StreamName('rank', file.rank, self.attempt)}.jsonl"
                try:
                    confined.make_folder(kept)
                    confined.move(file.path, target)
                except OSError:  # they stay where they are, which is no harm
                    return
        if span(self._folder, self.run, self.attempt) is not None:
            tidy(self._folder)


def explicit_results(run: RunDirectory, attempt: int) -> set[str]:
    """Names of the results that the main rank recorded itself."""
    found: set[str] = set()
    try:
        with confined.open_file(run.stream(StreamName("rank", 0, attempt))) as lines:
            for line in lines:
                if b'"kind":"summary"' in line:
                    record = records.decode(line.rstrip(b"\n"))
                    found.update(map(records.final_name, getattr(record, "values", ())))
    except (OSError, records.CorruptLine):
        pass
    return found


def _listed(ranks: Sequence[int]) -> str:
    """``0-3, 6``."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
