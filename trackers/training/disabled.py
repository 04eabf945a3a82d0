"""A run that records nothing: in ``disabled`` mode, with ``--tracker none``, and on ranks that don't log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from trackers.support.interruption import pass_on, suppress
from trackers.training.config import RunConfig, RunSummary
from trackers.training.measuring import NotMeasuring
from trackers.training.wandb_run import Metric, WandbRun

if TYPE_CHECKING:
    from trackers.support.run_requests import Request
    from trackers.training.spans import LiveSpan


class NullRun(NotMeasuring, WandbRun):
    """Has every public name of :class:`trackers.training.run.Run`; each call does nothing and costs next to nothing."""

    disabled = True
    resumed = False
    finished = False
    url: str | None = None
    step = 0
    should_stop = False
    should_checkpoint = False
    stop_request: Request | None = None
    _files: Any = None
    _keeps_values = False

    def __init__(
        self, *, run_id: str = "", name: str = "", project: str = "", config: Mapping[str, Any] | None = None,
        mode: str = "disabled", directory: str = "", on_finish: Callable[[NullRun], None] = lambda run: None,
    ) -> None:  # fmt: skip
        self._on_finish: Callable[[Any], None] = on_finish
        self.id = run_id
        self.name = name
        self.project = project
        self.entity = ""
        self.group: str | None = None
        self.job_type: str | None = None
        self.tags: tuple[str, ...] = ()
        self.notes: str | None = None
        self.mode = mode
        self.dir = self.path = directory
        self.start_time = 0.0
        self.config = RunConfig(config or {}, lambda values, whole: None)
        self._results: dict[str, Any] = {}
        self.summary = RunSummary(lambda changes, within: self._results.update(changes), values=self._results)

    def hold_steps(self) -> None:
        """From now on let the summary say what was logged last, as W&B's disabled runs do."""
        self._keeps_values = True

    def log(
        self,
        data: Mapping[str, Any] | None = None,
        step: int | None = None,
        commit: bool | None = None,
        sync: bool | None = None,
        *,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        """Nothing; a run of ``wandb.init`` keeps the last values in its summary."""
        logged = values if data is None else data
        if self._keeps_values and isinstance(logged, Mapping):
            self._results.update(logged)

    log_metrics = log

    def log_hyperparams(self, params: Any = None, **more: Any) -> None:
        """Changes this object's config only."""
        self.config.update(params, **more)

    def log_samples(self, name: str, samples: Any, step: int | None = None) -> None:
        """Nothing."""

    def define_metric(
        self,
        name: str,
        step_metric: Any = None,
        step_sync: bool | None = None,
        hidden: bool | None = None,
        summary: Any = None,
        overwrite: bool | None = None,
        goal: str | None = None,
    ) -> Metric:
        """Nothing."""
        return Metric(str(name), getattr(step_metric, "name", step_metric), step_sync, hidden, summary, goal)

    def alert(self, title: str, text: str = "", level: Any = None, wait_duration: Any = None) -> None:
        """Nothing."""

    def on_stop(self, function: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Nothing: nobody can ask a run that records nothing."""
        return function

    def span(
        self,
        name: str | None = None,
        *,
        inputs: Any = None,
        kind: str = "",
        attributes: Mapping[str, Any] | None = None,
    ) -> LiveSpan:
        """A span that records nothing."""
        from trackers.training.spans import span_of

        return span_of(None, name, inputs, kind, attributes)

    def log_artifact(
        self, artifact_or_path: Any = None, name: str | None = None, type: str | None = None, aliases: Any = None,
        tags: Any = None, policy: str = "copy", metadata: Any = None, *, artifact: Any = None,
    ) -> Any:  # fmt: skip
        """Nothing; gives the artifact back, of a path one without files and version."""
        from trackers.values.artifact import unlogged

        return unlogged(artifact if artifact_or_path is None else artifact_or_path, name, type)

    def use_artifact(
        self, artifact_or_name: Any, type: str | None = None, aliases: Any = None, use_as: str | None = None
    ) -> Any:
        """The version where the directory of runs has it, else an artifact without files, whose calls all work."""
        from trackers.values.artifact import Artifact, NullArtifact

        if isinstance(artifact_or_name, Artifact):
            return artifact_or_name
        try:
            return super().use_artifact(artifact_or_name, type, aliases, use_as)
        except Exception as error:  # whatever a script asks for, it runs to its end
            pass_on(error)
            return NullArtifact(artifact_or_name, type)

    def use_model(self, name: str) -> str:
        """The model's path where the directory of runs has it, else one where nothing is."""
        with suppress(Exception):
            return super().use_model(name)
        return str(self.use_artifact(name).file())

    def link_model(
        self, path: Any = None, registered_model_name: Any = "", name: str | None = None, aliases: Any = None
    ) -> Any:
        """Nothing; gives an artifact without files and version."""
        return self.log_artifact(path, name=name, type="model")

    def link_artifact(self, artifact: Any = None, target_path: Any = "", aliases: Any = None) -> Any:
        """Nothing; gives the artifact back."""
        return artifact

    def restore(
        self, name: str = "", run_path: str | None = None, replace: bool = False, root: str | None = None
    ) -> None:
        """Nothing."""

    def _note_use(self, name: str, version: str) -> None:
        pass

    def save(self, glob_str: Any = None, base_path: Any = None, policy: str = "live", glob: bool = True) -> list[str]:
        """Nothing."""
        return []

    def log_code(
        self,
        root: str | None = ".",
        name: str | None = None,
        include_fn: Callable[..., bool] | None = None,
        exclude_fn: Callable[..., bool] | None = None,
    ) -> None:
        """Nothing."""

    @property
    def files_dir(self) -> str:
        """A directory for the script's own files; it is removed when the process ends."""
        if self._files is None:
            import tempfile

            self._files = tempfile.TemporaryDirectory(prefix="trackers-files-")
        return str(self._files.name)

    def give_files_dir(self) -> None:
        """Give the directory of the script's own files as ``dir`` from now on."""
        self.dir = self.files_dir

    def record_tensorboard(self) -> None:
        """Nothing."""

    def mark_preempting(self) -> None:
        """Nothing."""

    def notice_fork(self) -> None:
        """Nothing."""

    def status(self) -> dict[str, dict[str, Any]]:
        """No trackers."""
        return {}

    def flush(self, timeout: float = 30.0) -> bool:
        """Nothing waits."""
        return True

    def finish(self, exit_code: int | None = None, quiet: bool | None = None, timeout: float | None = None) -> None:
        """The drop-in calls mean no run from now on."""
        self._on_finish(self)

    close = finish

    def fail(self, exit_code: int, reason: str, timeout: float | None = None) -> None:
        """Nothing."""

    def adopt(self) -> bool:
        """Nothing is anybody's to end: False."""
        return False

    def leave(self, exit_code: int, reason: str, *, certain: bool | None = None) -> None:
        """Nothing."""

    def __enter__(self) -> NullRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.finish()

    def __reduce__(self) -> Any:
        return _null_run, (self.id, self.name, self.project, self.config.as_dict(), self.mode, self.path)

    def __repr__(self) -> str:
        return f"<trackers.NullRun {self.project}/{self.id}>"


def _null_run(run_id: str, name: str, project: str, config: dict[str, Any], mode: str, directory: str) -> NullRun:
    return NullRun(run_id=run_id, name=name, project=project, config=config, mode=mode, directory=directory)
