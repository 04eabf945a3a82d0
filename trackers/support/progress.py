"""How far work is that takes seconds, on stderr: a bar on a terminal, plain lines in a pipe, a log or a notebook."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from trackers.support.clock import monotonic
from trackers.support.interruption import suppress
from trackers.support.terminal import one_line

FIRST_S = 2.0
"""Work that takes less shows nothing."""
NEXT_S = 10.0
"""Between plain lines."""


def first_s() -> float:
    """:data:`FIRST_S`, or the seconds that TRACKERS_PROGRESS_S in the environment says, for scripts."""
    with suppress(ValueError):
        return float(os.environ.get("TRACKERS_PROGRESS_S", ""))
    return FIRST_S


Progress = Callable[[int, int], None]
"""See :class:`ProgressReport`."""


class PlainLines:
    """Lines on stderr, few of them: the first after :func:`first_s`, further ones each :data:`NEXT_S`."""

    def __init__(self) -> None:
        self._next = monotonic() + first_s()

    def tell(self, text: Callable[[], str]) -> None:
        """Write a line if it is time. text: makes it."""
        now = monotonic()
        if now >= self._next:
            self._next = now + NEXT_S
            with suppress(OSError, ValueError):
                sys.stderr.write(f"trackers: {one_line(text(), 300)}\n")
                sys.stderr.flush()


def is_terminal() -> bool:
    """Whether stderr is a terminal."""
    return bool(getattr(sys.stderr, "isatty", lambda: False)())


def is_notebook() -> bool:
    """Whether this process is a kernel: what is shown can be changed afterwards."""
    shell: Any = sys.modules.get("IPython")
    kernel_shell = shell.get_ipython() if shell is not None else None
    return getattr(kernel_shell, "kernel", None) is not None


class ProgressReport:
    """Shows how far it is. Called with how much there is now, and of how much; 0 where that isn't known.

    Attributes:
        title: of what is done; may be changed.
    """

    def __init__(self, title: str, unit: str) -> None:
        self.title, self._unit = title, unit
        self._lines = PlainLines()

    def __call__(self, done: int, total: int) -> None:
        """Show it."""
        of = f" of {total:,} {self._unit} ({done / total:.0%})" if total else f" {self._unit}"
        self._lines.tell(lambda: f"{self.title}: {done:,}{of}")


class _Hidden(ProgressReport):
    def __call__(self, done: int, total: int) -> None:
        """Nothing: other progress is shown, of which this is a part."""


class _Bar(ProgressReport):
    """A bar, drawn once the work has taken some time."""

    def __init__(self, title: str, unit: str) -> None:
        super().__init__(title, unit)
        self._begins = monotonic() + first_s()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Show it."""
        if self._bar is None and monotonic() >= self._begins:
            self._bar = _bar(self._unit)
            self._task = self._bar.add_task("", total=None)
            self._bar.start()
        if self._bar is not None:
            known = max(done, total) if total else None
            self._bar.update(self._task, description=one_line(self.title, 80), completed=done, total=known)

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()


_shown = 0
"""Above 0: something is shown, or the terminal is used for something else."""


def hide() -> None:
    """Show nothing until :func:`show_again`: the terminal is used for something else."""
    global _shown
    _shown += 1


def show_again() -> None:
    """See :func:`hide`."""
    global _shown
    _shown -= 1


@contextlib.contextmanager
def progress(title: str, unit: str) -> Iterator[ProgressReport]:
    """Show it on stderr until the end of the body; what the body prints on a terminal goes above a bar.

    Args:
        unit: of what is counted, in the plural.
    """
    if _shown:
        yield _Hidden(title, unit)
        return
    hide()
    bar = _Bar(title, unit) if is_terminal() else ProgressReport(title, unit)
    try:
        yield bar
    finally:
        show_again()
        if isinstance(bar, _Bar):
            bar.end()


T = TypeVar("T")


def counted(many: Sequence[T], title: str, unit: str) -> Iterator[T]:
    """Each of them, and how far it is; one alone is none to count."""
    if len(many) < 2:
        yield from many
        return
    with progress(title, unit) as tell:
        for number, item in enumerate(many):
            tell(number, len(many))
            yield item


def _bar(unit: str) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    console = Console(stderr=True, soft_wrap=True)  # lines above the bar are the terminal's to wrap: whole when copied
    return Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True,
        redirect_stdout=sys.stdout.isatty(),  # else it would take what is meant for a file or a pipe
    )  # fmt: skip
