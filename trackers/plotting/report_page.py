"""A report as a page: its Markdown as HTML, below charts of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trackers.errors import NotFound
from trackers.plotting import benchmark, page, presets
from trackers.plotting.panels import Picture
from trackers.plotting.runs import PlottedRun


def save(runs: Sequence[PlottedRun], markdown: str, path: Path, *, title: str) -> None:
    """Write the page.

    Args:
        markdown: the report; raw HTML in it is shown, not obeyed.

    Raises:
        UsageError: it can't be written.
    """
    page.save(charts(runs), path, title=title, text=as_html(markdown))


def charts(runs: Sequence[PlottedRun]) -> Picture:
    """Metrics of the runs, then document 0's panels but the loss, which stands among the metrics."""
    view = presets.View()
    measured = benchmark.benchmark(runs, view)
    panels = [panel for panel in measured.panels if not panel.blank]
    try:
        picture = presets.metrics(runs, view)
    except NotFound:
        return Picture(panels, 3, measured.legend)
    losses = panels[-1:] if panels and panels[-1].title == "Training loss" else []
    picture.panels += [panel for panel in panels if panel not in losses]
    return picture


def as_html(markdown: str) -> str:
    """Markdown with tables as HTML."""
    from markdown_it import MarkdownIt

    text = str(MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown))
    return text.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")
