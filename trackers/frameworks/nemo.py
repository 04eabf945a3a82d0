"""A plug-in for NeMo-Run: forwards credentials to the job, and sets the recipe's ``logger.*`` fields.

    import nemo_run as run
    from trackers.frameworks.nemo import TrackersPlugin
    run.run(task, executor, plugins=[TrackersPlugin(project="p", name="e")])

NeMo-Run needs no base class: it calls ``assign`` and ``setup`` of whatever it is given, so this imports without it.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

logger = logging.getLogger("trackers")

MLFLOW_ADDRESS = "MLFLOW_TRACKING_URI"
"""It goes along where it is a server's: a database's or a folder's is of this machine."""
CREDENTIALS = (
    *("WANDB_API_KEY", "WANDB_BASE_URL", "HF_TOKEN", "TRACKIO_SERVER_URL"),
    *("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", MLFLOW_ADDRESS),
)
"""Variables that a tracker logs in with, or finds its server by."""
PREFIX = "TRACKER"
"""Options of ours in the environment of whoever submits go along: ``TRACKER``, ``TRACKER_PROJECT``, …"""


@dataclasses.dataclass(frozen=True)
class ScriptArgs:
    """Arguments of a script, made by the default converter or your own."""

    project: str
    name: str | None
    entity: str | None
    save_dir: str | None
    fields: Mapping[str, Any]


def hydra_overrides(args: ScriptArgs) -> list[str]:
    """``logger.wandb_project=…`` and so on; what is None is left out."""
    named = {
        "wandb_project": args.project,
        "wandb_entity": args.entity,
        "wandb_exp_name": args.name,
        "wandb_save_dir": args.save_dir,
        **args.fields,
    }
    return [f"logger.{name}={value}" for name, value in named.items() if value is not None]


@dataclasses.dataclass(kw_only=True)
class TrackersPlugin:
    """Sets up tracking for a task.

    Args:
        project, name, entity, save_dir: ``logger.wandb_project``, ``wandb_exp_name``, ``wandb_entity`` and
            ``wandb_save_dir``. Without a name that of the task's own configuration stays.
        fields: other fields of ``LoggerConfig``, by name, as ``{"tensorboard_dir": "/results/tb"}``.
        env: variables to forward besides credentials and ``TRACKER…``; those that aren't set here are left out.
        script_args_converter_fn: for scripts whose arguments aren't hydra's: from :class:`ScriptArgs` to arguments.
    """

    project: str
    name: str | None = None
    entity: str | None = None
    save_dir: str | None = "/nemo_run/wandb"
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    env: Sequence[str] = ()
    script_args_converter_fn: Callable[[ScriptArgs], list[str]] | None = None
    experiment_id: str | None = None

    def assign(self, experiment_id: str) -> None:
        """The experiment that the task is part of (NeMo-Run calls this)."""
        self.experiment_id = experiment_id

    def setup(self, task: Any, executor: Any) -> None:
        """Forward credentials to the executor, and set the task's logger (NeMo-Run calls this).

        Args:
            task: a ``run.Script``, which gets arguments, or a ``run.Partial`` whose ``config.logger`` is set.

        Raises:
            TypeError: neither of them.
        """
        names = [
            *CREDENTIALS,
            *self.env,
            *(name for name in os.environ if name == PREFIX or name.startswith(f"{PREFIX}_")),
        ]
        forwarded = {name: os.environ[name] for name in dict.fromkeys(names) if name in os.environ}
        address = forwarded.get(MLFLOW_ADDRESS, "")
        if address and MLFLOW_ADDRESS not in self.env and not address.startswith(("http://", "https://")):
            del forwarded[MLFLOW_ADDRESS]
        executor.env_vars = {**(executor.env_vars or {}), **forwarded}
        if "WANDB_API_KEY" not in forwarded:
            logger.warning("WANDB_API_KEY isn't set here: the job must find W&B's key by itself (wandb login)")
        arguments = getattr(task, "args", None)
        if isinstance(arguments, list):
            convert = self.script_args_converter_fn or hydra_overrides
            script_args = ScriptArgs(self.project, self.name, self.entity, self.save_dir, self.fields)
            arguments.extend(convert(script_args))
        elif hasattr(task, "config"):
            target = task.config.logger
            named = {"wandb_project": self.project, "wandb_entity": self.entity, "wandb_exp_name": self.name,
                     "wandb_save_dir": self.save_dir, **self.fields}  # fmt: skip
            for name, value in named.items():
                if value is not None:
                    setattr(target, name, value)
        else:
            raise TypeError(
                f"TrackersPlugin: {type(task).__name__} has neither args (run.Script) nor config (run.Partial)"
            )
