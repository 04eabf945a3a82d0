"""What a script written for W&B asks of a run beyond logging: its addresses, its settings, models, W&B's own wiring."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from trackers.training.wandb_arguments import Settings, of_run, warn

SILENT = frozenset({
    "_label", "_telemetry_callback", "_telemetry_flush", "_config_callback", "_set_config_wandb",
    "_label_probe_main", "_set_library", "_set_backend", "_set_run_obj", "_populate_git_info",
})  # fmt: skip
"""Methods of W&B's own integrations that tell its service who uses it: nothing here, and nothing is said."""


class Metric(NamedTuple):
    """What ``define_metric`` was told; can be given to another one as its ``step_metric``."""

    name: str
    step_metric: str | None = None
    step_sync: bool | None = None
    hidden: bool | None = None
    summary: Any = None
    goal: str | None = None


class WandbRun:
    """Names of ``wandb.Run`` that mean the same on every kind of run.

    Attributes:
        offline: W&B gets the run later. settings: as W&B's, to read. sweep_id, sweep_url: None.
        project_url: None. sync_dir: the run's directory. starting_step: the first step of this attempt.
    """

    sweep_id: str | None = None
    sweep_url: str | None = None
    project_url: str | None = None
    _options: Mapping[str, Any] = MappingProxyType({})

    @property
    def offline(self) -> bool:
        """True if the run, or W&B's part of it, is delivered later."""
        return self._of("mode") == "offline" or bool(self._options.get("WANDB_OFFLINE"))

    @property
    def settings(self) -> Settings:
        """What ``wandb.Settings`` would say of this run; changing it changes nothing."""
        mode = str(self._of("mode") or "online")
        where = str(self._of("dir") or "")
        return Settings(
            mode="offline" if self.offline and mode == "online" else mode,
            run_id=self._of("id"), run_name=self._of("name"), project=self._of("project"),
            entity=self._of("entity") or None, run_group=self._of("group"), run_job_type=self._of("job_type"),
            run_tags=self._of("tags"), run_notes=self._of("notes"), root_dir=os.path.dirname(where), wandb_dir=where,
            sync_dir=where, files_dir=where, resumed=self._of("resumed"),
        )  # fmt: skip

    @property
    def _settings(self) -> Settings:
        return self.settings

    @property
    def _is_finished(self) -> bool:
        return bool(self._of("finished"))

    @property
    def sync_dir(self) -> str:
        """The run's directory."""
        return str(self._of("dir"))

    @property
    def config_static(self) -> dict[str, Any]:
        """A copy of the configuration."""
        return dict(self._of("config").as_dict())

    @property
    def starting_step(self) -> int:
        """The first step of this attempt."""
        return 0

    def hold_steps(self) -> None:
        """From now on count as W&B does: a call without a step has the step of the call before it that gave one."""

    def _of(self, name: str) -> Any:
        return getattr(self, name)

    def get_url(self) -> str | None:
        """``url``."""
        return self._of("url")  # type: ignore[no-any-return]

    def get_project_url(self) -> str | None:
        """``project_url``."""
        return self.project_url

    def get_sweep_url(self) -> str | None:
        """None: sweeps are W&B's service."""
        return None

    def project_name(self) -> str:
        """``project``."""
        return str(self._of("project"))

    def join(self, exit_code: int | None = None) -> None:
        """``finish``."""
        self._of("finish")(exit_code)

    def display(self, height: int = 420, hidden: bool = False) -> bool:
        """False: nothing was shown. In a notebook a run shows itself as a cell's last value."""
        return False

    def to_html(self, height: int = 420, hidden: bool = False) -> str:
        """The run and its trackers as a small table."""
        show = getattr(self, "_repr_html_", None)
        return str(show()) if show is not None else ""

    def write_logs(self, text: str) -> None:
        """Nothing: what the program prints isn't recorded."""

    def pin_config_keys(self, keys: Sequence[str] = ()) -> None:
        """A setting of W&B's page: says that it has no effect."""
        warn("pin_config_keys: has no effect here; set it on W&B's page")

    def log_model(self, path: Any, name: str | None = None, aliases: Any = None) -> None:
        """Keep a model's file or directory with the run."""
        self._of("log_artifact")(path, name=name, type="model", aliases=aliases)

    def use_artifact(
        self, artifact_or_name: Any, type: str | None = None, aliases: Any = None, use_as: str | None = None
    ) -> Any:
        """A version of an artifact from the directory of runs; the run records that it used it.

        Args:
            artifact_or_name: ``name:alias``, ``name:v3``, ``project/name:alias``; default the run's own project, and
                the alias ``latest``. Or an artifact; one that isn't logged is logged.
            type: what the version's type must be.
            use_as: its name in the run's configuration, default its own.

        Returns:
            the version: ``download()``, ``get_entry(name)``, ``files()``, ``logged_by()`` and W&B's other names.

        Raises:
            NotFound: there is no such version, or its content was removed. UsageError: it is of another type, or the
                name can't be read.
        """
        from trackers.training import artifact_versions

        return artifact_versions.use(self, artifact_or_name, type, use_as)

    def use_model(self, name: str) -> str:
        """Use a version of a model, and write its files as ``download`` does; the path of its file, or the directory.

        Raises:
            NotFound, UsageError: as :meth:`use_artifact`; it is no model.
        """
        from trackers.training import artifact_versions

        return artifact_versions.use_model(self, name)

    def link_model(self, path: Any, registered_model_name: str, name: str | None = None, aliases: Any = None) -> Any:
        """Keep a model's file or directory, and link it to a model of W&B's model registry.

        Args:
            path: of a file or directory.
            registered_model_name: the model's name in the registry.
            name: the model's own, as of :meth:`log_model`.
            aliases: of the link.

        Returns:
            the version of ``registered_model_name``.
        """
        from trackers.training import artifact_versions

        target = f"model-registry/{str(registered_model_name).rpartition('/')[2]}"
        return artifact_versions.link(self, "link_model", path, target, aliases, name, "model")

    def link_artifact(self, artifact: Any, target_path: str, aliases: Any = None) -> Any:
        """Link an artifact to a collection of a registry; one that isn't logged is logged.

        Here it is a version of the collection's name in the run's project; W&B's registry gets the link when it gets
        the artifact, online.

        Args:
            artifact: an artifact, or a path.
            target_path: ``wandb-registry-NAME/COLLECTION``, ``PROJECT/COLLECTION`` or ``ENTITY/PROJECT/COLLECTION``.
            aliases: of the link.

        Returns:
            the version of the collection's name.
        """
        from trackers.training import artifact_versions

        return artifact_versions.link(self, "link_artifact", artifact, target_path, aliases)

    def upsert_artifact(
        self, artifact_or_path: Any, name: str | None = None, type: str | None = None, aliases: Any = None,
        distributed_id: str | None = None,
    ) -> Any:  # fmt: skip
        """``log_artifact``: what each process adds is an artifact of its own."""
        return self._of("log_artifact")(artifact_or_path, name=name, type=type, aliases=aliases)

    finish_artifact = upsert_artifact

    def _log(self, data: Any, step: int | None = None, commit: bool | None = None) -> None:
        self._of("log")(data, step=step, commit=commit)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self  # as in W&B: a copy of a trainer logs into the same run

    def __copy__(self) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        if name in SILENT:
            return _nothing
        return of_run(name, dir(type(self)))


def _nothing(*arguments: Any, **more: Any) -> None:
    pass
