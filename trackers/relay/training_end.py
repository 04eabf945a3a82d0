"""How an attempt of training ends: which finish record is true of it, and what it would have recorded besides."""

from __future__ import annotations

import time
from collections.abc import Callable

from trackers.journal import live_files, span_table, status
from trackers.journal.attempts import results_of_killed
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import FinishSearch
from trackers.media import MediaStore
from trackers.records import Finish, Record, files_of
from trackers.support.backlog import Backlog
from trackers.support.processes import Watched
from trackers.tracker import RunInfo

DISK_PATIENCE_S = 60.0
"""Time after the end of a killed training in which the disk is waited for, in seconds."""


class TrainingEnd:
    """The end of an attempt's training, as its process and its stream tell it.

    Args:
        watch: the process: pid, start, and a descriptor of it where one is inherited, which is taken over; None where
            none is watched (``trackers sync``).
    """

    def __init__(
        self, run: RunDirectory, attempt: int, watch: tuple[int, float] | tuple[int, float, int] | None
    ) -> None:
        self._run, self._attempt = run, attempt
        self.process = Watched(*watch) if watch else None
        self._search = FinishSearch(run.stream(StreamName("rank", 0, attempt)))
        self._gone_at = 0.0
        self._was_death = False

    def stated(self) -> Finish | None:
        """The finish record that training wrote itself."""
        return self._search.read()

    def found(self) -> Finish | None:
        """The finish record of a training that has ended, its own one or the one that it couldn't write."""
        finish = self.stated()
        if finish is None and not (
            self.process.alive() if self.process else status.observe(self._run).name == "running"
        ):
            finish = self.stated()  # written as it died
            if finish is None and not self._goes_on():
                finish = self._death()
        return finish

    def _goes_on(self) -> bool:
        """Whether a child that training forked continues the run: a daemon, whose parent exits at once."""
        if self.process is None or self._was_death:
            return False
        code = self.process.exit_code()
        child = status.living_child(self._run, self._attempt) if code == 0 else None
        if code is None:
            child = status.daemon_child(self._run, self._attempt)
        if child is not None:
            status.follow_child(self._run, self._attempt, child)
            self.watch_child()
            self._gone_at = 0.0
            return True
        now = time.monotonic()
        self._gone_at = self._gone_at or now
        self._was_death = code != 0 or now - self._gone_at > status.GRACE_S
        return not self._was_death

    def watch_child(self) -> None:
        """Watch the child that continues the run, where one does."""
        child = status.named_child(self._run, self._attempt)
        if self.process is not None and child is not None and child != (self.process.pid, self.process.start):
            self.process.close()
            self.process = Watched(*child)

    def corrected(self, stated: Finish) -> Finish:
        """Training's own finish record, corrected by the exit code that it then had."""
        code = self.process.exit_code() if self.process else None
        return status.noted(self._run, self._attempt, stated) if code is None else status.revised(stated, code)

    def _death(self) -> Finish:
        """A finish record for a process that wrote none."""
        now = time.time()
        if status.is_preempted(self._run, self._attempt):
            return Finish(time=now, status="preempted", reason=status.PREEMPTED)
        code = self.process.exit_code() if self.process else None
        if code is None:
            return Finish(time=now, status="crashed", reason="the process was killed or died")
        return status.judged(code, now)

    def forget_files(self) -> None:
        """Remove what names the files that are kept while it trains: its end is written."""
        live_files.forget(self._run, self._attempt)

    def close(self) -> None:
        """Watch no more."""
        if self.process is not None:
            self.process.close()


class LastRecords:
    """What a killed training would have recorded at its end.

    Args:
        moment: when it ended, seconds since 1970.
    """

    def __init__(self, run: RunDirectory, attempt: int, moment: float, info: RunInfo) -> None:
        self._backlog = Backlog(MediaStore(run.path).place)
        spans = span_table.of_killed(run, attempt, moment, info, self._backlog)
        files = live_files.of_killed(run, attempt, moment, self._backlog)
        self._records: list[Record] = [*spans, *files, *results_of_killed(run, moment)]
        self._until = time.monotonic() + DISK_PATIENCE_S

    def placed(self, say: Callable[[str, str], None]) -> list[Record] | None:
        """The records whose files are in their place; None while the disk refuses files, and is waited for."""
        if self._backlog.retry(all_of_it=True):
            return self._records
        if time.monotonic() < self._until:
            return None
        kept = [record for record in self._records if not self._backlog.waits_for(files_of(record))]
        lost = len(self._records) - len(kept)
        say(f"{lost} records of files of the killed run were lost: {self._backlog.error}", "")
        return kept
