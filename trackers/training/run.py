"""A run, as training sees it: values go in, one line a call is appended to the journal, nothing waits.

Here is also the line that says where a run goes.
"""

from __future__ import annotations

import functools
import math
import os
import re
import shlex
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from trackers import records
from trackers.backends import registry
from trackers.errors import reason
from trackers.formats.json_values import mapping, to_json_values
from trackers.formats.json_values import text as _text
from trackers.journal.run_directory import FILES
from trackers.journal.status import PREEMPTED
from trackers.metrics.summary import parse_summary
from trackers.records import MAX_STEP, Alert, ArtifactRecord, Define, Info, Metrics, escaped
from trackers.support.clock import monotonic
from trackers.support.interruption import pass_on
from trackers.support.redaction import mask_source
from trackers.support.terminal import one_line
from trackers.tracker import RunInfo
from trackers.training.attached import RunAddress, latest, recorder_of
from trackers.training.config import RunConfig, RunSummary
from trackers.training.console_capture import ConsoleCapture
from trackers.training.disabled import NullRun
from trackers.training.exit_hooks import ending, exception_exit, exit_of, given_code
from trackers.training.late import quiet_at_the_end
from trackers.training.measuring import Measuring
from trackers.training.recorder import DRAIN_S, Recorder
from trackers.training.stopping import Stopping
from trackers.training.wandb_run import Metric, WandbRun
from trackers.values.code import in_wandb_folder, is_code
from trackers.values.coerce import plain, short_repr

if TYPE_CHECKING:
    from trackers.journal.live_files import LiveFiles
    from trackers.media import MediaStore
    from trackers.support.run_requests import Request
    from trackers.training.spans import LiveSpan, Spans

STOPPED = "final/stopped"
"""Result of a run that was asked to stop: by whom and why."""
SAVE_POLICIES = ("live", "end", "now")
"""What ``save`` can be told, in W&B's words."""


def banner_line(info: RunInfo, trackers: list[str]) -> str:
    """``run baseline (digits/abcd1234) → json, mlflow (sqlite:///…); journal in runs/digits/abcd1234``.

    A tracker whose files lie in the run's directory has no address of its own.
    """
    where = _short_address(info.directory)
    if info.mode == "offline":
        goal = f"offline, for {', '.join(trackers)}: deliver with `trackers sync {shlex.quote(where)}`"
    else:
        goal = ", ".join(_tracker_and_location(name, info) for name in trackers)
    again = (
        f", attempt {info.starts}"
        if info.starts > 1
        else f", forked from {info.forked_from}"
        if info.forked_from
        else ""
    )
    return one_line(f"run {info.name} ({info.project}/{info.id}{again}) → {goal}; journal in {where}")


def _tracker_and_location(name: str, info: RunInfo) -> str:
    where = mask_source(escaped(str(registry.precheck(name).place(info))))
    return f"{name} ({where})" if where else name


def _short_address(directory: str) -> str:
    try:
        relative = os.path.relpath(directory)
    except (OSError, ValueError) as error:  # the working directory is gone
        pass_on(error)
        return directory
    return directory if relative.startswith(os.pardir + os.sep + os.pardir) else str(Path(relative))


INF = math.inf
# Bound once: each lookup that log() saves is a twentieth of what it costs.
_encode_lines = records.encode_lines
_write = os.write
_get_thread = threading.get_ident


_LEVELS = {
    **dict.fromkeys(("INFO", "DEBUG", "NOTSET", "0", "10", "20"), "INFO"),
    **dict.fromkeys(("WARN", "WARNING", "30"), "WARN"),
    **dict.fromkeys(("ERROR", "CRITICAL", "FATAL", "40", "50"), "ERROR"),
}
"""Levels of an alert, by how they are called."""


class _AnyRun(type):
    """What ``wandb.init`` gives is a run to a script that asks by ``isinstance``, also if it records nothing."""

    def __instancecheck__(cls, instance: object) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Run and isinstance(instance, NullRun) and instance._keeps_values


class Run(Measuring, WandbRun, metaclass=_AnyRun):
    """One training run. Made by ``trackers.init``.

    Once it has started, no method raises because of a tracker, a disk or a value, and none waits for a network
    or an accelerator. What can't be recorded is named in a warning, once. ``use_artifact`` and ``use_model`` do raise,
    for what isn't there can't be gone on without. What the script's own signal handlers raise goes on to the script.

    Attributes:
        config: the configuration, nested; setting a key records the change.
        summary: results; setting a key records a result (``final/``).
        disabled: False; True for a run that records nothing.
    """

    disabled = False
    _gives_files_dir = False

    def __init__(
        self,
        recorder: Recorder,
        on_finish: Callable[[Run], None] = lambda run: None,
        console: ConsoleCapture | None = None,
    ) -> None:
        self._recorder = recorder
        self._console = console
        self._info = recorder.info
        self._on_finish = on_finish
        self._config = RunConfig(self._info.config, recorder.config, recorder.problem)
        self._options = self._info.options
        self._versions_seen: dict[tuple[str, int], str] = {}
        self._alerted: dict[str, float] = {}
        self._spans: Any = None
        self._live: LiveFiles | None = None
        self._stopping = stopping = Stopping(recorder.run.path, recorder.info, recorder.problem)
        self._stop_look, self._save_look = stopping.stop_look, stopping.save_look
        recorder.pollers.append(stopping.poll)
        self._summary = RunSummary(
            recorder.summarize, recorder.last_logged, recorder.results, recorder.problem, recorder.forget,
            recorder.results_by_word,
        )  # fmt: skip

    @property
    def config(self) -> RunConfig:
        """The configuration; what is assigned is merged into it."""
        return self._config

    @config.setter
    def config(self, values: Any) -> None:
        if values is not self._config:
            self._config.update(values)

    @property
    def summary(self) -> RunSummary:
        """The results; what is assigned is added to them."""
        return self._summary

    @summary.setter
    def summary(self, values: Any) -> None:
        if values is not self._summary:
            self._summary.update(values)

    @property
    def id(self) -> str:
        """The run's identity: the same in every tracker, and the name of its directory."""
        return self._info.id

    @property
    def name(self) -> str:
        """What lists and legends show; setting it renames the run where a tracker can."""
        return self._info.name

    @name.setter
    def name(self, value: str) -> None:
        self._info.name = mask_source(_text(value))
        self._recorder.record(Info(time=self._recorder.now(), name=self._info.name))

    @property
    def project(self) -> str:
        """Runs of one project are shown together."""
        return self._info.project

    @property
    def entity(self) -> str:
        """W&B's user or team that owns the run; "" for the login's own, and for other trackers."""
        return str(self._info.option("WANDB_ENTITY", ""))

    @property
    def group(self) -> str | None:
        """Name that runs of one ablation or one setting share; None for a run of its own."""
        return self._info.group

    @property
    def job_type(self) -> str | None:
        """What the run does within its group ("train", "eval"); None if nobody said."""
        return self._info.job_type

    @property
    def mode(self) -> str:
        """online, or offline: its records wait in the journal for ``trackers sync``."""
        return self._info.mode

    @property
    def tags(self) -> tuple[str, ...]:
        """Labels to find the run by; setting them replaces all. Takes one text or several."""
        return tuple(self._info.tags)

    @tags.setter
    def tags(self, value: Iterable[str]) -> None:
        self._recorder.guard("tags", self._set_tags, value)

    def _set_tags(self, value: Iterable[str]) -> None:
        tags = [value] if isinstance(value, str) else list(value)
        self._info.tags = [mask_source(_text(tag)) for tag in tags]
        self._recorder.record(Info(time=self._recorder.now(), tags=self._info.tags))

    @property
    def notes(self) -> str | None:
        """A sentence on what the run is for, or None; setting it replaces the old one."""
        return self._info.notes

    @notes.setter
    def notes(self, value: str) -> None:
        self._info.notes = mask_source(_text(value))
        self._recorder.record(Info(time=self._recorder.now(), notes=self._info.notes))

    @property
    def path(self) -> str:
        """The run's directory: its journal, media, messages and the states of its deliveries."""
        return str(self._recorder.run.path)

    @property
    def dir(self) -> str:
        """The run's directory; of a run that ``wandb.init`` made ``files_dir``, as in W&B."""
        return self.files_dir if self._gives_files_dir else self.path

    def give_files_dir(self) -> None:
        """Give the directory of the script's own files as ``dir`` from now on, as W&B's runs do."""
        self._gives_files_dir = True

    @property
    def step(self) -> int:
        """The step of the last record; 0 before the first. Of a run that ``wandb.init`` made, as in W&B, that of the
        next call of ``log`` without a step."""
        return max(self._recorder.following if self._recorder.holds_steps else self._recorder.step, 0)

    @property
    def _last_step(self) -> int:
        return max(self._recorder.step, 0)

    @property
    def resumed(self) -> bool:
        """Whether it continues an earlier attempt: ``step`` is then that one's last."""
        return len(self._info.attempts) > 1

    @property
    def finished(self) -> bool:
        """The run has ended: what is logged now isn't recorded."""
        return self._recorder.finished

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

    def log(
        self,
        data: Mapping[str, Any] | None = None,
        step: int | None = None,
        commit: bool | None = None,
        sync: bool | None = None,
        *,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        """Record metric values at a training step, without waiting for any tracker.

        Args:
            data: name to number, tensor scalar, text or media; nested mappings are joined with "/".
                NaN and infinities are kept, None is left out. A value on a GPU is read when it is ready, not
                waited for. Names that begin with "final/" are results, not points of a series.
            step: finished optimizer steps, 0 or more; may repeat or go back. None: one more than the last, of any
                thread. One beyond ``records.MAX_STEP`` (2**53 - 1), which no tracker could hold and count on from, is
                named, and the next step taken.
            commit: False: the next call without a step has the same step (as in W&B, where any call with a step does
                so unless commit is True).
            sync: taken for W&B's sake.
            values: another name of ``data``.

        Raises nothing of its own once the run has started: a value that can't be recorded is named in a warning,
        once. What a signal's handler raises meanwhile goes on to the caller; the record is there once then, or not.
        """
        recorder = self._recorder
        logged: Any = data
        if data is None:
            logged = {} if values is None and (step, commit) != (None, None) else values
        keep: bool | None = None
        if step is None:
            if recorder.thread != _get_thread():
                recorder.guard("log", recorder.log_in_turn, logged, commit)
                return
            step = recorder.following
            recorder.following = step + (commit is not False)
        else:
            keep = commit is False or (recorder.holds_steps and commit is None)
        line = b""
        try:
            if recorder.to_read:
                if recorder.fast and recorder.log_at_once(logged, step, keep):
                    return
                recorder.to_read = 0
            elif recorder.fast and type(step) is int and -MAX_STEP <= step <= MAX_STEP:
                now = recorder.offset + recorder.monotonic()
                encoded = _encode_lines([Metrics(step=step, time=now, values=logged)])
                # The sum tells numbers from text, and finds NaN and infinities, which JSON can't write, as well as
                # integers and decimals that no float holds.
                if recorder.known.issuperset(logged) and -INF < sum(logged.values(), 0.0) < INF:
                    line = encoded
                    written = _write(recorder.fd, line)
                    if written != len(line):
                        recorder.take_over(line, written)
                    recorder.step = step
                    if keep is not None:
                        recorder.following = step if keep else step + 1
                    if recorder.fold is not None:
                        recorder.fold.update(logged)
                    if now > recorder.poll_at:
                        recorder.guard("log", recorder.poll, now)
                    return
        except BaseException as error:  # whatever it was, the slow way finds out and says it
            if recorder.broke_off(line, error):
                return
        recorder.guard("log", recorder.log, logged, step, keep)

    log_metrics = log

    def log_hyperparams(self, params: Any = None, **more: Any) -> None:
        """Add to the configuration (Lightning's name for it)."""
        self._recorder.guard("log_hyperparams", self.config.update, params, **more)

    def define_metric(
        self,
        name: str,
        step_metric: str | Metric | None = None,
        step_sync: bool | None = None,
        hidden: bool | None = None,
        summary: str | Sequence[str] | None = None,
        overwrite: bool | None = None,
        goal: str | None = None,
    ) -> Metric:
        """Say how a metric is to be read.

        Args:
            name: a metric's name, or a glob such as "val/*".
            step_metric: the metric that is its x axis, where a tracker has such a thing: its name, or its definition.
            summary: min, max, mean, last, first, best or none, or several ("min,max"): the result
                ``final/<name>`` fills itself.
            goal: minimize or maximize: what "best" means (default minimize).

        Raises:
            UsageError: an unknown word for summary or goal.
        """
        words = parse_summary(summary, goal)
        axis = getattr(step_metric, "name", step_metric)
        define = Define(
            time=self._recorder.now(),
            name=_text(name),
            step_metric=None if axis is None else _text(axis),
            summary=words,
            goal=goal,
            hidden=to_json_values(hidden) is True,
            step_sync=step_sync if isinstance(step_sync, bool) else None,
            overwrite=to_json_values(overwrite) is True,
        )
        self._recorder.guard("define_metric", self._recorder.define, define)
        return Metric(define.name, define.step_metric, step_sync, define.hidden, tuple(words), goal)

    def alert(self, title: str, text: str = "", level: Any = None, wait_duration: Any = None) -> None:
        """Send a message to the people who watch the run, by the trackers that can.

        Args:
            level: INFO, WARN, ERROR; those of ``logging`` are taken for the nearest of them.
            wait_duration: seconds or a ``timedelta``: within that of the last alert of this title, none is sent.
        """
        word = "INFO" if level is None else _text(getattr(level, "value", level)).upper()
        word = _LEVELS.get(word, word)
        if word not in _LEVELS.values():
            self._recorder.problem(f"alert: level {short_repr(level)}: INFO is taken; known are INFO, WARN, ERROR")
            word = "INFO"
        title, body, now = mask_source(_text(title)), mask_source(_text(text)), self._recorder.now()
        if wait_duration is not None:
            try:
                wait_s = float(getattr(wait_duration, "total_seconds", lambda: wait_duration)())
            except (TypeError, ValueError) as error:
                pass_on(error)
                self._recorder.problem(f"alert: wait_duration={wait_duration!r}: give seconds or a timedelta")
            else:
                if now - self._alerted.get(title, -math.inf) < wait_s:
                    return
        self._alerted[title] = now
        self._recorder.record(Alert(time=now, step=self._last_step, title=title, text=body, level=word))

    def span(
        self,
        name: str | None = None,
        *,
        inputs: Any = None,
        kind: str = "",
        attributes: Mapping[str, Any] | None = None,
    ) -> LiveSpan:
        """Time a block, or each call of a function, and keep what went in and came out.

            with run.span("answer", inputs={"question": q}, kind="llm") as span:
                span.outputs = model(q)
                span.set({"gen_ai.usage.input_tokens": 12})

            @run.span(kind="tool")
            def search(words): …

        A span within another one is its child, in threads that run in a copy of the context, and in tasks of asyncio,
        too. An exception is recorded, and goes on.

        Args:
            name: what lists and trees show; default, of a function, its name.
            inputs: any values that JSON can hold; others are described. Of a function default its arguments.
            kind: llm, tool, retriever, agent, chain, embedding, …
            attributes: by name, as OpenTelemetry's.

        Never raises once the run has started, but what the block raises.
        """
        from trackers.training.spans import span_of

        return span_of(self._spans_of_run(), name, inputs, kind, attributes)

    def _spans_of_run(self) -> Spans:
        if self._spans is None:
            from trackers.training.spans import Spans

            self._spans = Spans(self._recorder)
        spans: Spans = self._spans
        return spans

    def log_samples(self, name: str, samples: Any, step: int | None = None) -> None:
        """Keep samples of a language model: rollouts, answers of an evaluation.

            run.log_samples("rollouts", [{"messages": [...], "reward": 0.5, "env": "math"}], step=100)

        Args:
            name: of the table that they are kept as.
            samples: a mapping for each, lists by column (as TRL and verl have them), or a data frame. A conversation is
                a list of messages (``role``, ``content``, ``tool_calls`` as OpenAI's) under ``messages``, or texts or
                messages under ``prompt`` and ``completion`` (or ``input`` and ``output``). All else is any column.
            step: default the step of the last call of ``log``.

        Raises nothing of its own once the run has started: what can't be kept is named in a warning.
        """
        self._recorder.guard("log_samples", self._log_samples, name, samples, step)

    def _log_samples(self, name: str, samples: Any, step: int | None) -> None:
        from trackers.media.table import SampleTable

        recorder = self._recorder
        if recorder.is_main:
            last, following = recorder.step, recorder.following
            recorder.log({_text(name): SampleTable(samples)}, self._last_step if step is None else step, True)
            recorder.step, recorder.following = max(last, recorder.step), max(following, recorder.following)

    def log_artifact(
        self,
        artifact_or_path: Any = None,
        name: str | None = None,
        type: str | None = None,
        aliases: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        policy: str = "copy",
        metadata: Mapping[str, Any] | None = None,
        *,
        artifact: Any = None,
    ) -> Any:
        """Keep a file or directory with the run as it is now, though it may be overwritten later.

        Args:
            artifact_or_path: a path, or an ``Artifact`` with several files; ``artifact`` is another name of it.
            name: its name in the trackers; default the file's name.
            type: "model" for a checkpoint, "dataset", …; default "file".
            tags: kept in its metadata.
            policy: "copy" (a reflink where the filesystem can), or "link" for a file that will be replaced,
                never rewritten in place.

        Returns:
            the artifact; ``version`` is its number in the project: the next one, or that of the version which has the
            same content. If it couldn't be kept, an ``Artifact`` without a version.
        """
        source = artifact if artifact_or_path is None else artifact_or_path
        made: list[Any] = []
        self._recorder.guard(
            "log_artifact", self._log_artifact, source, name, type, aliases, policy, metadata, tags, made
        )
        if made:
            return made[0]
        from trackers.values.artifact import unlogged

        return unlogged(source, name, type)

    def save(self, glob_str: Any = None, base_path: Any = None, policy: str = "live", glob: bool = True) -> list[str]:
        """Keep the files that match a glob, as they are now. Returns their paths.

        Args:
            glob_str: a pattern as of the shell, ``**`` for any directories.
            base_path: directory from which the files' names count. Default: a relative path is the name, of an absolute
                one the last directory and the file's name; below ``files_dir``, the path from there.
            policy: "live" or "end": when the run ends, a file that has changed is kept again as it is then; of a killed
                run, where the filesystem has hard links. "now": only as they are now.
            glob: False: ``glob_str`` is one file's path, whatever characters it has.
        """
        paths: list[str] = []
        self._recorder.guard("save", self._save, glob_str, base_path, paths, policy, glob)
        return paths

    def log_code(
        self,
        root: str | None = ".",
        name: str | None = None,
        include_fn: Callable[..., bool] = is_code,
        exclude_fn: Callable[..., bool] = in_wandb_folder,
    ) -> Any:
        """Keep the code as it is now, as an artifact of type "code".

        Args:
            root: the directory that is searched.
            name: the artifact's name; default "source-PROJECT-SCRIPT".
            include_fn, exclude_fn: take a path, or a path and the root. Default: Python files, Dockerfiles and
                requirements.txt, but for W&B's folders. The directory of runs is always left out.

        Returns:
            the artifact; None if there is no such file.
        """
        artifacts: list[Any] = []
        self._recorder.guard("log_code", self._log_code, root, name, include_fn, exclude_fn, artifacts)
        return artifacts[0] if artifacts else None

    def _log_code(self, root: Any, name: Any, include: Any, exclude: Any, made: list[Any]) -> None:
        from trackers.values.artifact import Artifact
        from trackers.values.code import code_files

        top = os.path.abspath("." if root is None else root)
        program = os.path.relpath(self._info.program, top) if self._info.program else "code"
        asked_name = str(name or f"source-{self.project}-{program}")  # W&B's client calls it so
        artifact = Artifact.kept(re.sub(r"[^\w.-]", "_", asked_name, flags=re.ASCII), "code")
        runs = Path(self._info.directory).absolute().parent.parent
        for inside, path in code_files(top, include, exclude, runs):
            artifact.add_file(path, name=inside)
        if not artifact.files:
            self._recorder.problem(f"log_code: no code in {top}")
            return
        self._log_artifact(artifact, None, None, None, "copy", None)
        made.append(artifact)

    @property
    def files_dir(self) -> str:
        """A directory for the script's own files, which are kept with the run when it finishes."""
        path = self._recorder.run.path / FILES
        self._recorder.guard("files_dir", path.mkdir, parents=True, exist_ok=True)
        return str(path)

    def _keep_files(self) -> None:
        if self._live is not None:
            for name, path in self._live.changed():
                self._recorder.guard("save", self._keep_changed, path, name)
            self._live.close()
        path = self._recorder.run.path / FILES
        if path.is_dir() and any(path.iterdir()):
            self._recorder.write_once("files", lambda: self._artifact_record(self._own_files(path), versioned=False))

    def _own_files(self, folder: Path) -> Any:
        from trackers.values.artifact import Artifact

        artifact = Artifact.kept(FILES, "file")
        artifact.add_dir(folder)
        return artifact

    def record_tensorboard(self) -> None:
        """Record what the script gives to TensorBoard's writers from now on too; ``init(sync_tensorboard=True)``."""
        from trackers.training import tensorboard_writers

        self._recorder.guard("sync_tensorboard", tensorboard_writers.begin, self)

    def mark_preempting(self) -> None:
        """The process is about to be preempted: if it ends now, the run's status is preempted, not crashed."""
        self._recorder.guard("mark_preempting", self._recorder.relay.mark_preempting)

    @property
    def should_stop(self) -> bool:
        """Whether somebody has asked the run to stop: look once in each step, and leave the loop where it is True.

        A look takes about a tenth of a microsecond, less than twice as long as any property. The run then ends as
        stopped, with who asked and why. Several ranks see True at the same look, where each of them looks equally
        often.
        """
        look = self._stop_look
        left = look.left = look.left - 1
        return left < 0 and self._stopping.stop_due()

    @property
    def should_checkpoint(self) -> bool:
        """Whether somebody has asked for a checkpoint: True once for each request, and before ``should_stop``."""
        look = self._save_look
        left = look.left = look.left - 1
        return left < 0 and self._stopping.save_due()

    @property
    def stop_request(self) -> Request | None:
        """Who has asked the run to stop, why, by what, and whether a checkpoint is to be saved; None: nobody."""
        return self._stopping.request

    def _stopping_for(self, board: Any) -> Stopping:
        """What a framework's callback asks at each step, beside what the script looks at.

        Args:
            board: by what the framework's processes agree (:class:`trackers.training.stopping.Board`); None: it is one.
        """
        recorder = self._recorder
        return Stopping(recorder.run.path, recorder.info, recorder.problem, board=board, quiet=True)

    def on_stop(self, function: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Call a function with the request when somebody asks the run to stop; also as a decorator.

        It is called in a call of ``log``, or when ``should_stop`` becomes True where the script looks at that. What it
        raises is named in a warning.
        """
        self._recorder.guard("on_stop", self._stopping.call, function)
        return function

    def status(self) -> dict[str, dict[str, Any]]:
        """How each tracker stands: delivered, waiting, rejected, stopped, error, url; reads files, asks no network."""
        try:
            from trackers.relay.delivery.cursor_file import delivery_report

            return delivery_report(self._recorder.run, self._info.trackers)
        except Exception as error:
            pass_on(error)
            self._recorder.problem(f"status: {error}")
            return {}

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until every tracker has what was logged so far, at most ``timeout`` seconds. True if they have."""
        if self._recorder.finished:
            return True
        try:
            until = monotonic() + timeout
            kept = self._recorder.flush(min(timeout, DRAIN_S))
            return self._recorder.relay.wait(until - monotonic(), closed=False) and kept
        except Exception as error:
            pass_on(error)
            self._recorder.problem(f"flush: {error}")
            return False

    def hold_steps(self) -> None:
        self._recorder.holds_steps = True

    @property
    def starting_step(self) -> int:
        """The first step of this attempt."""
        return self._recorder.first_step

    def finish(
        self,
        exit_code: int | None = None,
        quiet: bool | None = None,
        timeout: float | None = None,
        *,
        wait: bool | None = None,
    ) -> None:
        """End the run and wait until the trackers have everything, but no longer than the timeout.

        Args:
            exit_code: 0 or None: finished; another one: failed, or preempted if that was announced; no number: 1.
            timeout: seconds; default TRACKER_FINISH_TIMEOUT (30). The relay goes on by itself after it.
            wait: False: return once everything is in the journal; the relay delivers it. Default: TRACKER_FINISH.

        Called without an exit code by an atexit function, it ends the run as the process ends.
        """
        end = ending.at_exit() if exit_code is None else None
        if end is not None:
            self.leave(end.code, end.reason, certain=end.certain, timeout=timeout, quiet=bool(quiet), wait=wait)
            return
        code = given_code(exit_code, self._recorder.problem)
        status = "finished" if not code else "preempted" if self._recorder.relay.preempted() else "failed"
        self._end(code, status, PREEMPTED if status == "preempted" else "", timeout, bool(quiet), wait=wait)

    close = finish

    def fail(self, exit_code: int, reason: str, timeout: float | None = None) -> None:
        """End the run as failed, with the reason in one line."""
        self._end(given_code(exit_code, self._recorder.problem), "failed", reason, timeout, False)

    def leave(
        self,
        exit_code: int,
        reason: str,
        *,
        certain: bool | None = None,
        timeout: float | None = None,
        quiet: bool = False,
        wait: bool | None = None,
    ) -> None:
        """End the run as the process ends that made it: finished or failed by its exit code, or preempted where
        that was announced.

        Args:
            certain: the process is ending now, and whether this is surely its exit code; None: it goes on.
            timeout, quiet, wait: as for ``finish``.
        """
        recorder, leaving = self._recorder, certain is not None
        if certain is False and not recorder.finished and recorder.adopt():
            recorder.guard("finish", recorder.relay.note_exit_code)
        if recorder.relay.preempted():
            self._end(exit_code, "preempted", reason or PREEMPTED, timeout, quiet, leaving, wait)
        elif exit_code:
            self._end(exit_code, "failed", reason or f"exit code {exit_code}", timeout, quiet, leaving, wait)
        else:
            self._end(0, "finished", "", timeout, quiet, leaving, wait)

    def notice_fork(self) -> None:
        """In a forked child of the process that made the run: it may log, and doesn't end the run."""
        self._recorder.notice_fork()

    def adopt(self) -> bool:
        """Whether the run is this process's to end: not a forked child's, but for a daemon whose parent is gone."""
        return self._recorder.adopt()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            self.finish()
        else:
            if self._console is not None and kind is not None and not isinstance(error, SystemExit):
                self._recorder.guard("finish", self._console.add_traceback, error)
            end = exit_of(error) if isinstance(error, SystemExit) else exception_exit(error)
            self.leave(end.code, end.reason)

    @property
    def _attach_id(self) -> str:
        return self.path  # by which Lightning finds the run in a spawned process

    def __reduce__(self) -> Any:
        return attach, (self._address(),)

    def _address(self) -> RunAddress:
        """By what another process of this machine finds the run: all that a pickled run consists of."""
        recorder, info = self._recorder, self._info
        return RunAddress(
            directory=info.directory, stream=str(recorder.writer.path), id=info.id, name=info.name,
            project=info.project, following=recorder.following, pid=recorder.pid, pid_start=info.pid_start,
            host=info.host, boot_id=info.boot_id, pid_namespace=info.pid_namespace, config=self.config.as_dict(),
            holds_steps=recorder.holds_steps,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<trackers.Run {self.project}/{self.id} {self.name!r}>"

    def _repr_html_(self) -> str:
        return str(self._notebook_view().html())

    def _ipython_display_(self) -> None:
        from trackers.training import notebook

        notebook.display(self._notebook_view(), self)

    def _notebook_view(self) -> Any:
        from trackers.training.notebook import Shown

        return Shown(self, Path(self._recorder.writer.path))

    def _log_artifact(
        self, artifact: Any, name: str | None, type: str | None, aliases: Sequence[str] | None, policy: str,
        metadata: Mapping[str, Any] | None, tags: Sequence[str] | None = None, made: list[Any] | None = None,
        versioned: bool = True, link: tuple[str, str] = ("", ""),
    ) -> None:  # fmt: skip
        from trackers.training import artifact_versions

        store = self._recorder.store()
        record = self._artifact_record(artifact, name, type, aliases, policy, metadata, tags, versioned, store)
        record.link, record.source = link
        if versioned and not self._recorder.finished:
            directory = Path(self._info.directory)
            artifact_versions.number(record, directory, self.id, self._recorder.problem, self._versions_seen)
        self._recorder.write(record, store.held)
        logged = artifact_versions.logged(artifact, record, Path(self._info.directory), self.project)
        if made is not None:
            made.append(logged)

    def _artifact_record(
        self,
        artifact: Any,
        name: str | None = None,
        type: str | None = None,
        aliases: Sequence[str] | None = None,
        policy: str = "copy",
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        versioned: bool = True,
        store: MediaStore | None = None,
    ) -> ArtifactRecord:
        from trackers.training import artifact_versions
        from trackers.values import artifact as artifacts

        try:
            known, listed = mapping(metadata), None
            if tags is not None:
                listed = to_json_values([tags] if isinstance(tags, str) else tags)
        except Exception as error:
            pass_on(error)
            self._recorder.problem(f"log_artifact: metadata: {reason(error)}")
            known, listed = {}, None
        if self._recorder.holds_steps and isinstance(artifact, (str, os.PathLike)):  # W&B's words for a path
            name = name or f"run-{self.id}-{Path(os.fsdecode(artifact)).absolute().name}"
            type = type or "unspecified"
        names = [aliases] if isinstance(aliases, str) else to_json_values(aliases)
        texts = [_text(alias) for alias in names] if isinstance(names, list) else None
        record = artifacts.record(
            artifact,
            store=store or self._recorder.store(),
            time=self._recorder.now(),
            step=self._last_step,
            name=None if name is None else _text(name),
            type=None if type is None else _text(type),
            aliases=artifact_versions.usable(texts, self._recorder.problem),
            policy=policy,
            metadata=known,
            tags=listed if isinstance(listed, list) else None,
            say=self._recorder.problem,
        )
        record.versioned = versioned
        return record

    def _note_use(self, name: str, version: str) -> None:
        """Record that the run used a version: in its configuration, which every tracker gets."""
        from trackers.records import USED

        self._recorder.config({USED: {name: version}})

    def _end_console(self) -> None:
        """Take nothing more of what is printed; without a relay, put it into the journal."""
        if self._console is None:
            return
        self._console.end()
        if self._info.option("TRACKER_INLINE", False) or not self._info.option("TRACKER_RELAY", True):
            from trackers.relay.console_collector import ConsoleCollector

            ConsoleCollector(self._recorder.run, self._info, int(self._info.attempts[-1]["number"])).end()

    def _save(self, pattern: Any, base_path: Any, paths: list[str], policy: str, by_glob: bool) -> None:
        import glob

        if pattern is None:
            return
        if policy not in SAVE_POLICIES:
            self._recorder.problem(f"save: policy={policy!r}: live is taken; known are {', '.join(SAVE_POLICIES)}")
        path = os.fspath(pattern)
        path = os.fsdecode(path) if isinstance(path, bytes) else path
        matches = glob.glob(path, recursive=True) if by_glob else [path]
        for match in sorted(matches):
            name = os.path.relpath(match, base_path) if base_path else self._name_of_saved(match)
            keep = functools.partial(self._log_artifact, match, name, "file", None, "copy", None, versioned=False)
            if policy == "now" or os.getpid() != self._recorder.pid:  # another process ends the run
                keep()
            else:
                self._live_files().add(Path(match).absolute(), name, keep)
            paths.append(match)

    def _keep_changed(self, path: Path, name: str) -> None:
        from trackers.values.artifact import Artifact

        artifact = Artifact.kept(name, "file")
        if path.is_dir():
            artifact.add_dir(path)
        else:
            artifact.add_file(path, name=os.path.basename(name))
        self._log_artifact(artifact, None, None, None, "copy", None, versioned=False)

    def _live_files(self) -> LiveFiles:
        if self._live is None:
            from trackers.journal.live_files import LiveFiles

            attempts = self._info.attempts
            self._live = LiveFiles(self._recorder.run, int(attempts[-1]["number"]) if attempts else 1)
            self._recorder.pollers.append(self._live.poll)
        return self._live

    def _name_of_saved(self, path: str) -> str:
        """As W&B names it: a relative path as it is, of an absolute one the last directory and the name."""
        own, whole, name = self._recorder.run.path / FILES, Path(os.path.abspath(path)), Path(os.path.normpath(path))
        if whole.is_relative_to(own):
            name = whole.relative_to(own)
        elif name.is_absolute() or name.parts[:1] == (os.pardir,):
            name = Path(whole.parent.name, whole.name)
        return name.as_posix()

    def _end(
        self,
        exit_code: int | None,
        status: str,
        reason: str,
        timeout: float | None,
        quiet: bool,
        leaving: bool = False,
        wait: bool | None = None,
    ) -> None:
        recorder = self._recorder
        if recorder.ended or not recorder.adopt():
            return  # a forked child doesn't end its parent's run
        try:
            wait_s = float(self._info.option("TRACKER_FINISH_TIMEOUT", 30) if timeout is None else plain(timeout))
        except Exception as error:
            pass_on(error)
            recorder.problem(f"finish: timeout {short_repr(timeout)} is no number of seconds: 30 are taken")
            wait_s = 30.0
        if not recorder.finished:
            recorder.guard("finish", self._close_instruments)
            recorder.guard("finish", self._keep_files)
            if self._spans is not None:
                self._spans.finish()
            for poll in (*recorder.pollers, *recorder.endings):
                recorder.guard("finish", poll)
            recorder.guard("finish", self._end_console)
        asked = self._stopping.ending() if status == "finished" and not recorder.finished else None
        if asked is not None:
            status, reason, exit_code = "stopped", str(asked), 0
            recorder.guard("finish", recorder.summarize, {STOPPED: reason})
        background = self._info.option("TRACKER_FINISH", "wait") == "background" if wait is None else not wait
        recorder.end(exit_code, status, reason, wait_s, quiet, leaving, background)
        recorder.guard("finish", self._on_finish, self)


quiet_at_the_end(
    Run,
    (
        "alert", "define_metric", "finish_artifact", "flush", "inspect", "link_artifact", "link_model", "log_artifact",
        "log_code", "log_hyperparams", "log_model", "log_samples", "loop", "save", "span", "status", "timer",
        "communication", "unwatch", "upsert_artifact", "use_artifact", "use_model", "watch", "on_stop",
    ),
)  # fmt: skip


def attach(address: RunAddress) -> Run | NullRun:
    """The run of that address in this process: the run itself where it was made here, else one that logs into it.

    Where that can't be, a run that records nothing; it is said why.
    """
    for known in ending.runs():
        if isinstance(known, Run) and not isinstance(known, NullRun) and known.path == address.directory:
            return known
    recorder = recorder_of(address)
    if recorder is not None:
        latest.append(run := Run(recorder))
        run._gives_files_dir = address.holds_steps
        return run
    return NullRun(
        run_id=address.id, name=address.name, project=address.project, config=address.config, mode="online",
        directory=address.directory,
    )  # fmt: skip
