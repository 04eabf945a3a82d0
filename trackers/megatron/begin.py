"""How a training that is logged as document 4 says begins."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from trackers import identity
from trackers.megatron.config import LoggerConfig
from trackers.megatron.log import MegatronLog


def start(
    config: LoggerConfig,
    *,
    trackers: Sequence[str] | str = (),
    run_config: Any = None,
    init: Mapping[str, Any] | None = None,
    save: str | os.PathLike[str] | None = None,
    **arguments: Any,
) -> MegatronLog:
    """Begin a run as document 4's configuration says; call it on every rank.

    Args:
        trackers: besides those that the configuration asks for; without any the usual choice counts (TRACKER, json).
        run_config: the whole configuration of the training. init: what else ``trackers.init`` is to be given.
        save: where checkpoints are saved: with ``log_progress``, progress.txt is kept there.
        **arguments: those of :class:`MegatronLog`.

    Raises:
        UsageError: whatever can be seen before the first step. TypeError: an unknown argument.
    """
    import trackers as package

    config.check()
    names = [*config.trackers(), *(trackers.split(",") if isinstance(trackers, str) else trackers)]
    chosen = list(dict.fromkeys(name.strip() for name in names if name.strip()))
    more = dict(init or {})
    flags = {symbol for symbol, value in (more.get("flags") or {}).items() if value is not None}
    logging = {symbol: value for symbol, value in config.logging_options().items() if symbol not in flags}
    options = {**config.options(), **logging, **more.pop("options", {})}
    if save is not None:
        options.setdefault("PROGRESS_DIR", os.fspath(save))
    run = package.init(chosen or None, config=run_config, options=options, **more)
    if identity.rank() == 0:
        config.save(dict(run.config))
    return MegatronLog(run, config, **arguments)
