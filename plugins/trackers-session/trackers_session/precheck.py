"""Settings of the session logs, and the checks that ``init`` makes. Imports nothing else of this tracker.

The settings come from the run's options: what is written, how often, and the two logging levels.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from trackers.backends.shared.directory import FilePrecheck
from trackers.errors import ConfigError, UsageError
from trackers.support.logging_setup import level
from trackers.tracker import RunInfo

LEVELS = ("TRAINING_LOG_LEVEL", "MULTIGPU_LOG_LEVEL")
_FALSE = (False, "n", "false", "False", "0", 0)


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of session logs, with their defaults.

    log_steps, performance_steps, multigpu_steps: between two lines. snapshot_s: between two snapshots of the GPUs.
    communication: lines and entries of each timed communication. training_level: of the main and the performance log.
    sampled: a sampler tells of GPUs, so the head of the log waits for it.
    """

    log_steps: int = 50
    performance_steps: int = 100
    multigpu_steps: int = 20
    snapshot_s: float = 10.0
    communication: bool = True
    training_level: int = logging.INFO
    multigpu_level: int = logging.INFO
    sampled: bool = True


def settings(info: RunInfo) -> SessionSettings:
    """As a run's options say."""
    sampled = info.option("TRACKER_SAMPLE", True) not in _FALSE and info.option("TRACKER_RELAY", True) not in _FALSE
    return SessionSettings(
        log_steps=max(1, int(info.option("SESSION_LOG_INTERVAL_STEPS", 50))),
        performance_steps=max(1, int(info.option("SESSION_PERFORMANCE_LOG_STEPS", 100))),
        snapshot_s=float(info.option("SESSION_GPU_SNAPSHOT_INTERVAL", 10)),
        communication=info.option("SESSION_DETAILED_COMMUNICATION_LOGS", True) not in _FALSE,
        training_level=level(str(info.option("TRAINING_LOG_LEVEL", "INFO"))),
        multigpu_level=level(str(info.option("MULTIGPU_LOG_LEVEL", "INFO"))),
        sampled=sampled and info.option("TRACKER_INLINE", False) in _FALSE,
    )


def check_levels(options: Mapping[str, Any]) -> None:
    """Raise a ConfigError for a level that is neither a name nor a number."""
    for symbol in LEVELS:
        try:
            level(str(options.get(symbol) or "INFO"))
        except UsageError:
            known = "DEBUG, INFO, WARNING, ERROR, CRITICAL"
            raise ConfigError(f"{symbol}={options[symbol]}: give a number, or one of {known}") from None


class SessionPrecheck(FilePrecheck):
    """The session logs: their directory, and two levels."""

    name = "session"
    symbol = "SESSION_DIR"
    gathers_nccl = True
    unedited: ClassVar[dict[str, str]] = {"notes": "a session's summary has none"}

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Raise a UsageError for a directory that can't be written, or for a level that isn't one."""
        check_levels(options)
        super().check(options)
