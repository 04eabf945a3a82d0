"""Start of a training with Megatron's logging."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any

from trackers.errors import UsageError
from trackers.frameworks.megatron.config import LoggerConfig
from trackers.frameworks.megatron.training_log import MegatronLog, check_arguments
from trackers.support import process_info
from trackers.training.init import init as begin


def start(
    config: LoggerConfig,
    *,
    trackers: Sequence[str] | str | None = None,
    run_config: Any = None,
    init: Mapping[str, Any] | None = None,
    save: str | os.PathLike[str] | None = None,
    **arguments: Any,
) -> MegatronLog:
    """Begin a run as Megatron's ``LoggerConfig`` says; call it on every rank.

    Args:
        trackers: besides those that the configuration asks for; without any the usual choice counts (TRACKER, json).
        run_config: the whole configuration of the training. init: what else ``trackers.init`` is to be given.
        save: where checkpoints are saved: with ``log_progress``, progress.txt is kept there.
        **arguments: those of :class:`MegatronLog`.

    Raises:
        UsageError: whatever can be seen before the first step, before a run is begun. TypeError: an argument that is
            unknown, or one that is missing.
    """
    if not isinstance(config, LoggerConfig):
        raise UsageError(f"config of type {type(config).__name__}: give a trackers.frameworks.megatron.LoggerConfig")
    config.check()
    inspect.signature(MegatronLog.__init__).bind(None, None, config, **arguments)
    check_arguments(arguments)
    if process_info.rank() == 0:
        config.prepare()
    names = [*config.trackers(), *(trackers.split(",") if isinstance(trackers, str) else trackers or ())]
    chosen = list(dict.fromkeys(name.strip() for name in names if name.strip()))
    more = dict(init or {})
    flags = {symbol for symbol, value in (more.get("flags") or {}).items() if value is not None}
    logging = {symbol: value for symbol, value in config.logging_options().items() if symbol not in flags}
    options = {**config.options(), **logging, **more.pop("options", {})}
    if save is not None:
        options.setdefault("PROGRESS_DIR", os.fspath(save))
    run = begin(chosen or None, config=run_config, options=options, **more)
    try:
        log = MegatronLog(run, config, **arguments)
    except BaseException:
        run.finish(exit_code=1)
        raise
    if process_info.rank() == 0:
        try:
            config.save(dict(run.config))
        except OSError as error:
            log.say(f"megatron: the configuration can't be written: {error}")
    return log
