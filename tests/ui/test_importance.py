"""Which settings matter: how much they vary among the runs that have them, and how far a result goes with them."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from scipy.stats import spearmanr

from tests import browser as chromium
from tests.analysis.support import write_run
from tests.ui.support import site, until
from trackers.ui import importance as work
from trackers.ui.importance import importance
from trackers.ui.table import Row


def rows(count: int = 60) -> list[Row]:
    """Runs whose loss goes with the learning rate, less with the optimizer, and not with the seed."""
    chance = random.Random(4)
    made = []
    for number in range(count):
        lr, words, seed = 10 ** chance.uniform(-4, -1), chance.choice(["sgd", "adam"]), chance.random()
        config = {"lr": lr, "optimizer": words, "seed": seed, "same": 3, "depth": None if number % 2 else number % 4}
        loss = -math.log10(lr) + (0.4 if words == "sgd" else 0) + 0.05 * chance.random()
        made.append(Row(str(number), "", str(number), "", config=config, result={"loss": loss}))
    return made


def test_settings_are_ranked_by_what_goes_with_the_result() -> None:
    """Rank correlation is scipy's; words have a correlation ratio; what is the same in all runs isn't listed."""
    made = rows()
    found = {entry["name"]: entry for entry in importance(made, "result.loss")}
    assert next(iter(found)) == "config.lr"
    assert set(found) == {"config.lr", "config.optimizer", "config.seed", "config.depth"}
    pairs = [(row.config["lr"], row.result["loss"]) for row in made]
    assert found["config.lr"]["correlation"] == pytest.approx(spearmanr(*zip(*pairs, strict=True)).statistic)
    assert 0.1 < found["config.optimizer"]["correlation"] < 0.9
    assert (found["config.depth"]["runs"], found["config.depth"]["values"]) == (30, 2)


def test_effect_that_rises_and_falls_is_seen() -> None:
    """A learning rate that is best in the middle is first, though its ranks don't go with the result's; names that each
    run has for itself say nothing."""
    chance = random.Random(4)
    made = []
    for number in range(150):
        power, width = number % 5, 64 * (1 + number // 5 % 3)
        loss = abs(power - 2) - width / 1000 + 0.05 * chance.random()
        config = {"lr": 10.0**-power, "width": width, "seed": number % 7, "tag": f"run-{number}"}
        made.append(Row(str(number), "", str(number), "", config=config, result={"loss": loss}))
    found = {entry["name"]: entry["correlation"] for entry in importance(made, "result.loss")}
    assert next(iter(found)) == "config.lr"
    assert found["config.lr"] > 0.9
    assert abs(found["config.seed"]) < 0.2
    assert found["config.tag"] == 0
    few = {entry["name"]: entry["correlation"] for entry in importance(made[:10], "result.loss")}
    assert few["config.lr"] > 0.8


def test_forest_is_named_only_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """With scikit-learn its shares sum to one; without it, or with few runs, there are none."""
    pytest.importorskip("sklearn")
    shares = {entry["name"]: entry["forest"] for entry in importance(rows(), "result.loss", forest=True)}
    assert sum(shares.values()) == pytest.approx(1)
    assert max(shares, key=lambda name: shares[name]) == "config.lr"
    assert {entry["forest"] for entry in importance(rows(work.FEW - 1), "result.loss", forest=True)} == {None}
    monkeypatch.setattr(work.importlib.util, "find_spec", lambda name: None)
    assert {entry["forest"] for entry in importance(rows(), "result.loss", forest=True)} == {None}


@pytest.mark.parametrize("column", ["result.loss", "result.gone", "status"])
def test_poor_runs_have_no_importance(column: str) -> None:
    """No runs, one run, results that are NaN, texts or missing: settings are listed, without a figure."""
    assert importance([], column) == []
    assert importance(rows(1), column) == []
    poor = [Row(str(k), "", str(k), "", config={"lr": k}, result={"loss": math.nan}) for k in range(20)]
    assert [(entry["correlation"], entry["forest"]) for entry in importance(poor, column, forest=True)] == [
        (None, None)
    ]


@pytest.mark.slow
@pytest.mark.skipif(bool(chromium.missing()), reason="needs chromium and chromedriver")
def test_brushing_an_axis_filters_all_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The strongest setting is x by itself; dragging along its axis keeps the runs in between, a double click all."""
    monkeypatch.chdir(tmp_path)
    for number in range(8):
        write_run(f"r{number}", [(1, 1, {"loss": 1.0})], config={"lr": number + 1, "batch": 64},
                  summary={"loss": number / 10})  # fmt: skip
    with chromium.browser(tmp_path) as window, site(runs=8) as found:
        window.emulate(1400, 900)
        window.visit(f"{found.address}#tab=params")
        until(lambda: window.script("return main.dataset.drawn === '1'"))
        assert window.script("return document.querySelector('.wide h2').innerText") == "final/loss against lr"
        window.script(
            "const canvas = [...document.querySelectorAll('canvas')][1], box = canvas.getBoundingClientRect();"
            "canvas.setPointerCapture = () => {};"
            "const at = (kind, x, y) => canvas.dispatchEvent(new PointerEvent(kind,"
            "  {clientX: box.left + x, clientY: box.top + y, bubbles: true, pointerId: 1}));"
            "at('pointerdown', 60, box.height - 40); at('pointerup', 60, box.height / 2);"
        )
        until(lambda: window.script("return location.hash.includes('config.lr')"))
        until(lambda: 0 < int(window.script("return document.querySelector('.bar .soft').innerText.split(' ')[0]")) < 8)
        window.script("[...document.querySelectorAll('nav button')].find(one => one.innerText === 'Runs').click()")
        until(lambda: 0 < window.script("return document.querySelectorAll('tbody tr').length") < 8)
        assert window.console() == []
