"""Progress of a long read: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Progress = Callable[[int, int], None]
"""Called with how much there is now, and of how much; 0 where that isn't known."""


@contextlib.contextmanager
def progress(title: str, unit: str) -> Iterator[Progress]:
    """Show it on stderr until the end of the body."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from trackers.support.terminal import one_line

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(one_line(title, 80), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=max(done, total) if total else None)
