"""What a notebook ran: the cells as they were executed, in ``notebook-<attempt>.py`` of the run's directory.

A notebook lies in no file that Python knows, and its cells are run in any order: the kernel's history says what ran.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from trackers.journal.run_directory import RunDirectory, replace_file
from trackers.support.interruption import suppress
from trackers.support.redaction import mask_source
from trackers.tracker import RunInfo

NOTEBOOK = "<notebook>"
MOST_CHARACTERS = 2_000_000
"""Of all cells together; the first that don't fit are named by their number."""


def begin(run: RunDirectory, info: RunInfo, attempt: int, options: Mapping[str, Any]) -> NotebookCells | None:
    """Keep the cells that ran; None where this is no notebook, or nobody wants to know."""
    if info.program != NOTEBOOK or not options["TRACKER_CODE"]:
        return None
    cells = NotebookCells(run, attempt, 0o600 if options["TRACKER_PRIVATE"] else 0o666)
    cells.poll()
    return cells


def name(attempt: int) -> str:
    """The file's name."""
    return f"notebook-{attempt}.py"


class NotebookCells:
    """The cells of one kernel. mode: of the file."""

    def __init__(self, run: RunDirectory, attempt: int, mode: int) -> None:
        self._path = run.path / name(attempt)
        self._mode = mode
        self._count = 0
        self._pid = os.getpid()

    def poll(self) -> None:
        """Write the cells, if more of them were run since the last look. Secrets are masked."""
        if os.getpid() != self._pid:
            return
        cells = _executed()
        if len(cells) != self._count:
            self._count = len(cells)
            with suppress(OSError, UnicodeError):  # it is no reason to stop
                replace_file(self._path, as_python(cells).encode("utf-8", "replace"), mode=self._mode)


def as_python(cells: list[str]) -> str:
    """Cells as a Python file with cell markers that editors know: ``# %% [3]`` is the third cell that ran."""
    parts, left = [], MOST_CHARACTERS
    for number, cell in enumerate(cells):
        if number and cell.strip():
            left -= len(cell)
            fits = left >= 0
            parts.append(
                f"# %% [{number}]\n{mask_source(cell).rstrip()}\n" if fits else f"# %% [{number}] is left out\n"
            )
    return "\n".join(parts)


def _executed() -> list[str]:
    """The kernel's history, as it was typed; the place of a cell is its number, so the first is none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    history = getattr(getattr(shell, "history_manager", None), "input_hist_raw", None)
    return [cell for cell in list(history) if isinstance(cell, str)] if isinstance(history, list) else []
