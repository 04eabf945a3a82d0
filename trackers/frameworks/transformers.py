"""``TrackersCallback``: a callback for the Transformers Trainer, and for the trainers that are built on it, as TRL's.

    from trackers.frameworks.transformers import TrackersCallback

    trainer = Trainer(model, args, train_dataset=data, callbacks=[TrackersCallback("wandb,mlflow", project="digits")])

Importing this module also registers it, so that ``TrainingArguments(report_to=["trackers"])`` finds it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers.integrations import integration_utils
from transformers.trainer_callback import TrainerCallback

from trackers.frameworks.shared import RunHandle, guarded, model_sizes

RESULTS = (
    "train_runtime", "train_samples_per_second", "train_steps_per_second", "train_tokens_per_second", "train_loss",
    "total_flos",
)  # fmt: skip
"""What the Trainer logs once, at the end of training: results, not points of a series."""
LOG_MODEL = (False, True, "end", "checkpoint")
IN_STATE = "trackers_run"
"""Entry of ``trainer_state.json`` with the run that a checkpoint belongs to."""


def register() -> None:
    """Make ``report_to=["trackers"]`` known to Transformers. Importing this module has done it."""
    integration_utils.INTEGRATION_TO_CALLBACK["trackers"] = TrackersCallback


class TrackersCallback(TrainerCallback):  # type: ignore[misc]
    """Logs a Trainer's training to a run; on the world's process zero, the others do nothing.

    The step is the Trainer's global step. Names have the prefixes of Transformers' other integrations: ``train/``,
    ``eval/``, ``test/``. What is logged once at the end (runtime, samples per second, the best metric) are results,
    ``final/…``. The run's configuration has the training arguments, the model's (``model``) and PEFT's (``peft``).

    The run goes on after ``train``, so that ``evaluate`` and ``predict`` log to it as well; it ends with the process,
    or when another logger's run begins. A checkpoint remembers its run: ``resume_from_checkpoint`` continues that run,
    and what it has after the checkpoint's step is replaced. In a hyperparameter search each trial is a run, in one
    group. A run that the script began by ``trackers.init`` is used for everything, and left open.

    Args:
        trackers, project, name, config, **init: as for ``trackers.init``. The name is by default the training
            arguments' ``run_name``.
        run: the run to log to; default the current one, if any.
        log_model: "checkpoint" keeps each checkpoint as an artifact, "end" or True the model at the end of training,
            False none. Aliases are "step-N", "latest" and "best".

    Raises:
        ValueError: a log_model that isn't known.
        UsageError, NotFound: as ``trackers.init``, when training begins.
    """

    def __init__(
        self,
        trackers: str | Sequence[str] | None = None,
        *,
        run: Any = None,
        project: str | None = None,
        name: str | None = None,
        config: Any = None,
        log_model: bool | str = False,
        **init: Any,
    ) -> None:
        if log_model not in LOG_MODEL:
            raise ValueError(f"TrackersCallback: log_model={log_model!r}: known are False, True, 'end', 'checkpoint'")
        self._handle = RunHandle(trackers, run=run, project=project, name=name, config=config, **init)
        self._log_model, self._name = log_model, name
        self._configured: Any = None
        self._training = False
        self._trials = 0

    @property
    def run(self) -> Any:
        """The ``trackers.Run``; None before it is taken or begun, and on other processes than the world's zeroth."""
        return self._handle.known

    @guarded
    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        """Begin the run, or continue that of the checkpoint."""
        self._handle.ask_anew()
        if not state.is_world_process_zero:
            return
        if state.is_hyper_param_search:
            self._begin_trial(args, state)
        elif state.global_step:
            self._go_back(state)
        self._describe(args, state, model)
        self._training = True

    @guarded
    def on_train_end(
        self, args: Any, state: Any, control: Any, model: Any = None, processing_class: Any = None, **more: Any
    ) -> None:
        """Record the best metric, keep the model if that was asked for."""
        if not state.is_world_process_zero:
            return
        self._training = False
        run = self._describe(args, state, model)
        best = {
            "final/best_metric": state.best_metric,
            "final/best_global_step": getattr(state, "best_global_step", None),
            "final/best_model_checkpoint": state.best_model_checkpoint,
        }
        run.log({name: value for name, value in best.items() if value is not None}, step=state.global_step)
        if self._log_model in (True, "end"):
            with tempfile.TemporaryDirectory(prefix="trackers-model-") as folder:
                for part in (model, processing_class):
                    if hasattr(part, "save_pretrained"):
                        part.save_pretrained(folder)
                aliases = ["latest", *(["best"] if args.load_best_model_at_end else [])]
                self._keep(run, folder, aliases, state)
        self._handle.rest()

    @guarded
    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> Any:
        """Have the Trainer save, or stop, if the run is asked to (`trackers stop`)."""
        asked = self._handle.asked()
        control.should_save = control.should_save or asked.save
        control.should_training_stop = control.should_training_stop or asked.stop
        return control

    @guarded
    def on_log(self, args: Any, state: Any, control: Any, model: Any = None, logs: Any = None, **more: Any) -> None:
        """Record what the Trainer logs."""
        if not state.is_world_process_zero or not logs:
            return
        results = {f"final/{name}": value for name, value in logs.items() if name in RESULTS}
        values = _prefixed({name: value for name, value in logs.items() if name not in RESULTS})
        self._describe(args, state, model).log({**values, **results}, step=state.global_step)

    @guarded
    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **more: Any) -> None:
        """Record a prediction's metrics."""
        if state.is_world_process_zero and metrics:
            self._describe(args, state, more.get("model")).log(_prefixed(metrics), step=state.global_step)

    @guarded
    def on_save(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        """Keep the new checkpoint, if that was asked for."""
        if self._log_model != "checkpoint" or not state.is_world_process_zero:
            return
        name = f"checkpoint-{state.global_step}"
        folders = [path for path in Path(args.output_dir).glob(f"**/{name}") if path.is_dir()]
        if not folders:
            self._handle.say(f"TrackersCallback: no {name} in {args.output_dir}: it isn't kept as an artifact")
            return
        path = max(folders, key=lambda folder: folder.stat().st_mtime_ns)
        best = state.best_model_checkpoint is not None and Path(state.best_model_checkpoint).name == name
        aliases = [f"step-{state.global_step}", "latest", *(["best"] if best else [])]
        self._keep(self._describe(args, state, model), path, aliases, state)

    def _begin_trial(self, args: Any, state: Any) -> None:
        self._trials += 1
        group = str(self._handle.argument("group") or args.run_name or Path(args.output_dir).name)
        name = state.trial_name or f"{self._name or args.run_name or Path(args.output_dir).name}-{self._trials}"
        if self._training:  # the trial before this one never reached its end
            self._handle.fail(RuntimeError("the trial ended before its training did"))
        self._handle.next(name=name, group=group)
        self._configured = None

    def _go_back(self, state: Any) -> None:
        """Continue the run that the checkpoint belongs to, from the checkpoint's step on."""
        open_run = self._handle.known
        if open_run is not None and not open_run.finished:
            if open_run.step > state.global_step:
                self._handle.rewind(int(state.global_step))
            return
        known = (getattr(state, "stateful_callbacks", None) or {}).get(IN_STATE)
        known = known.get("attributes") if isinstance(known, Mapping) else None
        if self._handle.argument("id") is None and isinstance(known, Mapping):
            self._handle.suggest(id=known.get("id"), project=known.get("project"))
        if self._handle.argument("id") is not None and self._handle.argument("resume") not in ("never",):
            self._handle.suggest(resume="allow", step=int(state.global_step))

    def _describe(self, args: Any, state: Any, model: Any) -> Any:
        """The run, with the configuration of what is trained."""
        if self._handle.argument("name") is None and args.run_name not in (None, args.output_dir):
            self._handle.suggest(name=args.run_name)
        run = self._handle.run
        attributes = {"id": run.id, "project": run.project}
        if isinstance(getattr(state, "stateful_callbacks", None), dict):
            state.stateful_callbacks[IN_STATE] = {"args": {}, "attributes": attributes}
        if self._configured is not run:
            self._configured = run
            run.config.update(args.to_dict())
            parts = {"model": getattr(model, "config", None), "peft": getattr(model, "peft_config", None)}
            if state.is_hyper_param_search:
                parts["trial"] = state.trial_params
            for name, part in parts.items():
                if part is not None:
                    run.config.update({name: part.to_dict() if hasattr(part, "to_dict") else part})
            if hasattr(model, "parameters"):
                run.config.update(model_sizes(model))
        return run

    def _keep(self, run: Any, path: Any, aliases: list[str], state: Any) -> None:
        metadata = {
            "global_step": state.global_step,
            "epoch": state.epoch,
            "best_metric": state.best_metric,
            "path": str(path),
        }
        run.log_artifact(path, name=f"model-{run.id}", type="model", aliases=aliases, metadata=metadata)


def _prefixed(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Names as Transformers' other integrations have them."""
    renamed = {}
    for name, value in logs.items():
        kind, separator, rest = name.partition("_")
        renamed[f"{kind}/{rest}" if separator and kind in ("eval", "test") else f"train/{name}"] = value
    return renamed


register()
