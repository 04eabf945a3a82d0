"""A line on the terminal, between the progress bars that the training script draws there."""

from __future__ import annotations

import sys
from typing import Any, TextIO


def write_line(line: str, stream: TextIO) -> None:
    """Write a line, above tqdm's bars where there are any. rich's bars take in by themselves what ``sys.stderr`` gets.

    Raises:
        OSError, ValueError: the stream is gone, or closed.
    """
    tqdm: Any = sys.modules.get("tqdm")
    bars: Any = getattr(tqdm, "tqdm", None)
    if getattr(bars, "_instances", None):
        bars.write(line, file=stream)
    else:
        stream.write(line + "\n")
    stream.flush()
