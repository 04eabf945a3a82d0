"""W&B's ``init`` and runs: its arguments as options of this package, and its names that runs here don't have.

Such a name is without effect, or refused with the real call.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from trackers.errors import UNDECODABLE, UsageError, did_you_mean
from trackers.formats.json_values import mapping
from trackers.formats.word_list import joined
from trackers.formats.yaml_text import load_yaml

logger = logging.getLogger("trackers")

printed_messages: set[str] = set()
"""Messages printed so far, so that each is printed once."""


answering: list[str] = []
"""Holds a word while ``import wandb`` gives this package."""

assigned: dict[str, Any] = {}
"""What a script assigned on the module (``wandb.config = …``). As in W&B, ``init`` and ``finish`` set it anew."""


class NotProvided(UsageError, AttributeError, NotImplementedError):
    """Something of W&B's that trackers doesn't do; the message names the real call."""


SETTING_DEFAULTS: dict[str, Any] = {
    "mode": "online", "api_key": None, "base_url": "https://api.forge.coreweave.com", "entity": None, "project": None,
    "run_id": None, "run_name": None, "run_group": None, "run_tags": None, "run_notes": None, "run_job_type": None,
    "resume": None, "resumed": False, "root_dir": ".", "wandb_dir": None, "sync_dir": None, "files_dir": None,
    "sweep_id": None, "host": None, "program": None, "silent": False, "quiet": False, "console": "auto",
    "start_method": "thread", "save_code": None, "disable_code": False, "disable_git": False, "symlink": True,
    "init_timeout": 90.0, "login_timeout": None, "code_dir": None, "reinit": "default", "sync_tensorboard": False,
    "show_info": True, "show_warnings": True, "show_errors": True, "config_paths": None, "heartbeat_seconds": 30,
    "username": None, "sweep_url": None, "project_url": "", "run_url": "", "disabled": False,
}  # fmt: skip
"""Fields of ``wandb.Settings`` that scripts read, as they are where nobody set them."""


class Settings(dict[str, Any]):
    """Settings as ``wandb.Settings`` takes them; ``init`` uses those that have a meaning here."""

    def __getattr__(self, name: str) -> Any:
        for key in (name, name[1:] if name.startswith("_") else ""):  # older scripts write _disable_stats
            if key in self:
                return self[key]
        if name in SETTING_DEFAULTS:
            return SETTING_DEFAULTS[name]
        if name in ("is_local", "x_disable_stats"):
            return False
        if name.startswith("x_") or (name.startswith("_") and not name.startswith("__")):
            return None
        raise AttributeError(f"these settings have no {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __reduce__(self) -> Any:
        return Settings, (dict(self),)

    def copy(self) -> Settings:
        """Settings of their own with the same values."""
        return Settings(self)

    __copy__ = copy

    def model_dump(self, *, exclude_unset: bool = False, exclude_none: bool = False, **more: Any) -> dict[str, Any]:
        """What is set, or all known fields; without those that are None by ``exclude_none``."""
        values = dict(self) if exclude_unset else {**SETTING_DEFAULTS, **self}
        return {name: value for name, value in values.items() if not (exclude_none and value is None)}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Settings:
        """A copy with some other values."""
        return Settings({**self, **(update or {})})


ARGUMENTS = {
    "entity": "WANDB_ENTITY", "project": "TRACKER_PROJECT", "name": "TRACKER_RUN_NAME", "id": "TRACKER_RUN_ID",
    "group": "TRACKER_GROUP", "tags": "TRACKER_TAGS", "notes": "TRACKER_NOTES", "mode": "TRACKER_MODE",
    "dir": "TRACKER_DIR", "resume": "TRACKER_RESUME", "fork_from": "TRACKER_FORK_FROM",
}  # fmt: skip
"""Arguments of ``wandb.init`` that are options here."""

SETTINGS = {
    "entity": "WANDB_ENTITY", "project": "TRACKER_PROJECT", "run_name": "TRACKER_RUN_NAME",
    "run_id": "TRACKER_RUN_ID", "run_group": "TRACKER_GROUP", "run_tags": "TRACKER_TAGS",
    "run_job_type": "TRACKER_JOB_TYPE",
    "run_notes": "TRACKER_NOTES", "mode": "TRACKER_MODE", "root_dir": "TRACKER_DIR", "resume": "TRACKER_RESUME",
}  # fmt: skip
"""Fields of ``wandb.Settings`` that are options here."""

CONSOLE = {
    "off": "n", "redirect": "descriptors", "wrap": "python", "wrap_raw": "python", "wrap_emu": "python",
}  # fmt: skip
"""Ways in which W&B's client captures the console, and those of :mod:`trackers.training.console_capture`."""

HARMLESS_SETTINGS = frozenset(SETTING_DEFAULTS) - frozenset(SETTINGS) | {
    "allow_val_change", "anonymous", "console_chunk_max_bytes", "console_multipart", "disable_job_creation",
    "ignore_globs", "job_name", "label_disable", "launch", "max_end_of_run_history_metrics", "save_requirements",
    "settings_system", "summary_timeout", "table_raise_on_max_row_limit_exceeded", "finish_timeout", "force",
    "git_commit", "git_remote", "git_remote_url", "git_root", "insecure_disable_ssl", "strict", "summary_errors",
    "disable_hints", "email", "notebook_name", "organization", "relogin", "stop_fn",
}  # fmt: skip
"""Fields that concern W&B's own client, its service and its messages: nothing is said about them."""

PASSED_ON = ("config", "job_type", "reinit", "config_exclude_keys", "config_include_keys")

HARMLESS = ("allow_val_change", "anonymous", "force", "magic")
"""Arguments whose effect is ours anyway, or that only concern W&B's login."""

TENSORBOARD = ("tensorboard", "sync_tensorboard")
"""Arguments and setting by which a run records what TensorBoard's writers are given."""

WITHOUT_EFFECT = {
    "save_code": "the script, its arguments and git state are recorded anyway",
    "monitor_gym": "log videos with Video",
}


def init_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """W&B's keyword arguments of ``init`` as ours.

    Returns:
        Kconfig symbols (in capitals) for what is an option, and config, job_type, reinit, config_exclude_keys,
        config_include_keys and (for ``resume_from``) step by their own names. What is None is left out. An argument
        beats the same setting.

    Raises:
        TypeError: an unknown argument, with the nearest name.
        UsageError: resume_from isn't "<run id>?_step=<step>".
    """
    settings = given.get("settings")
    arguments = _settings(settings) if settings is not None else {}
    for name, value in given.items():
        if name in ARGUMENTS:
            if value is not None:
                arguments[ARGUMENTS[name]] = _option(ARGUMENTS[name], value)
        elif name in PASSED_ON:
            if value is not None:
                arguments[name] = value
        elif name in TENSORBOARD:
            if value:
                arguments["sync_tensorboard"] = True
        elif name == "resume_from":
            if value is not None:
                arguments.update(_rewind(str(value)))
        elif name in WITHOUT_EFFECT:
            if value:
                warn(f"init: {name} has no effect here; {WITHOUT_EFFECT[name]}")
        elif name not in HARMLESS and name != "settings":
            raise TypeError(_unknown(name))
    return arguments


def _rewind(text: str) -> dict[str, Any]:
    run_id, separator, step = text.partition("?_step=")
    if not run_id or not separator or not step.isdigit():
        raise UsageError(f"resume_from={text!r}: W&B's form is '<run id>?_step=<step>'")
    return {"TRACKER_RUN_ID": run_id, "TRACKER_RESUME": "must", "step": int(step)}


def _settings(settings: Any) -> dict[str, Any]:
    if isinstance(settings, Mapping):
        values = dict(settings)
    elif hasattr(settings, "model_dump"):  # wandb's own Settings: only what was set
        values = dict(settings.model_dump(exclude_unset=True))
    else:
        values = dict(vars(settings))
    known = {*SETTINGS, *TENSORBOARD, *HARMLESS_SETTINGS}
    ignored = sorted(
        name for name, value in values.items() if value and name not in known and not name.startswith(("_", "x_"))
    )
    if ignored:
        warn(f"init: these settings of W&B have no effect here: {', '.join(ignored)}")
    arguments: dict[str, Any] = {
        SETTINGS[k]: _option(SETTINGS[k], v) for k, v in values.items() if k in SETTINGS and v is not None
    }
    if any(values.get(name) for name in TENSORBOARD):
        arguments["sync_tensorboard"] = True
    if values.get("_disable_stats") or values.get("x_disable_stats"):
        arguments["TRACKER_SAMPLE"] = False
    if values.get("console") in CONSOLE:
        arguments["TRACKER_CONSOLE_CAPTURE"] = CONSOLE[values["console"]]
    return arguments


def _option(symbol: str, value: Any) -> Any:
    if symbol == "TRACKER_TAGS":
        return joined(value)
    if symbol == "TRACKER_RESUME":
        return "auto" if value is True else str(value or "")
    return str(value)


def _unknown(name: str) -> str:
    own = ("trackers", "rank", "step", "inline", "defconfig", "options", "flags")
    names = sorted({*ARGUMENTS, *PASSED_ON, *TENSORBOARD, *WITHOUT_EFFECT, *HARMLESS, "settings", "resume_from", *own})
    hint = did_you_mean(name, names, f". Known: {', '.join(names)}")
    return f"init() got an unexpected keyword argument {name!r}{hint}"


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The configuration in a YAML or JSON file, as ``wandb.init(config="path")`` reads it.

    Values written as W&B writes them (``lr: {value: 0.1, desc: …}``) lose that wrapping.

    Raises:
        UsageError: no such file, no mapping in it, or YAML without the PyYAML package.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"config={os.fspath(path)!r} can't be read: {error}") from None
    try:
        values = json.loads(text)
    except UNDECODABLE:
        values = _yaml(text, path)
    if not isinstance(values, dict):
        raise UsageError(f"config={os.fspath(path)!r} must hold a mapping of names to values")
    plain = {str(name): _unwrapped(value) for name, value in values.items()}
    plain.pop("wandb_version", None)  # stands beside the values in W&B's config.yaml
    return plain


def filtered(config: Any, include: Any = None, exclude: Any = None) -> Any:
    """A configuration, or the one in a file, without some of its keys.

    Args:
        include: the keys that stay. exclude: keys that are left out. Neither: the configuration as it is.

    Raises:
        UsageError: both are given, or what :func:`read_config` raises.
    """
    if not include and not exclude:
        return config
    if include and exclude:
        raise UsageError("a configuration takes either keys to include or keys to exclude, not both")
    values = read_config(config) if isinstance(config, (str, os.PathLike)) else mapping(config)
    return {key: value for key, value in values.items() if (key in include if include else key not in exclude)}


def _yaml(text: str, path: str | os.PathLike[str]) -> Any:
    try:
        return load_yaml(text)
    except ImportError:
        raise UsageError(f"config={os.fspath(path)!r} is YAML: pip install pyyaml, or write JSON") from None
    except ValueError as error:
        raise UsageError(f"config={os.fspath(path)!r} isn't valid YAML: {error}") from None


def _unwrapped(value: Any) -> Any:
    wrapped = isinstance(value, dict) and "value" in value and set(value) <= {"value", "desc"}  # W&B's config.yaml
    return value["value"] if wrapped else value


def warn(text: str) -> None:
    """Say a thing once."""
    if text not in printed_messages:
        printed_messages.add(text)
        logger.warning(text)


HINTS = {"Api": "`trackers show` and `trackers ls` read runs on this machine"}
RUN_REFUSED = ("restore",)


def of_run(name: str, ours: list[str]) -> Any:
    """What ``run.<name>`` is to a script written for W&B, where a run of ours has no such name.

    Raises:
        AttributeError: W&B's runs have none either; the message has the nearest of ``ours``.
    """
    if name in RUN_REFUSED:
        return RefusedName(f"run.{name}")
    public = [key for key in ours if not key.startswith("_")]
    raise AttributeError(f"a run has no {name!r}{did_you_mean(name, public, '')}")


class RefusedName:
    """A function or a part of W&B that isn't provided: using it raises :class:`NotProvided`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: Any, **more: Any) -> NoReturn:
        raise NotProvided(refusal(self._name, call=True))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotProvided(refusal(f"{self._name}.{name}", call=self._name == "sdk"))

    def __repr__(self) -> str:
        return f"<{refusal(self._name, call=False)}>"


def refusal(name: str, call: bool = True) -> str:
    """The one line that says so."""
    hint = HINTS.get(name.partition(".")[0])
    dots = "(...)" if call else ""
    how = f"call it as `import wandb; wandb.{name}{dots}`"
    if answering:
        how = f"call wandb.{name}{dots} in a script that runs without trackers.as_wandb"
    return f"trackers has no {name!r}: that is W&B's own; {how}" + (f", or {hint}" if hint else "")
