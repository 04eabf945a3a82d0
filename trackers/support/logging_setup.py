"""Python's own logging, set up with Megatron Bridge's fields: a level by name or number, and filters.

Where nothing is asked for, nothing is touched.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from trackers.errors import ConfigError, UsageError

VARIABLES = ("TRACKER_LOGGING_LEVEL", "MEGATRON_BRIDGE_LOGGING_LEVEL")
"""Environment variables that override the level; the first that is set counts."""

LEVEL, WARNINGS = "TRACKER_LOGGING_LEVEL", "TRACKER_FILTER_WARNINGS"
MODULES, ALL = "TRACKER_MODULES_TO_FILTER", "TRACKER_SET_LEVEL_FOR_ALL_LOGGERS"


class Left(logging.Filter):
    """Leaves out records: of the level WARNING, or of loggers whose names begin with one of these."""

    def __init__(self, warnings: bool, modules: Sequence[str] | str) -> None:
        super().__init__()
        self._warnings = warnings
        self._modules = tuple(prefixes(modules))

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is kept."""
        if self._warnings and record.levelno == logging.WARNING:
            return False
        return not record.name.startswith(self._modules)


def prefixes(modules: Sequence[str] | str | None) -> list[str]:
    """Prefixes of loggers' names, given as a sequence or as one text with commas.

    Raises:
        UsageError: neither.
    """
    if isinstance(modules, str):
        modules = modules.split(",")
    if modules is None:
        return []
    if not isinstance(modules, (Sequence, Set)) or not all(isinstance(name, str) for name in modules):
        raise UsageError(f"modules to filter {modules!r}: give a list of loggers' names, or their first parts")
    return [name.strip() for name in modules if name.strip()]


def level(value: int | str) -> int:
    """A level from its name, in any case, or its number.

    Raises:
        UsageError: neither.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = value.strip() if isinstance(value, str) else ""
    if text.isascii() and text.isdigit():
        return int(text)
    number = logging.getLevelName(text.upper())
    if not isinstance(number, int):
        raise UsageError(f"logging level {value!r}: give a number, or one of DEBUG, INFO, WARNING, ERROR, CRITICAL")
    return number


def overridden(requested: int | str, environ: Mapping[str, str] | None = None) -> int | str:
    """The level that counts: the environment's, where it is set."""
    environ = os.environ if environ is None else environ
    return next((environ[name] for name in VARIABLES if environ.get(name)), requested)


def apply(options: Mapping[str, Any]) -> None:
    """Set logging as a run's options say, if they say anything.

    Raises:
        ConfigError: TRACKER_LOGGING_LEVEL, or Megatron Bridge's variable, is no level.
    """
    modules = prefixes(str(options.get(MODULES) or ""))
    level_name = str(options.get(LEVEL) or "").strip()
    warnings, every = bool(options.get(WARNINGS)), bool(options.get(ALL))
    if not (level_name or warnings or modules or every):
        return
    try:
        number = level(level_name) if level_name else None
    except UsageError as error:
        name = next((name for name in VARIABLES if os.environ.get(name, "").strip() == level_name), LEVEL)
        raise ConfigError(f"{name}: {error}") from None
    _set(number, warnings, modules, every)


def configure(
    logging_level: int | str,
    *,
    filter_warnings: bool = True,
    modules_to_filter: Sequence[str] | str | None = None,
    set_level_for_all_loggers: bool = False,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Set the root logger's level (with ``set_level_for_all_loggers`` every logger's), and what handlers leave out.

    Filters stand on the handlers that there are, so that they hold for every logger that uses one. Called again, it
    replaces what it set before.

    Returns:
        the level that counts: the environment's, where it is set.
    """
    number = level(overridden(logging_level, environ))
    _set(number, filter_warnings, prefixes(modules_to_filter), set_level_for_all_loggers)
    return number


def _set(number: int | None, warnings: bool, modules: Sequence[str], every: bool) -> None:
    root = logging.getLogger()
    if number is not None:
        root.setLevel(number)
    for logger in _loggers() if every else ():
        logger.setLevel(root.level)
    if not root.handlers:
        root.addHandler(logging.StreamHandler())
    filter_ = Left(warnings, modules)
    for handler in {id(handler): handler for logger in _loggers() for handler in logger.handlers}.values():
        for old in [entry for entry in handler.filters if isinstance(entry, Left)]:
            handler.removeFilter(old)
        handler.addFilter(filter_)


def _loggers() -> Iterator[logging.Logger]:
    yield logging.getLogger()
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):  # else a place in the tree that nobody has asked for
            yield logger
