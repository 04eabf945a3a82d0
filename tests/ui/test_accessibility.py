"""The page by axe-core's rules: https://github.com/dequelabs/axe-core. npm brings it."""

from __future__ import annotations

import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import browser as chromium
from tests.analysis.support import T0, write_run
from tests.ui.support import site, until
from trackers.records import Alert, Media, MediaFile, Text

TOP = Path(__file__).parents[2]
AXE = TOP / ".cache/web/node_modules/axe-core/axe.min.js"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(chromium.missing()), reason="needs chromium and chromedriver"),
]
GRAVE = ("serious", "critical")
RUN = """
    window.violations = null;
    axe.run(document).then(found => {
        window.violations = found.violations.map(one => [one.impact, one.id, one.nodes[0].html.slice(0, 200)]);
    });"""


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core's script."""
    if not AXE.is_file():
        bring = subprocess.run(
            [TOP / "scripts/check_web.sh"], env={**os.environ, "TOOLS": "y"}, capture_output=True, text=True
        )
        if bring.returncode == 75:
            pytest.skip(f"needs npm's axe-core: {bring.stderr[-300:]}")
        assert bring.returncode == 0, bring.stderr
    return AXE.read_text("utf-8")


STATES = {
    "": "document.querySelector('tbody tr')",
    "#tab=runs&by=config.lr": "document.querySelector('tr.group')",
    "#tab=charts": "main.dataset.drawn !== undefined",
    "#tab=charts&band=config.lr&smooth=0.5": "main.dataset.drawn !== undefined",
    "#tab=media": "main.dataset.drawn !== undefined",
    "#tab=tables": "main.dataset.drawn !== undefined",
    "#tab=tables&table=rollouts": "document.querySelector('.talk')",
    "#tab=compare": "document.querySelector('.compared td')",
    "#tab=params": "document.querySelector('.wide h2')?.innerText.includes('against')",
    "#tab=run": "main.dataset.run && document.querySelector('.facts td')",
}
"""Views, and what is true of each once it is there."""


def write(count: int) -> None:
    """Runs of all kinds, with all kinds of what is logged."""
    table = {"columns": ["a", "b"], "rows": [[number, "text"] for number in range(60)]}
    talk = [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "so", "tool_calls": [{"id": "1"}]}]
    rollouts = {"columns": ["messages", "reward"], "rows": [[talk, 0.5]]}
    histogram = {"edges": [0.0, 1.0, 2.0], "counts": [3, 4]}
    for number in range(count):
        rows: list[Any] = [(step, step, {"loss": 1 / (1 + step + number), "val_loss": 1.0}) for step in range(20)]
        rows.append((None, 5, {"system.cpu": 50.0}))
        more = [
            Text(step=1, time=T0, values={"note": "hello"}),
            Media(step=1, time=T0, name="table", type="table", items=[MediaFile(format="json", data=table)]),
            Media(step=1, time=T0, name="rollouts", type="table", items=[MediaFile(format="json", data=rollouts)]),
            Media(step=1, time=T0, name="hist", type="histogram", items=[MediaFile(format="json", data=histogram)]),
            Alert(time=T0, title="high loss"),
        ]
        config = {"lr": 0.1 / (1 + number % 5), **{f"setting{place}": place for place in range(60)}}
        status = ("finished", "failed", "crashed", "running", "preempted", "stopped")[number % 6]
        summary = {"best": math.nan if number == 1 else number}
        write_run(f"r{number}", rows, created=T0 + number, config=config, summary=summary, more=more, status=status,
                  tags=["one"], project=f"p{number % 2}")  # fmt: skip


@pytest.mark.parametrize("count", [1, 12, 150])
def test_no_view_has_a_serious_violation(count: int, tmp_path: Path, axe: str) -> None:
    """Each view, wide and on a phone, light and dark, with menus open: names of fields, contrasts, the keyboard."""
    write(count)
    with chromium.browser(tmp_path) as window, site(runs=count) as found:
        keys = ",".join(row["key"] for row in found.rows(most=200))
        runs = [found.key(f"r{number}") for number in range(min(count, 6))]
        states = (
            dict(STATES) if count == 12 else {f"{state or '#tab=runs'}&sel={keys}": STATES[state] for state in STATES}
        )
        if count == 12:
            states |= {f"#tab=run&run={key}": STATES["#tab=run"] for key in runs}
        if count == 1:
            states = {state: ready for state, ready in states.items() if "params" not in state}
        for state, ready in states.items():
            for width in (1400, 390):
                window.emulate(width, 900)
                window.visit("about:blank")
                window.visit(found.address + state)
                until(lambda: window.script(f"return Boolean({ready})"), why=f"{state} {width}")  # noqa: B023 - called at once
                window.script("document.querySelectorAll('details.pop').forEach(one => { one.open = true; })")
                for dark in (False, True):
                    window.emulate(width, 900, dark=dark)
                    window.script(axe + RUN)
                    violations = until(lambda: window.script("return window.violations && [window.violations]"))[0]
                    assert [one for one in violations if one[0] in GRAVE] == [], (state, width, dark)
