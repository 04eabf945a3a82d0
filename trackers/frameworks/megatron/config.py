"""Megatron Bridge's ``LoggerConfig``, and the option of a run that stands for each of its fields."""

from __future__ import annotations

import dataclasses
import json
import logging
import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trackers.errors import UsageError
from trackers.formats.megatron_line import check_option
from trackers.formats.word_list import joined, split_words
from trackers.instruments.memory import KEYS, MemoryReader
from trackers.instruments.options import Measure
from trackers.instruments.throughput import UNITS
from trackers.instruments.timers import LEVELS
from trackers.support import logging_setup

OPTIONS = {
    "log_interval": "TRACKER_LOG_INTERVAL",
    "tensorboard_log_interval": "TRACKER_MEASURE_INTERVAL",
    "timing_log_level": "TRACKER_TIMING_LEVEL",
    "timing_log_option": "TRACKER_TIMING_OPTION",
    "log_timers_to_tensorboard": "TRACKER_LOG_TIMERS",
    "log_throughput": "TRACKER_LOG_THROUGHPUT",
    "log_throughput_to_tensorboard": "TRACKER_LOG_THROUGHPUT",
    "throughput_window_size": "TRACKER_THROUGHPUT_WINDOW",
    "log_runtime_to_tensorboard": "TRACKER_LOG_RUNTIME",
    "runtime_time_unit": "TRACKER_RUNTIME_UNIT",
    "log_memory": "TRACKER_LOG_MEMORY",
    "log_memory_to_tensorboard": "TRACKER_LOG_MEMORY",
    "log_memory_interval": "TRACKER_MEMORY_INTERVAL",
    "log_params_norm": "TRACKER_LOG_NORMS",
    "log_l2_norm_grad_to_tensorboard": "TRACKER_LOG_LAYER_NORMS",
    "log_num_zeros_in_grad": "TRACKER_LOG_ZEROS",
    "log_energy": "TRACKER_LOG_ENERGY",
    "log_world_size_to_tensorboard": "TRACKER_LOG_WORLD_SIZE",
    "log_loss_scale_to_tensorboard": "TRACKER_LOG_LOSS_SCALE",
    "log_validation_ppl_to_tensorboard": "TRACKER_LOG_VALIDATION_PPL",
    "log_max_attention_logit": "TRACKER_LOG_MAX_ATTENTION_LOGIT",
    "save_config_filepath": "TRACKER_SAVE_CONFIG_FILEPATH",
    "tensorboard_dir": "TENSORBOARD_DIR",
    "wandb_project": "WANDB_PROJECT",
    "wandb_exp_name": "TRACKER_RUN_NAME",
    "wandb_entity": "WANDB_ENTITY",
    "wandb_save_dir": "WANDB_DIR",
    "mlflow_experiment": "MLFLOW_EXPERIMENT",
    "mlflow_tracking_uri": "MLFLOW_TRACKING_URI",
}
"""Fields that are options of a run, too."""
CHOOSING = frozenset({"tensorboard_dir", "wandb_project", "mlflow_experiment"})
"""Fields that ask for a tracker by saying where it keeps runs."""
LOGGING = {
    "logging_level": logging_setup.LEVEL,
    "filter_warnings": logging_setup.WARNINGS,
    "modules_to_filter": logging_setup.MODULES,
    "set_level_for_all_loggers": logging_setup.ALL,
}
"""Likewise, but their defaults differ: an option counts where it is set."""


COMET = ("comet_experiment_name", "comet_workspace", "comet_api_key", "comet_tags")
UPLOAD = ("comet_workspace", "comet_api_key")
"""Fields that are for ``comet upload``, not for the archive that it takes."""
WITHOUT_EFFECT = {
    "log_device_memory_used": "a device's memory is sampled beside training, as gpu/memory_used_avg_gb",
    **dict.fromkeys(
        (
            "moe_routing_trace_path",
            "moe_routing_trace_max_training_iters",
            "moe_routing_trace_capture_logits",
            "moe_routing_trace_capture_hidden_states",
            "moe_routing_trace_dump_weights",
        ),
        "the decisions of routers aren't traced",
    ),
}
"""Fields of Megatron that do nothing here, and what there is instead."""


@dataclasses.dataclass(kw_only=True)
class LoggerConfig:
    """Configuration of training logs: fields and defaults as in Megatron Bridge, and in the Megatron-LM below it.

    ``…_to_tensorboard`` means: to every tracker; so does ``log_memory``. TensorBoard is on where ``tensorboard_dir``
    is set, W&B where ``wandb_project`` and ``wandb_exp_name`` are, MLflow where ``mlflow_experiment`` is, Comet where
    ``comet_project`` is; others are named to ``start``. ``mlflow_tags`` are tags of MLflow's run alone;
    ``mlflow_description`` is the run's note and ``comet_tags`` are its tags everywhere.

    Some fields need no attention: ``tensorboard_queue_size`` (nothing waits in a queue, the journal is on disk),
    ``barrier_with_L1_time`` (a timer waits where its ``start`` is told to), ``mlflow_log_artifacts`` (an artifact is
    what ``run.log_artifact`` is given). ``log_device_memory_used`` and ``moe_routing_trace_…`` do nothing, and
    ``start`` says so.

    Raises:
        UsageError: a value that makes no sense, at ``check`` (which ``start`` calls).
    """

    log_interval: int = 100
    log_params_norm: bool = False
    log_throughput: bool = False
    log_throughput_to_tensorboard: bool = False
    throughput_window_size: int = 100
    log_progress: bool = False
    timing_log_level: int = 0
    timing_log_option: str = "minmax"
    tensorboard_dir: str | os.PathLike[str] | None = None
    tensorboard_log_interval: int = 1
    tensorboard_queue_size: int = 1000
    log_timers_to_tensorboard: bool = False
    log_loss_scale_to_tensorboard: bool = True
    log_validation_ppl_to_tensorboard: bool = False
    log_memory: bool = False
    log_memory_to_tensorboard: bool = False
    memory_keys: Mapping[str, str] | Sequence[str] | str | None = None
    log_memory_interval: int | None = None
    log_device_memory_used: bool = False
    log_l2_norm_grad_to_tensorboard: bool = False
    log_num_zeros_in_grad: bool = False
    log_max_attention_logit: bool = False
    log_runtime_to_tensorboard: bool = False
    runtime_time_unit: str = "hours"
    log_world_size_to_tensorboard: bool = False
    wandb_project: str | None = None
    wandb_exp_name: str | None = None
    wandb_save_dir: str | os.PathLike[str] | None = None
    wandb_entity: str | None = None
    mlflow_experiment: str | None = None
    mlflow_run_name: str | None = None
    mlflow_tracking_uri: str | None = None
    mlflow_tags: Mapping[str, Any] | None = None
    mlflow_description: str | None = None
    mlflow_log_artifacts: bool = True
    comet_project: str | None = None
    comet_experiment_name: str | None = None
    comet_workspace: str | None = None
    comet_api_key: str | None = dataclasses.field(default=None, repr=False)
    comet_tags: list[str] | None = None
    logging_level: int | str | None = logging.INFO
    filter_warnings: bool = True
    modules_to_filter: Sequence[str] | str | None = None
    set_level_for_all_loggers: bool = False
    log_energy: bool = False
    save_config_filepath: str | os.PathLike[str] | None = None
    skip_train_metrics_log: bool = False
    barrier_with_L1_time: bool = True
    moe_routing_trace_path: str | os.PathLike[str] | None = None
    moe_routing_trace_max_training_iters: int | None = None
    moe_routing_trace_capture_logits: bool = False
    moe_routing_trace_capture_hidden_states: bool = False
    moe_routing_trace_dump_weights: bool = False

    @classmethod
    def from_options(
        cls, flags: Mapping[str, Any] | None = None, defconfig: str | None = None, **fields: Any
    ) -> LoggerConfig:
        """As the run's options say: defaults, ``.config`` or a defconfig, environment and flags, as for every run.

        Where these choose the trackers (TRACKER), a place that they give for another one doesn't add it.

        Args:
            flags, defconfig: what ``configuration.flags_from_args`` makes of the command line.
            **fields: fields of this class, stronger than the options.

        Raises:
            UsageError: an option that makes no sense.
        """
        from trackers.configuration import resolve

        option = resolve({}, flags, defconfig=defconfig)
        by_field = {name: option[symbol] for name, symbol in OPTIONS.items() if option[symbol] not in (None, "")}
        if option.source("TRACKER") != "default":
            by_field = {name: value for name, value in by_field.items() if name not in CHOOSING}
        statistics = split_words(str(option["TRACKER_MEMORY_STATISTICS"]))
        if statistics:
            by_field["memory_keys"] = {key: KEYS.get(key, key) for key in statistics}
        by_field |= {name: option[symbol] for name, symbol in LOGGING.items() if option.source(symbol) != "default"}
        if isinstance(by_field.get("modules_to_filter"), str):
            by_field["modules_to_filter"] = split_words(by_field["modules_to_filter"])
        return cls(**{**by_field, **fields})

    def check(self) -> None:
        """Raise UsageError for a value that makes no sense."""
        for field in dataclasses.fields(self):
            _check_field(field.name, str(field.type), getattr(self, field.name))
        if self.timing_log_level not in LEVELS:
            raise UsageError(f"timing_log_level={self.timing_log_level!r}: known are -1 (no timer), 0, 1 and 2")
        _check_named("timing_log_option", check_option, self.timing_log_option)
        if self.runtime_time_unit not in UNITS:
            raise UsageError(f"runtime_time_unit={self.runtime_time_unit!r}: known are {', '.join(UNITS)}")
        for name in ("log_interval", "tensorboard_log_interval", "throughput_window_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)!r}: give 1 or more")
        if self.log_memory_interval is not None and self.log_memory_interval < 0:
            raise UsageError(f"log_memory_interval={self.log_memory_interval!r}: give 0 (as the others) or more")
        _check_named("modules_to_filter", logging_setup.prefixes, self.modules_to_filter)
        if self.logging_level is not None:
            _check_named("logging_level", logging_setup.level, self.logging_level)
        MemoryReader.check(self.memory_keys)

    def remarks(self) -> list[str]:
        """A line for each field that is set and does nothing."""
        lines = [f"{name} has no effect: {why}" for name, why in WITHOUT_EFFECT.items() if getattr(self, name)]
        if self.wandb_project and not self.wandb_exp_name:
            lines.append("wandb_project is set, but wandb_exp_name isn't: W&B is off; set both")
        for needed, names in (
            ("wandb_project", ("wandb_exp_name", "wandb_entity", "wandb_save_dir")),
            ("mlflow_experiment", ("mlflow_run_name", "mlflow_tracking_uri", "mlflow_tags", "mlflow_description")),
            ("comet_project", COMET),
        ):
            present = [name for name in names if getattr(self, name)]
            if present and not getattr(self, needed):
                lines.append(f"{', '.join(present)} without {needed}: it alone adds that tracker")
        if self.comet_project and (present := [name for name in UPLOAD if getattr(self, name)]):
            named = ", ".join(f"{name.upper()}" for name in present)
            lines.append(f"{', '.join(present)} has no effect: what uploads the archive, `comet upload`, takes {named}")
        names = ("wandb_exp_name", "mlflow_run_name", "comet_experiment_name")
        first, *others = [name for name in names if getattr(self, name)] or [""]
        for name in others:
            if getattr(self, name) != getattr(self, first):
                lines.append(
                    f"{name}={getattr(self, name)!r} has no effect: a run has one name in every tracker, "
                    f"{getattr(self, first)!r} ({first})"
                )
        return lines

    def trackers(self) -> list[str]:
        """The trackers that the fields ask for."""
        chosen = {
            "tensorboard": self.tensorboard_dir,
            "wandb": self.wandb_project and self.wandb_exp_name,
            "mlflow": self.mlflow_experiment,
            "comet": self.comet_project,
            "progress": self.log_progress,
        }
        return [name for name, enabled in chosen.items() if enabled]

    def options(self) -> dict[str, Any]:
        """The fields that are options of a run, by Kconfig symbol; only what was given."""
        tags = {str(key): str(value) for key, value in (self.mlflow_tags or {}).items()}
        values = {
            "TRACKER_RANK": "last",
            "TRACKER_LOG_INTERVAL": self.log_interval,
            "TRACKER_TIMING_LEVEL": self.timing_log_level,
            "TRACKER_TIMING_OPTION": self.timing_log_option,
            "TRACKER_LOG_TIMERS": False,  # training_log says when
            "TRACKER_PROJECT": self.wandb_project or self.mlflow_experiment or self.comet_project,
            "TRACKER_RUN_NAME": self.wandb_exp_name or self.mlflow_run_name or self.comet_experiment_name,
            "TRACKER_TAGS": joined(self.comet_tags or "") if self.comet_project else None,
            "TRACKER_NOTES": self.mlflow_description,
            "TENSORBOARD_DIR": _path(self.tensorboard_dir),
            "WANDB_ENTITY": self.wandb_entity,
            "WANDB_PROJECT": self.wandb_project,
            "WANDB_DIR": _path(self.wandb_save_dir),
            "MLFLOW_EXPERIMENT": self.mlflow_experiment,
            "MLFLOW_TRACKING_URI": self.mlflow_tracking_uri,
            "MLFLOW_TAGS": json.dumps(tags) if tags else None,
        }
        return {symbol: value for symbol, value in values.items() if value not in (None, "")}

    def logging_options(self) -> dict[str, Any]:
        """How Python's logging is set, by Kconfig symbol; the environment's level beats the field."""
        every = {logging_setup.ALL: True} if self.set_level_for_all_loggers else {}
        return {
            logging_setup.LEVEL: str(
                logging_setup.overridden(logging.INFO if self.logging_level is None else self.logging_level)
            ),
            logging_setup.WARNINGS: self.filter_warnings,
            logging_setup.MODULES: ",".join(logging_setup.prefixes(self.modules_to_filter)),
            **every,
        }

    def measure(self) -> Measure:
        """What the fields ask to be measured every ``tensorboard_log_interval`` iterations."""
        return Measure(
            interval=self.tensorboard_log_interval,
            throughput=self.log_throughput_to_tensorboard,
            window=self.throughput_window_size,
            runtime=self.log_runtime_to_tensorboard,
            runtime_unit=self.runtime_time_unit,
            memory=self.log_memory_to_tensorboard or self.log_memory,
            memory_interval=self.log_memory_interval or 0,
            memory_keys=self.memory_keys,
            norms=self.log_params_norm,
            layer_norms=self.log_l2_norm_grad_to_tensorboard,
            zeros=self.log_num_zeros_in_grad,
            timers=self.log_timers_to_tensorboard,
            timing_option=self.timing_log_option,
        )

    def prepare(self) -> None:
        """See that ``save_config_filepath`` can be written, where one is set.

        Raises:
            UsageError: it can't be.
        """
        if self.save_config_filepath:
            path = Path(self.save_config_filepath).expanduser()
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("ab"):
                    pass
            except OSError as error:
                raise UsageError(
                    f"save_config_filepath={os.fspath(self.save_config_filepath)!r} can't be written "
                    f"({error.strerror}): name another file"
                ) from None

    def save(self, config: Mapping[str, Any]) -> None:
        """Write a configuration to ``save_config_filepath``, where one is set, as JSON (which is YAML, too).

        Raises:
            OSError: it can't be written.
        """
        if self.save_config_filepath:
            import msgspec

            path = Path(self.save_config_filepath).expanduser()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")


def _path(value: str | os.PathLike[str] | None) -> str | None:
    return None if value is None else os.fspath(value)


def _check_named(name: str, check: Callable[[Any], Any], value: Any) -> None:
    try:
        check(value)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _check_field(name: str, kind: str, value: Any) -> None:
    """Raise UsageError where a field's value isn't of its kind, which is the text of its annotation."""
    if value is None and "None" in kind:
        return
    if kind == "bool":
        known, expected = isinstance(value, bool), "True or False"
    elif kind.startswith("int |") and "str" in kind:
        return  # a logging level
    elif kind.startswith("int"):
        known, expected = isinstance(value, numbers.Integral) and not isinstance(value, bool), "a whole number"
    elif kind.startswith("Mapping[str, Any]"):
        known, expected = isinstance(value, Mapping), 'a mapping, such as {"team": "nlp"}'
    elif kind.startswith(("Mapping", "Sequence", "list")):
        return  # checked by whoever reads it
    else:
        known, expected = isinstance(value, (str, os.PathLike) if "PathLike" in kind else str), "text"
    if not known:
        raise UsageError(f"{name}={value!r}: give {expected}{' or None' if 'None' in kind else ''}")
