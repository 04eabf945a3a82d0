"""Python's own logging as document 4 configures it: a level by name or number, and what is left out."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

from trackers.errors import UsageError

VARIABLES = ("TRACKER_LOGGING_LEVEL", "MEGATRON_BRIDGE_LOGGING_LEVEL")
"""Environment variables that override the level; the first that is set counts."""


class Left(logging.Filter):
    """Leaves out records: of the level WARNING, or of loggers whose names begin with one of these."""

    def __init__(self, warnings: bool, modules: Sequence[str]) -> None:
        super().__init__()
        self._warnings = warnings
        self._modules = tuple(modules)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is kept."""
        if self._warnings and record.levelno == logging.WARNING:
            return False
        return not any(record.name == name or record.name.startswith(f"{name}.") for name in self._modules)


def level(value: int | str) -> int:
    """A level from its name, in any case, or its number.

    Raises:
        UsageError: neither.
    """
    if isinstance(value, int):
        return value
    text = value.strip()
    if text.isdigit():
        return int(text)
    found = logging.getLevelName(text.upper())
    if not isinstance(found, int):
        raise UsageError(f"logging level {value!r}: give a number, or one of DEBUG, INFO, WARNING, ERROR, CRITICAL")
    return found


def configure(
    logging_level: int | str,
    *,
    filter_warnings: bool = True,
    modules_to_filter: Sequence[str] | None = None,
    set_level_for_all_loggers: bool = False,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Set the root logger's level (with ``set_level_for_all_loggers`` every logger's), and what its handlers leave out.

    Filters stand on the handlers, so that they hold for every logger below the root. Called again, it replaces what it
    set before.

    Returns:
        the level that counts: the environment's, where it is set.
    """
    environ = os.environ if environ is None else environ
    wanted = next((environ[name] for name in VARIABLES if environ.get(name)), logging_level)
    number = level(wanted)
    root = logging.getLogger()
    root.setLevel(number)
    if set_level_for_all_loggers:
        for name in list(logging.root.manager.loggerDict):
            logging.getLogger(name).setLevel(number)
    if not root.handlers:
        root.addHandler(logging.StreamHandler())
    for handler in root.handlers:
        for old in [one for one in handler.filters if isinstance(one, Left)]:
            handler.removeFilter(old)
        handler.addFilter(Left(filter_warnings, modules_to_filter or ()))
    return number
