"""A report as a page: its Markdown as HTML, below charts of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trackers.analysis.curves import PlottedRun
from trackers.errors import NotFound
from trackers.metrics import roles
from trackers.plotting import benchmark, html_page, presets
from trackers.plotting.figure import Picture

TITLES = {benchmark.LOSS: roles.LOSSES, benchmark.RATE: roles.LEARNING_RATES}
"""Panels of benchmark results that show a metric, and that metric's name."""


def save(runs: Sequence[PlottedRun], markdown: str, path: Path, *, title: str) -> None:
    """Write the page.

    Args:
        markdown: the report; raw HTML in it is shown, not obeyed.

    Raises:
        UsageError: it can't be written.
    """
    first, _, rest = markdown.partition("\n")  # the page has its title already
    html_page.save(charts(runs), path, title=title, text=as_html(rest if first.startswith("# ") else markdown))


def charts(runs: Sequence[PlottedRun]) -> Picture:
    """Metrics of the runs, then the panels of benchmark results that show none of these metrics."""
    view = presets.PlotOptions()
    measured = benchmark.benchmark(runs, view)
    panels = [panel for panel in measured.panels if not panel.blank]
    try:
        picture = presets.metrics(runs, view)
    except NotFound:
        return Picture(panels, 3, measured.legend, about=measured.about)
    shown = {panel.title for panel in picture.panels}
    twice = {title for title, names in TITLES.items() if shown & set(names)}
    picture.panels += [panel for panel in panels if panel.title not in twice]
    picture.about = measured.about
    return picture


def as_html(markdown: str) -> str:
    """Markdown with tables as HTML."""
    from markdown_it import MarkdownIt

    text = str(MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown))
    return text.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")
