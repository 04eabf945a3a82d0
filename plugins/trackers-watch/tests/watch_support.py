"""Runs for ``trackers watch``, and its page without a terminal."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot
from trackers_watch import looking
from trackers_watch.app import WatchApp
from trackers_watch.looking import ViewOptions

from tests.analysis.support import T0, write_run
from trackers.ui.catalogue import Catalogue

GPU = {"gpu/compute_util_avg": 95.0, "gpu/memory_used_total_gb": 71.2, "gpu/memory_total_gb": 80.0,
       "gpu/power_total_w": 412.0, "gpu/temp_max_c": 61.0, "system.cpu": 34.0, "system.memory_percent": 41.0,
       "system.gpu.0.gpu": 95.0, "system.gpu.0.powerWatts": 412.0}  # fmt: skip


def sweep(count: int = 3, **fields: Any) -> None:
    """So many runs of 100 steps, ``sweep-0`` first, with samples of a GPU."""
    for number in range(count):
        rows: list[Any] = []
        for step in range(100):
            values = {"loss": 2.5 * math.exp(-step / (30 + 20 * number)), "lr": 1e-3 * (1 - step / 100)}
            if step % 20 == 0:
                values["val_loss"] = 2.6 * math.exp(-step / 40)
            rows.append((step, 2.0 * step, values))
        rows += [(None, 20.0 * sample, GPU) for sample in range(10)]
        write_run(
            f"sweep-{number}", rows, config={"lr": 0.1 / (number + 1)}, summary={"best_val_loss": 0.2 + number / 10},
            created=T0 + number, **fields,
        )  # fmt: skip


@contextlib.contextmanager
def catalogue(*sources: str) -> Iterator[Catalogue]:
    """The runs of some sources, or all below ``runs``, once they are there."""
    found = Catalogue(sources, Path("runs"))
    found.open()
    try:
        found.wait()
        yield found
    finally:
        found.close()


@contextlib.asynccontextmanager
async def page(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch, wanted: ViewOptions | None = None, *sources: str
) -> AsyncIterator[tuple[WatchApp, Pilot[None]]]:
    """The page in a terminal of some size, when the runs are drawn; ten seconds after the last record of a sweep."""
    monkeypatch.setattr(looking.time, "time", lambda: T0 + 208)
    with catalogue(*sources) as found:
        app = WatchApp(found, wanted or ViewOptions(), named=bool(sources))
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: bool(app.drawn_state.panels) and app.settled)
            yield app, pilot


async def until(pilot: Pilot[None], true: Any) -> None:
    """Wait until something is true."""
    for _ in range(300):
        await pilot.pause(0.01)
        if true():
            await pilot.pause()  # what that has led to, too
            if true():
                return
    raise AssertionError("it never came")


async def press(app: WatchApp, pilot: Pilot[None], *keys: str) -> str:
    """The screen after some keys, when all of them show."""
    for key in keys:
        await pilot.press(key)
        await until(pilot, lambda: app.settled)
    return screen(app)


def screen(app: App[Any]) -> str:
    """What is on the screen, as text."""
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(part.text for part in line).rstrip() for line in lines) + "\n"
