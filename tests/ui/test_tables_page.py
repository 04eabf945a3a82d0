"""Tables and media of several runs in a real browser: searched, paged, side by side; nothing of them is obeyed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import browser as chromium
from tests.analysis.support import T0, write_run
from tests.browser import Browser
from tests.ui.support import site
from tests.ui.test_page import hold, release, visit, wait
from trackers.records import Media, MediaFile, Span, Text, encode

pytestmark = pytest.mark.skipif(
    bool(chromium.missing()) and "CI" not in os.environ,
    reason="needs chromium and chromedriver: apt-get install chromium chromium-driver",
)
HOSTILE = "<img src=x onerror=alert(1)><script>alert(1)</script>"
BODY = "[...document.querySelectorAll('.logged tbody tr')].map(row => [...row.cells].map(one => one.textContent))"


@pytest.fixture
def window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    """A browser."""
    monkeypatch.chdir(tmp_path)
    with chromium.browser(tmp_path) as found:
        yield found


def made(run_id: str, losses: dict[int, list[float]], status: str = "finished") -> None:
    """A run with a table, pictures, a sound and texts at some steps; names and contents are hostile."""
    path = write_run(run_id)
    (path / "media").mkdir(exist_ok=True)
    more: list[Any] = []
    for step, values in losses.items():
        np.save(path / f"media/{step}.npy", np.full((8, 8), step % 255, np.uint8))
        cell = {"_type": "image", "format": "npy", "file": f"media/{step}.npy", "caption": HOSTILE}
        rows = [[k, HOSTILE if k == 1 else f"row {k}", loss, cell if k == 0 else None] for k, loss in enumerate(values)]
        data = {"columns": ["id", "text", "loss", "image"], "rows": rows}
        items = [MediaFile(format="npy", file=f"media/{step}.npy", caption=f"at {step} {HOSTILE}")]
        more += [
            Media(name=HOSTILE, type="table", items=[MediaFile(format="json", data=data)], step=step, time=T0),
            Media(name=f"p {HOSTILE}", type="image", items=items, step=step, time=T0),
            Text(step=step, time=T0, values={"note": HOSTILE}),
        ]
    write_run(run_id, more=more, status=status)


def choose(window: Browser, label: str, value: str) -> None:
    """Choose an option by its text."""
    window.script(
        """
        const labels = [...document.querySelectorAll(".bar label")];
        const box = labels.find(one => one.firstChild.textContent === arguments[0]);
        const select = box.querySelector("select");
        select.value = [...select.options].find(one => one.textContent === arguments[1]).value;
        select.dispatchEvent(new Event("change"))""",
        label, value,
    )  # fmt: skip


def slide(window: Browser, label: str, place: int) -> None:
    """Move a slider."""
    window.script(
        """
        const slide = document.querySelector(`input[type=range][aria-label="${arguments[0]}"]`);
        slide.value = arguments[1]; slide.dispatchEvent(new Event("input"))""",
        label, place,
    )  # fmt: skip


@pytest.mark.slow
def test_table_is_searched_sorted_paged_and_followed_over_steps(window: Browser) -> None:
    """Each changes the address; an earlier step has the rows of then; contents stay texts."""
    made("one", {1: [3.0, 2.0], 5: [float(k) for k in range(60)]})
    with site(runs=1) as found:
        visit(window, found, "#tab=tables")
        wait(window, f"{BODY}.length === 50")
        assert window.script(f"return {BODY}[1][2]") == HOSTILE
        assert wait(window, "document.querySelector('.mediacell img')?.naturalWidth") == 8
        window.script("[...document.querySelectorAll('.pager button')].pop().click()")
        wait(window, f"{BODY}.length === 10")
        window.script("""
            const find = document.querySelector("input[placeholder^=search]");
            find.value = "loss>54 row"; find.dispatchEvent(new Event("input"))""")
        wait(window, f"{BODY}.length === 5")
        for order in ("55", "59"):
            window.script(
                "[...document.querySelectorAll('.logged th')].find(one => one.title.startsWith('loss')).click()"
            )
            wait(window, f"{BODY}[0][1] === '{order}'")
        assert "tsort=loss" in window.script("return location.hash")
        window.script("""
            const find = document.querySelector("input[placeholder^=search]");
            find.value = ""; find.dispatchEvent(new Event("input"))""")
        wait(window, f"{BODY}.length === 50")
        slide(window, "step of the table", 0)
        assert wait(window, f"{BODY}.length === 2 && {BODY}.map(row => row[3])") == ["3", "2"]
        address = window.script("return location.hash")
        visit(window, found, address)
        wait(window, f"{BODY}.length === 2")
        assert window.console() == []


@pytest.mark.slow
def test_conversations_are_read_sorted_and_compared(window: Browser) -> None:
    """Messages are folded to their first words but the last one, and stay texts; two runs, or two steps of one, are
    side by side."""

    def rollouts(answers: list[str]) -> list[MediaFile]:
        rows = [
            [k, [{"role": "user", "content": HOSTILE}, {"role": "assistant", "content": answer}], len(answer)]
            for k, answer in enumerate(answers)
        ]
        data = {"columns": ["id", "messages", "reward"], "rows": rows}
        return [MediaFile(format="json", data=data, meta={"samples": True})]

    for run_id, answers in (("one", ["4", HOSTILE]), ("two", ["five", HOSTILE])):
        more = [
            Media(name="rollouts", type="table", items=rollouts(said), step=step, time=T0)
            for step, said in ((1, ["?", "??"]), (5, answers))
        ]
        write_run(run_id, more=more)
    with site(runs=2) as found:
        visit(window, found, "#tab=tables&tsort=reward&tdesc=1")
        talk = "[...document.querySelectorAll('.talk')].map(one => [...one.querySelectorAll('details')])"
        said = f"{talk}.map(one => one[1].querySelector('div').textContent)"
        wait(window, f"{talk}.length === 2")
        choose(window, "run", "one")
        first = f"{talk}[0].map(one => one.open), {talk}[0][0].querySelector('summary').textContent"
        shown = wait(
            window, f"{said}[1] === '4' && [{said}, {first}]"
        )  # at once: the page draws itself anew now and then
        assert shown == [[HOSTILE, "4"], [False, True], f"user {HOSTILE}"]
        choose(window, "beside", "two")
        wait(window, f"{talk}.length === 2 && document.querySelectorAll('.talk.unlike').length === 2")
        assert window.script(f"return {said}") == ["4", "five"]
        choose(window, "beside", "itself at another step")
        wait(window, f"{talk}.length === 4")
        assert sorted(window.script(f"return {said}")) == sorted(["4", "?", HOSTILE, "??"])
        heads = "return [...document.querySelectorAll('.logged tr.second th')].map(one => one.textContent.trim())"
        assert window.script(heads)[:2] == ["step 5", "step 1"]
        slide(window, "step beside it", 1)
        wait(window, f"{talk}.length === 0")
        assert window.console() == []


@pytest.mark.slow
@pytest.mark.parametrize("both", [False, True])
def test_late_answer_about_a_table_isnt_shown(window: Browser, both: bool) -> None:
    """Why an earlier search failed doesn't take the place of what a later one found."""
    made("one", {1: [3.0, 2.0]})
    made("two", {1: [5.0, 6.0]})
    with site(runs=2) as found:
        visit(window, found, f"#tab=tables&ta={found.key('one')}" + (f"&tb={found.key('two')}" if both else ""))
        wait(window, f"{BODY}.length === 2")
        for words, rows in (("nosuchword", 2), ("row", 1)):
            if rows == 2:
                hold(window, "api/differences" if both else "api/rows", "too late")
            window.script(
                """const find = document.querySelector(".bar input[placeholder^=search]");
                find.value = arguments[0]; find.dispatchEvent(new Event("input"))""",
                words,
            )
            wait(window, f"held.release && {BODY}.length === {rows}")
        release(window)
        assert window.script(f"return {BODY}.length") == 1
        assert window.script("return document.querySelector('.logged .problem')") is None
        assert window.console() == []


@pytest.mark.slow
def test_two_runs_are_side_by_side_with_what_differs_marked(window: Browser) -> None:
    """By the column called id: cells that changed are marked, rows of one run alone have a sign; all rows if asked."""
    made("one", {1: [0.5, 1.0, 2.0]})
    made("two", {1: [0.5, 1.5, 2.0, 4.0]})
    with site(runs=2) as found:
        visit(window, found, f"#tab=tables&ta={found.key('one')}&tb={found.key('two')}")
        rows = wait(window, f"document.querySelector('.over') && {BODY}.length === 2 && {BODY}")
        assert [row[0] for row in rows] == ["≠", "+"]
        assert "+0.5" in rows[0]
        assert window.script("return document.querySelectorAll('.unlike').length") == 2
        assert window.script("return document.querySelector('.counts').textContent").startswith(
            "≠ 1 changed+ 1 added− 0 removed2 the same"
        )
        assert "rows by id" in window.script("return document.querySelector('.pop summary').textContent")
        window.script("""
            const labels = [...document.querySelectorAll(".bar label")];
            labels.find(one => one.textContent.startsWith("also")).querySelector("input").click()""")
        wait(window, f"{BODY}.length === 4")
        choose(window, "beside", "–")
        wait(window, f"!document.querySelector('.over') && {BODY}.length === 3")
        assert window.console() == []


@pytest.mark.slow
def test_media_of_runs_are_side_by_side_at_one_step(window: Browser) -> None:
    """Each run shows its last until then; one slider and one size for all; a click enlarges; narrow screens scroll."""
    made("one", {1: [1.0], 5: [1.0]})
    made("two", {3: [1.0]})
    with site(runs=2) as found:
        visit(window, found, f"#tab=media&sel={found.key('one')},{found.key('two')}")
        steps = "[...document.querySelectorAll('.gallery .title span')].map(one => one.textContent).slice(0, 2).join()"
        wait(window, f"{steps} === 'step 5,step 3'")
        wait(
            window, "[...document.querySelectorAll('.gallery img')].filter(one => one.naturalWidth === 8).length === 2"
        )
        assert HOSTILE in window.script("return document.querySelector('.gallery .media .soft').textContent")
        slide(window, "step of all media", 0)
        wait(window, f"{steps} === 'step 1,not yet'")
        slide(window, "size of all images", 320)
        wait(window, "document.querySelector('.gallery img').clientWidth > 300")
        assert "mstep=1&msize=320" in window.script("return location.hash")
        window.script("document.querySelector('.gallery img').click()")
        wait(window, "document.querySelector('dialog img')?.clientWidth === 128")
        window.script("document.querySelector('dialog button').click()")
        wait(window, "!document.querySelector('dialog')")
        window.emulate(390, 844)
        wait(window, "document.documentElement.scrollWidth === 390")
        assert window.console() == []


@pytest.mark.slow
def test_new_tables_and_media_come_without_a_reload(window: Browser) -> None:
    """Where the last step is shown, the next one takes its place."""
    made("one", {1: [1.0]}, "running")
    stream = Path("runs/digits/one/streams/rank-0.1.jsonl")
    shown = {"tables": f"{BODY}[0]?.[3]", "media": "document.querySelector('.gallery .title span')?.textContent"}
    with site(runs=1) as found:
        for step, (tab, first, then) in enumerate([("tables", "1", "7"), ("media", "step 2", "step 3")], 2):
            visit(window, found, f"#tab={tab}")
            wait(window, f"{shown[tab]} === '{first}'")
            data = {"columns": ["id", "text", "loss"], "rows": [[0, "x", 7.0]]}
            table = Media(
                name=HOSTILE, type="table", items=[MediaFile(format="json", data=data)], step=step, time=T0 + step
            )
            items = [MediaFile(format="npy", file="media/1.npy")]
            picture = Media(name=f"p {HOSTILE}", type="image", items=items, step=step, time=T0 + step)
            with stream.open("ab") as file:
                file.write(encode(table) + encode(picture))
            wait(window, f"{shown[tab]} === '{then}'")
        assert window.console() == []


@pytest.mark.slow
def test_table_that_can_not_be_read_is_a_line(window: Browser) -> None:
    """In its place."""
    write_run(
        "one", more=[Media(name="t", type="table", items=[MediaFile(format="json", file="media/1.json")], time=T0)]
    )
    with site(runs=1) as found:
        visit(window, found, "#tab=tables")
        assert "media/1.json can't be read" in wait(window, "document.querySelector('.logged .problem')?.textContent")
        visit(window, found, f"#tab=run&run={found.key('one')}")
        assert "media/1.json can't be read" in wait(window, "document.querySelector('.logged .problem')?.textContent")


def test_spans_of_a_run_are_bars(window: Browser) -> None:
    """The newest trace, one that is chosen, what failed; names and texts stay texts; new ones come."""
    first = Span(time=T0 + 2, began=T0 + 1, name=HOSTILE, trace="aa", span="1", inputs={"q": HOSTILE})
    inner = Span(
        time=T0 + 2, began=T0 + 1.5, name="inner", trace="aa", span="2", parent="1", status="error", error="no"
    )
    write_run("one", more=[inner, first], status="running")
    rows = "[...document.querySelectorAll('.spans tr')].map(row => row.cells[0].firstChild.textContent)"
    with site(runs=1) as found:
        visit(window, found, f"#tab=run&run={found.key('one')}")
        assert wait(window, f"{rows}.length === 2 && {rows}") == [HOSTILE, "inner"]
        assert window.script("return [...document.querySelectorAll('.bars div')].map(one => one.style.width)") == [
            "100%",
            "50%",
        ]
        assert window.script("return document.querySelector('.spans .wrong').cells[3].textContent") == "no"
        with Path("runs/digits/one/streams/rank-0.1.jsonl").open("ab") as file:
            file.write(encode(Span(time=T0 + 9, began=float("nan"), name="later", trace="bb", span="3", parent="9")))
        wait(window, f"{rows}.length === 2 && {rows}[1] === 'later'")
        choose(
            window,
            "trace",
            window.script(
                "return [...document.querySelectorAll('.bar option')].find(one => one.value === 'aa').textContent"
            ),
        )
        wait(window, f"{rows}[1] === 'inner'")
        assert window.console() == []
