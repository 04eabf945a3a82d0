"""Changes of the package in a process that a test starts: faults that the audit must find, and small batches.

They are chosen by the environment variable ``TRACKERS_TEST_CHANGES``, which ``hook/sitecustomize.py`` reads; the
package itself knows nothing of them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HOOK = Path(__file__).parent / "hook"
BATCH = 40

_Change = tuple[str, Callable[[Any], None]]
"""A module's name, and what is done to it once it is loaded."""


def environment(changes: Iterable[str]) -> dict[str, str]:
    """The variables that make a process, and its helpers, change the package."""
    return {"TRACKERS_TEST_CHANGES": ",".join(changes), "PYTHONPATH": os.pathsep.join((str(HOOK), str(ROOT)))}


def install(names: Iterable[str]) -> None:
    """Change modules when they are imported."""
    wanted: dict[str, list[Callable[[Any], None]]] = {}
    for name in names:
        for module, change in CHANGES[name]:
            wanted.setdefault(module, []).append(change)
    sys.meta_path.insert(0, _Finder(wanted))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, wanted: dict[str, list[Callable[[Any], None]]]) -> None:
        self._wanted = wanted

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        changes = self._wanted.get(fullname)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path) if changes else None
        if changes is None or spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            for change in changes:
                change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _small_batches(module: Any) -> None:
    """Many batches in a short journal, and no pause for more: many points to die at."""
    begin = module.Delivery.__init__
    module.GATHER_S = 0.0

    def __init__(self: Any, *arguments: Any, **more: Any) -> None:
        begin(self, *arguments, **more)
        self._limit = BATCH

    module.Delivery.__init__ = __init__


def cursor_first(module: Any) -> None:
    """The cursor is committed before the write."""
    deliver = module.Delivery._deliver

    def _deliver(self: Any, batch: Sequence[Any]) -> None:
        self._batch = []
        self._commit()
        self._batch = list(batch)
        deliver(self, batch)

    module.Delivery._deliver = _deliver


def _unrepaired_tail(module: Any) -> None:
    """What lies behind the committed length stays."""
    opened = module.OwnedFile.open

    def open(self: Any, length: int = 0) -> Any:
        size = self.path.stat().st_size if self.path.exists() else 0
        return opened(self, max(length, size))

    module.OwnedFile.open = open


def _shared_rows(module: Any) -> None:
    """Whatever comes joins W&B's current row, where later values replace earlier ones, unless its step is lower."""

    def can_join(self: Any, record: Any, values: Any) -> bool:
        return self.current is not None and record.step >= self.current.step

    module.HistoryRows._can_join = can_join


def _sent_twice(module: Any) -> None:
    """Every batch is written twice to a tracker that appends, which doesn't look what it has."""
    module.unseen = lambda records, seq: records
    tracker = next(value for name, value in vars(module).items() if name.endswith("Tracker"))
    write = tracker.write

    def twice(self: Any, records: Sequence[Any], cursor: Any) -> None:
        write(self, records, cursor)
        write(self, records, cursor)

    tracker.write = twice


def _new_ids(module: Any) -> None:
    """A row that comes again, from the next delivery, has another id, and nobody looks for its values."""
    log, holds = module.LocalStore.log, module.LocalStore.holds

    def own(log_id: str) -> str:
        return f"{log_id}:{os.getpid()}"

    def fresh(self: Any, rows: Sequence[Any], config: Any) -> None:
        log(self, [row._replace(log_id=own(row.log_id)) for row in rows], config)

    def holds_own(self: Any, log_ids: Sequence[str], rows: int) -> bool:
        return bool(holds(self, [own(log_id) for log_id in log_ids], rows))

    module.LocalStore.log, module.LocalStore.holds = fresh, holds_own
    module.LocalStore.between = lambda self, first, last: {}


def _backwards(module: Any) -> None:
    """Each batch is written from its end."""
    deliver = module.Delivery._deliver

    def _deliver(self: Any, batch: Sequence[Any]) -> None:
        deliver(self, list(reversed(batch)) if len(batch) > 1 else batch)

    module.Delivery._deliver = _deliver


def _own_clock(module: Any) -> None:
    """Rows have the time of their delivery."""
    iso = module.iso
    module.iso = lambda moment: iso(time.time() + 3600.0)


def _always_finished(module: Any) -> None:
    """Every run ends well."""
    last = module.last_status
    import msgspec

    module.last_status = lambda run: msgspec.structs.replace(last(run), name="finished", exit_code=0)


def _no_nan(module: Any) -> None:
    """Values that aren't finite are left out."""
    numbers = module.TrackioTracker._numbers

    def _numbers(self: Any, values: Any) -> Any:
        return numbers(self, {name: value for name, value in values.items() if value - value == 0})

    module.TrackioTracker._numbers = _numbers


def _torn(module: Any) -> None:
    """The third write reaches the disk by half, and the process dies."""
    count = itertools.count(1)
    system = module.os

    class Torn:
        def __getattr__(self, name: str) -> Any:
            return getattr(system, name)

        def write(self, fd: int, data: Any) -> int:
            if next(count) == 3:
                system.write(fd, bytes(data)[: len(data) // 2])
                system.kill(system.getpid(), signal.SIGKILL)
            return int(system.write(fd, data))

    module.os = Torn()


CHANGES: dict[str, list[_Change]] = {
    "small_batches": [("trackers.relay.delivery.delivery", _small_batches)],
    "torn_file": [("trackers.backends.shared.append_file", _torn)],
    "torn_journal": [("trackers.journal.stream", _torn)],
    "cursor_first": [("trackers.relay.delivery.delivery", cursor_first)],
    "unrepaired_tail": [("trackers.backends.shared.append_file", _unrepaired_tail)],
    "shared_rows": [("trackers.backends.wandb.history_rows", _shared_rows)],
    "sent_twice": [("trackers.backends.tensorboard.tracker", _sent_twice)],
    "new_ids": [("trackers.backends.trackio.store", _new_ids)],
    "backwards": [("trackers.relay.delivery.delivery", _backwards)],
    "own_clock": [("trackers.backends.trackio.store", _own_clock)],
    "always_finished": [("trackers.relay.delivery.delivery", _always_finished)],
    "no_nan": [("trackers.backends.trackio.tracker", _no_nan)],
}
