"""How far work is that takes seconds, on stderr: a bar on a terminal, plain lines in a pipe, a log or a notebook."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from trackers.support.terminal import one_line

FIRST_S = 2.0
"""Work that takes less has no plain lines."""
NEXT_S = 10.0
"""Between plain lines."""

Progress = Callable[[int, int], None]
"""Called with how much there is now, and of how much; 0 where that isn't known."""


class PlainLines:
    """Lines on stderr, few of them: the first after :data:`FIRST_S`, further ones each :data:`NEXT_S`.

    Args:
        first_s: instead of FIRST_S.
    """

    def __init__(self, first_s: float | None = None) -> None:
        self._next = time.monotonic() + (FIRST_S if first_s is None else first_s)

    def tell(self, text: Callable[[], str]) -> None:
        """Write a line if it is time. text: makes it."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + NEXT_S
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"trackers: {one_line(text(), 300)}\n")
                sys.stderr.flush()


def is_terminal() -> bool:
    """Whether stderr is a terminal."""
    return bool(getattr(sys.stderr, "isatty", lambda: False)())


def is_notebook() -> bool:
    """Whether this process is a kernel: what is shown can be changed afterwards."""
    shell: Any = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None else None
    return getattr(found, "kernel", None) is not None


@contextlib.contextmanager
def progress(title: str, unit: str) -> Iterator[Progress]:
    """Show it on stderr until the end of the body.

    Args:
        unit: of what is counted, in the plural.
    """
    if not is_terminal():
        lines = PlainLines()

        def tell(done: int, total: int) -> None:
            of = f" of {total:,} {unit} ({done / total:.0%})" if total else f" {unit}"
            lines.tell(lambda: f"{title}: {done:,}{of}")

        yield tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(one_line(title, 80), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=max(done, total) if total else None)
