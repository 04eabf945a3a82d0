"""``trackers watch`` where there is no terminal: a plain line for each run that has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from trackers.errors import NotFound
from trackers.support.progress import PlainLines
from trackers.ui.catalogue import Catalogue
from trackers_watch.looking import RunWatcher, ViewOptions, line

VALUES = 3
"""Maximum number of metrics in a line, unless some were asked for."""
LOOK_S = 0.5
"""Between looks whether all runs were found."""


def write(
    catalogue: Catalogue,
    options: ViewOptions,
    out: TextIO,
    interval_s: float,
    *,
    named: bool,
    pause: Callable[[float], None],
    none: str = "there are no runs to watch",
) -> None:
    """Write until none of the runs is running: at first a line for each, then for those that have changed.

    Args:
        catalogue: open. pause: waits so many seconds. none: what is said if there is no run.

    Raises:
        NotFound: there is no run.
    """
    watched = RunWatcher(catalogue, named=named)
    written: dict[str, str] = {}
    reporter = PlainLines()
    while not catalogue.wait(LOOK_S):
        reporter.tell(lambda: f"reading the runs: {len(catalogue.state().rows):,} so far")
    while True:
        state = watched.view(options, 0, 0, 2)
        if not state.total:
            raise NotFound(none)
        names = state.names if options.metrics else state.names[:VALUES]
        rows = [row for row in state.rows if row.key in state.styles]
        for row in rows:
            text = line(row, names)
            if written.get(row.key) != text:
                written[row.key] = text
                out.write(text + "\n")
        out.flush()
        if not any(row.status == "running" for row in rows):
            return
        pause(interval_s)
