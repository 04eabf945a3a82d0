"""The page of ``trackers watch``: what it looks like in terminals of several sizes, and what its keys do."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import OptionList
from trackers_watch.app import HELP, WatchApp, about
from trackers_watch.looking import ViewOptions
from watch_support import catalogue, page, press, screen, sweep, until

from tests.analysis.support import write_run
from trackers.training.run import Run

SCREENS = Path(__file__).parent / "screens"


def shown(
    monkeypatch: pytest.MonkeyPatch,
    look: Callable[[WatchApp, Any], Awaitable[None]],
    size: tuple[int, int] = (80, 24),
    *sources: str,
    wanted: ViewOptions | None = None,
) -> None:
    """Run the page, and look at it."""

    async def run() -> None:
        async with page(size, monkeypatch, wanted, *sources) as (app, pilot):
            await look(app, pilot)

    asyncio.run(run())


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50), (40, 12)])
def test_screen(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole screen, as it was looked at and found good; SCREENS=write in the environment writes it anew."""
    sweep()
    place = SCREENS / f"{size[0]}x{size[1]}.txt"

    async def look(app: WatchApp, pilot: Any) -> None:
        if os.environ.get("SCREENS") == "write":
            await pilot.pause(2)
            place.write_text(screen(app))
        with contextlib.suppress(AssertionError):
            await until(pilot, lambda: screen(app) == place.read_text())
        found = screen(app)
        assert found == place.read_text()
        assert max(map(len, found.splitlines())) <= size[0]

    shown(monkeypatch, look, size)


def test_screen_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR runs are told apart by letters, in charts as in the table."""
    monkeypatch.setenv("NO_COLOR", "1")
    sweep(2)

    async def look(app: WatchApp, pilot: Any) -> None:
        found = screen(app)
        assert "a sweep-1" in found
        assert "b sweep-0" in found
        assert "aaa" in found
        assert "bbb" in found

    shown(monkeypatch, look)


def test_keys_change_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smoothing, logarithmic axis, time, one large chart, other metrics; each is said in the first line."""
    sweep(2)

    async def look(app: WatchApp, pilot: Any) -> None:
        assert "smoothing 0.6" in await press(app, pilot, "s")
        found = await press(app, pilot, "S", "l")
        assert "smoothing" not in found.splitlines()[0]
        assert "log y" in found.splitlines()[0]
        found = await press(app, pilot, "l", "x")
        assert "by time" in found.splitlines()[0]
        assert "time (min)" in found
        assert [panel.title for panel in app.drawn_state.panels] == ["loss", "val_loss"]
        await press(app, pilot, "z")
        assert [panel.title for panel in app.drawn_state.panels] == ["loss"]
        await press(app, pilot, "right")
        assert [panel.title for panel in app.drawn_state.panels] == ["val_loss"]
        await press(app, pilot, "left", "left")
        assert [panel.title for panel in app.drawn_state.panels] == ["loss"]

    shown(monkeypatch, look)


def test_keys_choose_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Space draws the run of the cursor or no longer, o draws it alone, o again as before."""
    sweep(2)

    async def look(app: WatchApp, pilot: Any) -> None:
        keys = [row.key for row in app.drawn_state.rows]
        assert app.drawn_state.styles == {keys[0]: 0, keys[1]: 1}
        await press(app, pilot, "space")
        assert app.drawn_state.styles == {keys[1]: 0}
        await press(app, pilot, "space")
        assert app.drawn_state.styles == {keys[1]: 0, keys[0]: 1}
        await press(app, pilot, "down", "o")
        assert app.drawn_state.styles == {keys[1]: 0}
        await press(app, pilot, "o")
        assert set(app.drawn_state.styles) == set(keys)

    shown(monkeypatch, look)


def test_metrics_are_chosen_from_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """m, part of a name, space, Enter; again m with nothing chosen shows all."""
    sweep(1)

    async def look(app: WatchApp, pilot: Any) -> None:
        before = app.drawn_state.names

        async def choose(names: list[str], dot: bool, *keys: str) -> None:
            await pilot.press("m")
            await until(pilot, lambda: isinstance(app.focused, OptionList))
            await pilot.press(*keys[:-1])
            await until(pilot, lambda: ("● val_loss" in screen(app)) == dot)
            await pilot.press(keys[-1])
            await until(pilot, lambda: len(app.screen_stack) == 1 and app.settled and app.drawn_state.names == names)

        await choose(["val_loss"], True, "shift+tab", *"val", "down", "space", "enter")
        await choose(["val_loss"], False, "space", "escape")
        await choose(before, False, "space", "enter")

    shown(monkeypatch, look)


def test_filter_shows_runs_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the table of the live page; what can't be understood is said, and Esc shows all."""
    sweep(3)

    async def look(app: WatchApp, pilot: Any) -> None:
        await pilot.press("slash", *"lr<0.0")
        await press(app, pilot, "4", "enter")
        assert [row.id for row in app.drawn_state.rows] == ["sweep-2"]
        assert [row.id for row in app.drawn_state.rows if row.key in app.drawn_state.styles] == ["sweep-2"]
        await pilot.press("slash", *["backspace"] * 4)
        found = await press(app, pilot, "x")
        assert "needs a number" in found.splitlines()[0]
        await press(app, pilot, "escape")
        assert len(app.drawn_state.rows) == 3

    shown(monkeypatch, look)


def test_page_of_a_run_and_of_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enter shows all about a run, ? what keys do; Esc leaves them."""
    sweep(1)

    async def look(app: WatchApp, pilot: Any) -> None:
        await pilot.press("enter")
        await until(pilot, lambda: "best_val_loss" in screen(app))
        await pilot.press("escape", "question_mark")
        await until(pilot, lambda: HELP.splitlines()[0] in screen(app))
        await pilot.press("escape")
        await until(pilot, lambda: HELP.splitlines()[0] not in screen(app))

    shown(monkeypatch, look)


def test_all_about_a_run() -> None:
    """Identity, delivery, results, last values, settings: texts of others are one harmless line each."""
    write_run("one", [(0, 0, {"loss": 1.5})], config={"note": "\x1b[31mred"}, summary={"acc": 0.9}, status="failed")
    with catalogue() as found:
        (key,) = found.state().rows
        text = about(found, key).plain
    for part in ("status   failed", "json  not begun", "final/acc  0.9", "loss  1.5", "red"):
        assert part in text
    assert "\x1b" not in text


@pytest.mark.slow
def test_new_values_and_new_size_are_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a running run logs appears without a key; a terminal that gets larger has more charts."""
    run.log({"loss": 1.0, "acc": 0.5}, step=0)

    async def look(app: WatchApp, pilot: Any) -> None:
        assert "running" in screen(app)
        run.log({"loss": 0.5, "acc": 0.75}, step=1234)
        await until(pilot, lambda: "1,234" in screen(app) and "0.75" in screen(app))
        await pilot.resize_terminal(40, 16)
        await until(pilot, lambda: app.settled and len(app.drawn_state.panels) == 1)
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: app.settled and len(app.drawn_state.panels) == 2)

    shown(monkeypatch, look)


@pytest.mark.slow
def test_page_before_the_first_run() -> None:
    """It waits for one, and says so."""

    async def look() -> None:
        with catalogue() as found:
            app = WatchApp(found, ViewOptions(), named=False)
            async with app.run_test(size=(80, 24)) as pilot:
                await until(pilot, lambda: "no runs yet" in screen(app))
                write_run("one", [(0, 0, {"loss": 1.0})])
                await until(pilot, lambda: "one" in screen(app) and "loss" in screen(app))

    asyncio.run(look())


def test_runs_that_are_still_read_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes a large directory for an empty one."""

    async def look() -> None:
        with catalogue() as found:
            monkeypatch.setattr(found, "wait", lambda timeout_s: False)
            async with WatchApp(found, ViewOptions(), named=False).run_test(size=(80, 24)) as pilot:
                await until(pilot, lambda: "reading the runs" in screen(pilot.app))

    asyncio.run(look())


@pytest.mark.slow
def test_q_and_ctrl_c_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while a list is open."""
    sweep(1)
    for keys in (["q"], ["ctrl+c"], ["m", "ctrl+c"]):

        async def look(app: WatchApp, pilot: Any, keys: list[str] = keys) -> None:
            await pilot.press(*keys)
            await pilot.pause()
            assert app._exit

        shown(monkeypatch, look)
