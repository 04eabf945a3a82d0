"""A run, as training sees it: values go in, one line a call is appended to the journal, nothing waits."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from trackers import records
from trackers.attributes import RunConfig, RunSummary
from trackers.definitions import SummaryFold, parse_summary
from trackers.journal import StreamReader, StreamWriter
from trackers.pending import Queue, Transfer, Waiting, transfer
from trackers.records import Alert, Config, Define, Finish, Info, Metrics, Number, Record, Summary, Text
from trackers.relay.client import RelayClient
from trackers.rundir import RunDirectory
from trackers.tracker import RunInfo
from trackers.values import Split, plain

POLL_S = 1.0
"""How often ``log`` looks after the relay and prints what it has to say."""
KNOWN_NAMES = 100_000
DRAIN_S = 10.0


class Run:
    """One training run. Made by ``trackers.init``.

    Once it has started, no method raises because of a tracker, a disk or a value, and none waits for a network
    or an accelerator. What can't be recorded is named in a warning, once.

    Attributes:
        id, name, project, group, job_type, tags, notes, mode: as in every tracker.
        config: the configuration, nested; setting a key records the change.
        summary: results; setting a key records a result (``final/``).
        dir: the run's directory. resumed: it continues an earlier attempt. disabled: False.
    """

    disabled = False

    def __init__(
        self,
        info: RunInfo,
        run: RunDirectory,
        writer: StreamWriter,
        relay: RelayClient,
        *,
        clock: Callable[[], float],
        first_step: int = 0,
        inside: Any = None,
    ) -> None:
        self._info = info
        self._run = run
        self._writer = writer
        self._relay = relay
        self._clock = clock
        self._inside = inside
        self._queue = Queue(self._append)
        self._step = first_step - 1
        self._known: set[str] = set()
        self._fold: SummaryFold | None = None
        self._problems: set[str] = set()
        self._finished = False
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._on_finish: list[Callable[[Run], None]] = []
        self.config = RunConfig(info.config, self._record_config)
        self.summary = RunSummary(self._record_summary, self._last_logged)
        # Bound once: each lookup that log() saves is a tenth of what it costs.
        self._encode = records.line_encoder
        self._monotonic = time.monotonic
        self._offset = clock() - time.monotonic()
        self._poll_at = self._offset + time.monotonic() + POLL_S
        self._fd = writer.fd
        self._fast = inside is None

    # What a run is -------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def name(self) -> str:
        return self._info.name

    @name.setter
    def name(self, value: str) -> None:
        self._info.name = str(value)
        self._record(Info(time=self._now(), name=str(value)))

    @property
    def project(self) -> str:
        return self._info.project

    @property
    def entity(self) -> str:
        return str(self._info.option("WANDB_ENTITY", ""))

    @property
    def group(self) -> str | None:
        return self._info.group

    @property
    def job_type(self) -> str | None:
        return self._info.job_type

    @property
    def mode(self) -> str:
        return self._info.mode

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self._info.tags)

    @tags.setter
    def tags(self, value: Iterable[str]) -> None:
        self._info.tags = [str(tag) for tag in value]
        self._record(Info(time=self._now(), tags=self._info.tags))

    @property
    def notes(self) -> str | None:
        return self._info.notes

    @notes.setter
    def notes(self, value: str) -> None:
        self._info.notes = str(value)
        self._record(Info(time=self._now(), notes=str(value)))

    @property
    def dir(self) -> str:
        return str(self._run.path)

    path = dir

    @property
    def step(self) -> int:
        """The step of the last record; 0 before the first."""
        return max(self._step, 0)

    @property
    def resumed(self) -> bool:
        return len(self._info.attempts) > 1

    @property
    def start_time(self) -> float:
        """When this attempt began, Unix seconds."""
        return float(self._info.attempts[-1]["time"]) if self._info.attempts else self._info.created

    @property
    def url(self) -> str | None:
        """The run's page at W&B or the first tracker that has one; None while none is known."""
        urls = {name: str(state.get("url", "")) for name, state in self.status().items() if isinstance(state, dict)}
        links = {name: url for name, url in urls.items() if url.startswith("http")}
        return links.get("wandb") or next(iter(links.values()), None)

    # Recording -----------------------------------------------------------------------------------------------

    def log(
        self,
        values: Mapping[str, Any],
        step: int | None = None,
        commit: bool | None = None,
        sync: bool | None = None,
    ) -> None:
        """Record metric values at a training step, without waiting for any tracker.

        Args:
            values: name to number, tensor scalar, text or media; nested mappings are joined with "/".
                NaN and infinities are kept, None is left out. A value on a GPU is read when it is ready, not
                waited for. Names that begin with "final/" are results, not points of a series.
            step: finished optimizer steps, 0 or more; may repeat or go back. None: one more than the last.
            commit: False: the next call without a step has the same step (as in W&B).
            sync: taken for W&B's sake.

        Never raises once the run has started: a value that can't be recorded is named in a warning, once.
        """
        if step is None:
            step = self._step + 1
            keep = commit is False
        else:
            keep = False
        written = -1
        try:
            now = self._offset + self._monotonic()
            if self._fast and type(step) is int:
                line = self._encode(Metrics(step=step, time=now, values=values)) + b"\n"  # type: ignore[arg-type]
                # The sum tells numbers from text, and finds NaN and infinities, which JSON can't write.
                if self._known.issuperset(values) and math.isfinite(sum(values.values())):
                    written = os.write(self._fd, line)
                    if not keep:
                        self._step = step
                    if written == len(line):
                        if self._fold is not None:
                            self._fold.update(values)
                    else:
                        self._fast = False
                        self._writer.repair(line, written)
                    if now > self._poll_at:
                        self._poll(now)
                    return
        except Exception:  # whatever it was, the slow way finds out and says it
            if written >= 0:
                return
        self._guard("log", self._log_slowly, values, step, keep)

    log_metrics = log

    def log_hyperparams(self, params: Any = None, **more: Any) -> None:
        """Add to the configuration (Lightning's name for it)."""
        self._guard("log_hyperparams", self.config.update, params, **more)

    def define_metric(
        self,
        name: str,
        step_metric: str | None = None,
        step_sync: bool | None = None,
        hidden: bool | None = None,
        summary: str | Sequence[str] | None = None,
        goal: str | None = None,
        overwrite: bool | None = None,
    ) -> None:
        """Say how a metric is to be read.

        Args:
            name: a metric's name, or a glob such as "val/*".
            step_metric: the metric that is its x axis, where a tracker has such a thing.
            summary: min, max, mean, last, first, best or none, or several ("min,max"): the result
                ``final/<name>`` fills itself.
            goal: minimize or maximize: what "best" means (default minimize).

        Raises:
            UsageError: an unknown word for summary or goal.
        """
        words = parse_summary(summary, goal)
        define = Define(
            time=self._now(), name=str(name), step_metric=step_metric, summary=words, goal=goal, hidden=bool(hidden)
        )
        self._guard("define_metric", self._define, define)

    def alert(self, title: str, text: str = "", level: Any = "INFO", wait_duration: Any = None) -> None:
        """Send a message to the people who watch the run, by the trackers that can. level: INFO, WARN, ERROR."""
        word = str(getattr(level, "value", level)).upper()
        self._record(Alert(time=self._now(), step=self.step, title=str(title), text=str(text), level=word))

    def log_artifact(
        self,
        artifact: Any,
        name: str | None = None,
        type: str | None = None,
        aliases: Sequence[str] | None = None,
        policy: str = "copy",
        metadata: Mapping[str, Any] | None = None,
    ) -> Any:
        """Keep a file or directory with the run as it is now, though it may be overwritten later.

        Args:
            artifact: a path, or an ``Artifact`` with several files.
            name: its name in the trackers; default the file's name.
            type: "model" for a checkpoint, "dataset", …; default "file".
            policy: "copy" (a reflink where the filesystem can), or "link" for a file that will be replaced,
                never rewritten in place.

        Returns:
            the artifact, as W&B does.
        """
        self._guard("log_artifact", self._log_artifact, artifact, name, type, aliases, policy, metadata)
        return artifact

    def save(self, glob_str: Any = None, base_path: Any = None, policy: str = "live") -> list[str]:
        """Keep the files that match a glob, as they are now. Returns their paths."""
        found: list[str] = []
        self._guard("save", self._save, glob_str, base_path, found)
        return found

    def mark_preempting(self) -> None:
        """The process is about to be preempted: if it ends now, the run's status is preempted, not crashed."""
        self._guard("mark_preempting", self._record_preempting)

    # Standing ------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, dict[str, Any]]:
        """How each tracker stands: delivered, waiting, rejected, stopped, error, url; reads files, asks no network."""
        from trackers.relay.report import report

        try:
            return report(self._run, self._info.trackers)
        except Exception as error:
            self._problem(f"status: {error}")
            return {}

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until every tracker has what was logged so far, at most ``timeout`` seconds. True if they have."""
        if self._finished:
            return True
        try:
            self._queue.finish(min(timeout, DRAIN_S))
            self._writer.retry(force=True)
            return self._relay.wait(timeout, closed=False)
        except Exception as error:
            self._problem(f"flush: {error}")
            return False

    def finish(self, exit_code: int | None = None, quiet: bool | None = None, timeout: float | None = None) -> None:
        """End the run and wait until the trackers have everything, but no longer than the timeout.

        Args:
            exit_code: 0 or None: finished; anything else: failed.
            timeout: seconds; default TRACKER_FINISH_TIMEOUT (30). The relay goes on by itself after it.
        """
        if self._finished or os.getpid() != self._pid:
            return
        if timeout is None:
            timeout = float(self._info.option("TRACKER_FINISH_TIMEOUT", 30))
        self._end(exit_code, "finished" if not exit_code else "failed", "", timeout, bool(quiet))

    close = finish

    def fail(self, exit_code: int, reason: str, timeout: float | None = None) -> None:
        """End the run as failed, with the reason in one line."""
        if self._finished or os.getpid() != self._pid:
            return
        default = float(self._info.option("TRACKER_FINISH_TIMEOUT", 30))
        self._end(exit_code, "failed", reason, default if timeout is None else timeout, False)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.finish()
        else:
            self.fail(130 if isinstance(error, KeyboardInterrupt) else 1, f"{kind.__name__}: {error}" if kind else "")

    def __repr__(self) -> str:
        return f"<trackers.Run {self.project}/{self.id} {self.name!r}>"

    def _repr_html_(self) -> str:
        from trackers.announce import html

        return html(self._info, self.status())

    # The slow way --------------------------------------------------------------------------------------------

    def _log_slowly(self, values: Mapping[str, Any], step: Any, keep: bool) -> None:
        if self._finished:
            self._problem("log after finish: nothing is recorded any more; call init for a new run")
            return
        now = self._now()
        if not isinstance(values, Mapping):
            self._problem(f"log: values of type {type(values).__name__} can't be recorded: give a mapping")
            return
        step = self._whole_step(step)
        split = Split(transfer)
        split.add(values)
        for problem in split.problems:
            self._problem(f"log: {problem}")
        results = {k: v for k, v in (*split.numbers.items(), *split.texts.items()) if _is_result(k)}
        numbers = {k: v for k, v in split.numbers.items() if not _is_result(k)}
        texts = {k: v for k, v in split.texts.items() if not _is_result(k)}
        lines = []
        if texts:
            lines.append(records.encode(Text(step=step, time=now, values=texts)))
        lines.extend(self._media_lines(split.media, step, now))
        moving = any(isinstance(value, Transfer) for value in numbers.values())
        with self._lock:
            if moving or len(self._queue):
                self._fast = False

                def build(arrived: dict[str, Number]) -> bytes:
                    return self._metrics_line(arrived, step, now) + b"".join(lines)

                self._queue.add(Waiting(numbers, build))
            else:
                self._append((self._metrics_line(numbers, step, now) if numbers else b"") + b"".join(lines))
            if results:
                self._record_summary(results)
            if not keep:
                self._step = step
        if len(self._known) < KNOWN_NAMES:
            self._known.update(name for name in numbers if name in values)
        if now > self._poll_at or not self._fast:
            self._poll(now)

    def _metrics_line(self, numbers: dict[str, Number], step: int, now: float) -> bytes:
        if not numbers:
            return b""
        if self._fold is not None:
            self._fold.update(numbers)
        return records.encode(Metrics(step=step, time=now, values=numbers))

    def _media_lines(self, media: dict[str, Any], step: int, now: float) -> list[bytes]:
        lines = []
        if media:
            from trackers import media as kinds

            store = self._store()
            for name, value in media.items():
                try:
                    found = kinds.as_media(value)
                    if found is not None:
                        lines.append(records.encode(kinds.record(name, found, step, now, store)))
                except Exception as error:
                    self._problem(f"log: {name}: {error}")
        return lines

    def _whole_step(self, step: Any) -> int:
        if type(step) is int:
            return step
        try:
            whole = int(step)
        except (TypeError, ValueError, OverflowError):
            self._problem(f"log: step {step!r} is not a number: the next step is taken")
            return self._step + 1
        if whole != step:
            self._problem(f"log: step {step!r} is not a whole number: {whole} is taken")
        return whole

    def _record(self, record: Record) -> None:
        self._guard(str(type(record).__struct_config__.tag), self._record_now, record)

    def _record_now(self, record: Record) -> None:
        if self._finished:
            self._problem(f"{record.__struct_config__.tag} after finish: nothing is recorded any more")
            return
        line = records.encode(record)
        with self._lock:
            if len(self._queue):
                self._queue.add(line)
            else:
                self._append(line)

    def _append(self, line: bytes) -> None:
        if not line:
            return
        self._writer.write(line)
        if self._inside is not None:
            self._inside.pump()

    def _record_config(self, values: dict[str, Any]) -> None:
        from trackers.secret import mask

        self._record(Config(time=self._now(), values=mask(values)))

    def _record_summary(self, values: Mapping[str, Any]) -> None:
        split = Split(transfer)
        split.add(values)
        for problem in split.problems:
            self._problem(f"summary: {problem}")
        found: dict[str, Any] = {
            name: value.value() if isinstance(value, Transfer) else value for name, value in split.numbers.items()
        }
        found.update(split.texts)
        if found:
            self.summary.keep(found)
            self._record(Summary(time=self._now(), step=self.step, values=found))

    def _define(self, define: Define) -> None:
        self._record_now(define)
        fold = self._fold or SummaryFold()
        fold.define(define)
        if fold and self._fold is None:
            for record in self._logged():
                if isinstance(record, Metrics):
                    fold.update(record.values)
        self._fold = fold if fold else None

    def _log_artifact(
        self,
        artifact: Any,
        name: str | None,
        type: str | None,
        aliases: Sequence[str] | None,
        policy: str,
        metadata: Mapping[str, Any] | None,
    ) -> None:
        from trackers import artifacts

        self._record_now(
            artifacts.record(
                artifact,
                store=self._store(),
                time=self._now(),
                step=self.step,
                name=name,
                type=type,
                aliases=aliases,
                policy=policy,
                metadata=plain(metadata or {}),
                announce=self._problem,
            )
        )

    def _save(self, pattern: Any, base_path: Any, found: list[str]) -> None:
        import glob

        if pattern is None:
            return
        for match in sorted(glob.glob(os.fspath(pattern), recursive=True)):
            name = os.path.relpath(match, base_path) if base_path else os.path.basename(match)
            self._log_artifact(match, name, "file", None, "copy", None)
            found.append(match)

    def _record_preempting(self) -> None:
        self._relay.mark_preempting()

    def _store(self) -> Any:
        from trackers.media import MediaStore

        return MediaStore(self._run.path, int(self._info.option("TRACKER_MEDIA_MAX_MB", 50)) * 1_000_000)

    def _logged(self) -> Iterable[Record]:
        for stream in self._run.stream_names():
            reader = StreamReader(self._run.stream(stream))
            while found := reader.read(5000):
                yield from found

    def _last_logged(self) -> dict[str, Any]:
        last: dict[str, Any] = {}
        for record in self._logged():
            if isinstance(record, (Metrics, Text)):
                last.update(record.values)
        return last

    # Looking after things ------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._offset + time.monotonic()

    def _guard(self, what: str, function: Callable[..., Any], *arguments: Any, **more: Any) -> None:
        try:
            function(*arguments, **more)
        except Exception as error:
            self._problem(f"{what}: {type(error).__name__}: {error}")

    def _problem(self, text: str) -> None:
        from trackers.relay.messages import Message, one_line, show

        line = one_line(text)
        if line in self._problems or len(self._problems) > 1000:
            return
        self._problems.add(line)
        with contextlib.suppress(Exception):
            show(Message(time.time(), line))

    def _poll(self, now: float) -> None:
        with self._lock:
            self._queue.drain()
            if now <= self._poll_at:
                self._fast = self._inside is None and not len(self._queue) and self._writer.healthy
                return
            self._poll_at = now + POLL_S
            if os.getpid() != self._pid or self._finished:
                return
            if not self._writer.healthy and not self._writer.retry():
                self._problem(
                    f"the journal can't be written ({self._writer.error}); training goes on, records wait in memory "
                    f"(up to 64 MiB): free some space for {self._run.path}"
                )
            if self._writer.missing():
                self._problem(f"{self._writer.path} was deleted while it was written: it is put back")
                self._writer.restore()
            self._fd = self._writer.fd
            self._relay.look_after()
            self._fast = self._inside is None and not len(self._queue) and self._writer.healthy

    def _end(self, exit_code: int | None, status: str, reason: str, timeout: float, quiet: bool) -> None:
        with self._lock:
            if self._finished:
                return
            self._fast = False
            try:
                self._queue.finish(min(timeout, DRAIN_S))
                if self._fold is not None:
                    missing = {k: v for k, v in self._fold.results().items() if k not in self.summary._values}
                    if missing:
                        self._record_summary(missing)
                code = (0 if status == "finished" else 1) if exit_code is None else int(exit_code)
                self._record_now(Finish(time=self._now(), status=status, exit_code=code, reason=reason))
            except Exception as error:
                self._problem(f"finish: {type(error).__name__}: {error}")
            self._finished = True
            self._writer.close()
        lost = self._writer.lost
        if lost:
            self._problem(f"{lost} records were lost: the disk of {self._run.path} stayed full")
        if self._queue.lost:
            self._problem(f"{self._queue.lost} values were given up: the accelerator hadn't delivered them")
        self._guard("finish", self._relay.finish, timeout, quiet)
        if self._inside is not None:
            self._guard("finish", self._inside.close)
        for callback in self._on_finish:
            self._guard("finish", callback, self)
        self._writer.release()


def _is_result(name: str) -> bool:
    return name.startswith(records.SUMMARY_PREFIX)
