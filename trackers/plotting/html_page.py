"""Pages for a browser: one file, without network, with panels that can be zoomed; and reports as such pages."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from trackers.analysis.curves import PlottedRun
from trackers.analysis.report import CURVES_HEADING
from trackers.analysis.tables import plain
from trackers.errors import NotFound
from trackers.metrics import roles
from trackers.metrics.styles import COLOURS, DARK_COLOURS
from trackers.plotting import presets, web_modules
from trackers.plotting.curve_math import Curve, thinner
from trackers.plotting.figure import DASHES, Picture, as_builtins
from trackers.support.atomic_write import write_text

POINTS = 160_000
"""Maximum number of points on a page, over all curves, raw and smoothed: about 3 MB."""
LEAST = 20
DIGITS = 6
POLICY = "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; img-src data:"
"""Whatever a name may hold, the page loads nothing, and runs the script of this digest alone."""
BESIDE = "; img-src data: file: 'self'; media-src file: 'self'"
"""A page with media loads what lies beside it, too."""


def save(picture: Picture, path: Path, *, title: str = "Runs", text: str = "", above: str = "", more: str = "") -> None:
    """Write a page; its directory is made.

    Args:
        text: HTML below the charts, with its names escaped. above: the same, above them. more: the same, at the end,
            with media from files beside the page.

    Raises:
        UsageError: it can't be written.
    """
    content = page(picture, title=title, text=text + more, above=above)
    if more:
        content = content.replace("; img-src data:", BESIDE, 1)
    write_text(path, content)


def page(picture: Picture, *, title: str, text: str = "", above: str = "") -> str:
    """The page's HTML."""
    parts = resources.files("trackers.plotting")
    style = "".join((parts / f"{name}.css").read_text("utf-8") for name in ("chart", "page"))
    script = web_modules.joined("page", lambda name: (parts / f"{name}.js").read_text("utf-8"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    data = json.dumps({"picture": _data(picture), **styles()}, allow_nan=False, separators=(",", ":"))
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    notes = "".join(f"<p>{html.escape(plain(note))}</p>" for note in (*picture.about, *picture.notes))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY.format(digest)}">'
        '<meta name="generator" content="trackers">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{html.escape(plain(title))}</title><style>{style}</style></head><body>"
        f'<h1>{html.escape(plain(title))}</h1>{above}<div id="legend"></div><div id="charts"></div>{notes}'
        '<p class="hint">Drag to zoom, wheel or two fingers too; sideways, or with shift, the wheel pans; '
        "double click shows all. The legend hides runs.</p>"
        f'{text}<script type="application/json" id="data">{data}</script><script>{script}</script></body></html>\n'
    )


def styles() -> dict[str, Any]:
    """Colours and dashes of runs' lines on a page, light or dark."""
    return {"colours": COLOURS, "dark": DARK_COLOURS, "dashes": DASHES}


def _data(picture: Picture) -> Any:
    count = sum(len(panel.lines) for panel in picture.panels)
    bins = max(LEAST, POINTS // max(1, 8 * count))  # four points a bin, raw and smoothed
    panels = [
        msgspec.structs.replace(panel, lines=[_rounded(thinner(line, bins, panel.log_x)) for line in panel.lines])
        for panel in picture.panels
    ]
    builtins = as_builtins(msgspec.structs.replace(picture, panels=panels))
    for data, panel in zip(builtins["panels"], picture.panels, strict=True):
        data["blank"] = panel.blank
    builtins["legend"] = [[plain(label), style] for label, style in picture.legend]
    return builtins


def _rounded(line: Curve) -> Curve:
    """With as many digits as a screen shows; counts and steps stay whole."""
    import numpy as np

    def short(values: Any, digits: int) -> Any:
        return np.array([float(f"{value:.{digits}g}") for value in np.asarray(values, np.float64).tolist()])

    fields = {name: short(getattr(line, name), DIGITS) for name in ("y", "smooth_y", "low", "high")}
    positions = {name: short(getattr(line, name), 9) for name in ("x", "smooth_x", "nans", "highs", "lows")}
    return msgspec.structs.replace(line, label=plain(line.label), **fields, **positions)


TITLES = {presets.LOSS: roles.LOSSES, presets.RATE: roles.LEARNING_RATES}
"""Panels of benchmark results that show a metric, and that metric's name."""


def save_report(runs: Sequence[PlottedRun], markdown: str, path: Path, *, title: str, more: str = "") -> None:
    """Write the page.

    Args:
        markdown: the report; raw HTML in it is shown, not obeyed. title: "" for its own. more: see :func:`save`.

    Raises:
        UsageError: it can't be written.
    """
    first, _, rest = markdown.partition("\n")  # the page has its title already
    text, title = (rest, title or first[2:]) if first.startswith("# ") else (markdown, title)
    above, heading, below = text.partition(f"\n{CURVES_HEADING}\n")  # the charts take its place
    if heading:
        text = "\n## ".join(["", *below.split("\n## ")[1:]])
    above = as_html(f"{above}\n{CURVES_HEADING}") if heading else ""
    save(charts(runs), path, title=title, text=as_html(text), above=above, more=more)


def charts(runs: Sequence[PlottedRun]) -> Picture:
    """Metrics of the runs, then the panels of benchmark results that show none of these metrics."""
    view = presets.PlotOptions()
    measured = presets.benchmark(runs, view)
    panels = [panel for panel in measured.panels if not panel.blank]
    try:
        picture = presets.metrics(runs, view)
    except NotFound:
        return Picture(panels, 3, measured.legend, about=measured.about)
    titles = {panel.title for panel in picture.panels}
    twice = {title for title, names in TITLES.items() if titles & set(names)}
    picture.panels += [panel for panel in panels if panel.title not in twice]
    picture.about = measured.about
    return picture


def as_html(markdown: str) -> str:
    """Markdown with tables as HTML."""
    from markdown_it import MarkdownIt

    text = str(MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown))
    return text.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")
