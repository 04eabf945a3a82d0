"""``progress.txt`` as Megatron keeps it beside its checkpoints: a line for each start of a job and each checkpoint.

    2025-11-21 10:44:42 <tab> Job ID: 4711 <tab> # GPUs: 8 <tab> Starting job
    2025-11-21 11:02:10 <tab> Job ID: 4711 <tab> # GPUs: 8 <tab> Saved checkpoint <tab> Iteration: 1000 <tab> …

The file is appended to by one job after the other, and jobs are killed: a line may have lost its end, and then the
next job's line follows it without a line end. What was cut is left out; a number that lost digits is no number.

Source: ``append_to_progress_log`` in Megatron-LM's ``megatron/training/training.py``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

NAME = "progress.txt"
STARTING, SAVED = "Starting job", "Saved checkpoint"
_STAMP = "%Y-%m-%d %H:%M:%S"
_HEAD = re.compile(r"(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\tJob ID: )")
_RATE = " TFLOP/s/GPU"
_LABELS = {
    "iteration": "Iteration", "job_tflops": "Job throughput", "cumulative_tflops": "Cumulative throughput",
    "flops": "Floating-point operations", "tokens": "Tokens (in billions)",
}  # fmt: skip
_FIELDS = {label: field for field, label in _LABELS.items()}
BILLION = 1e9


class ProgressLine(NamedTuple):
    """One line. None: it doesn't say.

    time: Unix seconds, written as local time to the second. job_tflops, cumulative_tflops: TFLOP/s per GPU.
    flops, tokens: so far.
    """

    time: float
    job_id: str
    gpus: int
    event: str
    iteration: int | None = None
    job_tflops: float | None = None
    cumulative_tflops: float | None = None
    flops: float | None = None
    tokens: float | None = None

    def line(self) -> str:
        """The line as in the file, without its line end."""
        stamp = datetime.fromtimestamp(self.time).strftime(_STAMP)
        fields = [
            stamp,
            f"Job ID: {_without_controls(self.job_id)}",
            f"# GPUs: {self.gpus}",
            _without_controls(self.event),
        ]
        texts = {
            "iteration": None if self.iteration is None else str(self.iteration),
            "job_tflops": _tflops(self.job_tflops),
            "cumulative_tflops": _tflops(self.cumulative_tflops),
            "flops": _format(self.flops, "{:.2e}"),
            "tokens": _format(None if self.tokens is None else self.tokens / BILLION, "{:.2f}"),
        }
        fields.extend(f"{_LABELS[name]}: {text}" for name, text in texts.items() if text is not None)
        return "\t".join(fields)


def entries(text: str) -> Iterator[ProgressLine]:
    """The lines that can be told, in order; of a line that lost its end, what is whole."""
    for line in text.splitlines(keepends=True):
        pieces = [piece for piece in _HEAD.split(line) if piece]
        for number, piece in enumerate(pieces, 1):
            whole = number == len(pieces) and line.endswith("\n")
            entry = _entry(piece.rstrip("\r\n"), whole)
            if entry is not None:
                yield entry


def _entry(text: str, whole: bool) -> ProgressLine | None:
    stamp, *fields = text.strip("\0 ").split("\t")
    if not whole:
        fields = fields[:-1]
    if len(fields) < 3 or not fields[0].startswith("Job ID: ") or not fields[1].startswith("# GPUs: "):
        return None
    time, gpus = _time(stamp), _number(fields[1].removeprefix("# GPUs: "))
    if time is None or gpus is None or gpus < 0:
        return None
    numbers: dict[str, float] = {}
    for field in fields[3:]:
        label, _, value = field.partition(": ")
        number = _number(value.removesuffix(_RATE))
        if label in _FIELDS and number is not None:
            numbers[_FIELDS[label]] = number * (BILLION if _FIELDS[label] == "tokens" else 1)
    iteration = numbers.pop("iteration", None)
    step = None if iteration is None else int(iteration)
    return ProgressLine(time, fields[0].removeprefix("Job ID: "), int(gpus), fields[2], step, **numbers)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _time(text: str) -> float | None:
    try:
        return datetime.strptime(text, _STAMP).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _format(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)


def _tflops(value: float | None) -> str | None:
    """One decimal, as Megatron writes it; three digits where that would leave nothing."""
    return _format(value, ("{:.3g}" if value is not None and 0 < abs(value) < 1 else "{:.1f}") + _RATE)


def _without_controls(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
