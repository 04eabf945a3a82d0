"""Lines on the terminal: text that is one printable line, written between the training script's progress bars."""

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


def lines(text: str) -> str:
    """Text of several lines without terminal escapes: what isn't printable is replaced."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


def one_line(text: str, limit: int = 600) -> str:
    """Text as one printable line: no line breaks, no terminal escapes."""
    flat = lines(" ".join(text.split()))
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
