"""The conformance kit: does a tracker keep its promises, whatever dies and however often it is delivered to?

    from trackers.testing import Limits, Point, Stored, check_tracker

    def test_my_tracker(tmp_path):
        check_tracker(MyTracker, read, directory=tmp_path, limits=Limits(float32=True))

``read`` finds what the destination holds without the tracker's help. It needs no pytest; with it,
``@pytest.mark.parametrize("check", checks())`` and ``checks=[check]`` make one test of each check.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trackers.plugged.kit import PluginError, checked, device_source
from trackers.testing.checks import Bench, Skipped, all_checks
from trackers.testing.confined import ConfinedError, check_confined
from trackers.testing.devices import DeviceError, check_devices
from trackers.testing.driver import Driver, number
from trackers.testing.readers import ReaderError, check_reader
from trackers.testing.stored import Limits, Point, Stored
from trackers.tracker import RunInfo, Tracker

__all__ = [
    "ConfinedError", "ConformanceError", "DeviceError", "Driver", "Limits", "PluginError", "Point", "ReaderError",
    "Report", "Stored", "check_confined", "check_devices", "check_plugin", "check_reader", "check_tracker",
    "checks", "number",
]  # fmt: skip


class ConformanceError(AssertionError):
    """A tracker fails a check. The message says which, what was expected and what was found.

    check: the name of the check.
    """

    def __init__(self, tracker: str, check: str, promise: str, found: str) -> None:
        super().__init__(f"{tracker} fails the check {check!r}: {promise}\n{found}")
        self.check = check


@dataclasses.dataclass
class Report:
    """The checks that were run. passed: their names. skipped: name to the reason."""

    passed: list[str] = dataclasses.field(default_factory=list)
    skipped: dict[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"passed  {name}" for name in self.passed]
        return "\n".join(lines + [f"skipped {name}: {reason}" for name, reason in self.skipped.items()])


def checks() -> list[str]:
    """Names of all checks, in the order in which they are made."""
    return list(all_checks())


def check_tracker(
    tracker: type[Tracker] | str,
    read: Callable[[RunInfo, Mapping[str, Any]], Stored],
    *,
    directory: Path,
    options: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    checks: Sequence[str] | None = None,
    mode: str = "online",
) -> Report:
    """Deliver to a tracker in every way that can go wrong, and compare what its destination holds afterwards.

    Args:
        tracker: the class, at the top level of an importable module, or a registered name.
        read: finds a run in the destination, given the run and the tracker's state, without the tracker's help.
        directory: where the runs of the checks get their directories.
        options: option values by Kconfig symbol, as the runs' ``RunInfo.options``.
        limits: how the destination changes values; by default not at all.
        checks: names of the checks to make; default all.
        mode: the runs' mode, "online" or "offline".

    Returns:
        Which checks passed, and which say nothing about this tracker.

    Raises:
        ConformanceError: at the first check that fails.
        ValueError: a check that doesn't exist.
    """
    __tracebackhide__ = True  # pytest: the message is for the author, our frames aren't
    known = all_checks()
    chosen = list(known) if checks is None else list(checks)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ValueError(f"unknown checks {', '.join(unknown)}. Known: {', '.join(known)}")
    bench = Bench(tracker, read, Path(directory).resolve(), options or {}, limits or Limits(), mode)
    report = Report()
    for name in chosen:
        promise = (known[name].__doc__ or "").strip()
        try:
            known[name](bench)
        except Skipped as reason:
            report.skipped[name] = str(reason)
        except AssertionError as error:
            raise ConformanceError(bench.cls.name, name, promise, str(error)) from error
        except Exception as error:
            problem = f"it raised {type(error).__name__}: {error}"
            raise ConformanceError(bench.cls.name, name, promise, problem) from error
        else:
            report.passed.append(name)
    return report


def check_plugin(
    distribution: str,
    read: Callable[[RunInfo, Mapping[str, Any]], Stored] | None = None,
    *,
    directory: Path,
    copies: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
) -> Report:
    """Hold an installed distribution to all that its entry points declare: each thing loads, and its name is free.

    A precheck loads neither the tracker nor its packages, a preload leaves no thread; options have prompt and help,
    commands say what they do; a copy agrees and is the same the second time; a part returns at once and ends; files
    that a function of the group ``trackers.fuzz`` wrote are read twice alike, asked by SQL as the reader has them, and
    read as far as they go, however damaged; devices of this machine are read. What can't be looked at here is skipped,
    with the reason.

    Args:
        distribution: its name, as an installer knows it.
        read: as for :func:`check_tracker`, which is run too if it is given.
        directory: a new directory for runs and files.
        copies: what follows the colon of a place to copy to, by scheme: ``{"postgres": "postgresql://…"}``.
        options, limits: as for :func:`check_tracker`.

    Raises:
        PluginError, ConformanceError: at the first promise that isn't kept.
    """
    __tracebackhide__ = True
    home, report = Path(directory).resolve(), Report()
    for name, why in checked(distribution, home, copies or {}, options or {}):
        group, _, tracker = name.partition(" ")
        if group == "devices" and not why:
            check_devices(device_source(tracker))
        if why:
            report.skipped[name] = why
        else:
            report.passed.append(name)
        if group == "trackers" and read is not None and not why:
            kit = check_tracker(tracker, read, directory=home / tracker, options=options, limits=limits)
            report.passed += kit.passed
            report.skipped |= kit.skipped
    return report
