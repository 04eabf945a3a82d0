"""The page by axe-core's rules: https://github.com/dequelabs/axe-core. npm brings it."""

from __future__ import annotations

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


def test_no_view_has_a_serious_violation(tmp_path: Path, axe: str) -> None:
    """Each view, wide and on a phone, light and dark: names of fields, contrasts, what the keyboard reaches."""
    table = {"columns": ["a", "b"], "rows": [[number, "text"] for number in range(60)]}
    for number in range(3):
        rows: list[Any] = [(step, step, {"loss": 1 / (1 + step), "val_loss": 1.0}) for step in range(50)]
        rows.append((None, 5, {"system.cpu": 50.0}))
        more = [
            Text(step=1, time=T0, values={"note": "hello"}),
            Media(step=1, time=T0, name="table", type="table", items=[MediaFile(format="json", data=table)]),
            Alert(time=T0, title="high loss"),
        ]
        config = {"lr": 0.1 / (1 + number), **{f"setting{place}": place for place in range(60)}}
        write_run(f"r{number}", rows, created=T0 + number, config=config, summary={"best": number}, more=more,
                  status=("finished", "failed", "crashed")[number], tags=["one"], project=f"p{number % 2}")  # fmt: skip
    with chromium.browser(tmp_path) as window, site(runs=3) as found:
        keys = [found.key(f"r{number}") for number in range(3)]
        drawn, run_drawn = "main.dataset.drawn !== undefined", "main.dataset.run && document.querySelector('.facts td')"
        states = {
            "": "document.querySelector('tbody tr')",
            "#tab=charts": drawn,
            "#tab=media": drawn,
            "#tab=tables": drawn,
            "#tab=compare": "document.querySelector('.compared td')",
            "#tab=params": "document.querySelector('.wide h2')?.innerText.includes('against')",
            **{f"#tab=run&run={key}": run_drawn for key in keys},
        }
        for state, ready in states.items():
            for width, dark in ((1400, False), (390, True)):
                window.emulate(width, 900, dark=dark)
                window.visit("about:blank")
                window.visit(found.address + state)
                until(lambda: window.script(f"return Boolean({ready})"), why=f"{state} {width}")  # noqa: B023 - called at once
                window.script(axe + RUN)
                violations = until(lambda: window.script("return window.violations && [window.violations]"))[0]
                assert [one for one in violations if one[0] in GRAVE] == [], (state, width)
