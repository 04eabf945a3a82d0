"""Text of session logs: the lines, and the pages that they are composed to.

A part whose value isn't known is left out; None, negative and NaN are shown as they are. MB and GB are 1e6 and 1e9
bytes.

Pages hold levels and blocks, and keep lines back until the log's head is known.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from trackers.records import finite
from trackers_session.precheck import SessionSettings

MOST_SHOWN = 8
"""Metrics on the line below a step; the summary has them all."""
TEXT_CHARS = 500
RULE = "=" * 60
MB = 1e6
GB = 1e9


def main_line(time: float, level: int, text: str) -> str:
    """A line of the main log: ``14:30:22 | INFO  | Mode: MULTI-GPU``."""
    return f"{datetime.fromtimestamp(time):%H:%M:%S} | {logging.getLevelName(level):<5} | {clean(text)}"


def process_line(time: float, level: int, text: str) -> str:
    """A line of the other logs: ``2024-12-06 14:30:25 | INFO     | MainProcess  | World size: 2``."""
    stamp = f"{datetime.fromtimestamp(time):%Y-%m-%d %H:%M:%S}"
    return f"{stamp} | {logging.getLevelName(level):<8} | MainProcess  | {clean(text)}"


def step_line(step: int, total: int | None, loss: Any, rate: Any, speed: float | None) -> str:
    """``Step   50/1000 ( 5.0%) | Loss: 2.1234 | LR: 1.50e-04 | Speed: 2.5 steps/s | ETA: 6.3min``.

    speed: steps per second.
    """
    parts = [f"Step {step:4d}"]
    if total:
        width = max(4, len(str(total)))
        parts = [f"Step {step:{width}d}/{total} ({step / total * 100:4.1f}%)"]
    if loss is not None:
        parts.append(f"Loss: {fixed(loss, '.4f')}")
    if rate is not None:
        parts.append(f"LR: {fixed(rate, '.2e')}")
    if speed is not None:
        parts.append(f"Speed: {speed:.1f} steps/s" if speed >= 0.1 else f"Speed: {speed:.2e} steps/s")
        if total and step <= total and speed > 0:
            parts.append(f"ETA: {(total - step) / speed / 60:.1f}min")
    return " | ".join(parts)


def metrics_line(values: Mapping[str, Any]) -> str:
    """``  └─ Metrics: step_duration: 0.400, samples_per_second: 5.0``; "" without any."""
    texts = [f"{clean(name)}: {metric(name, value)}" for name, value in list(values.items())[:MOST_SHOWN]]
    if len(values) > MOST_SHOWN:
        texts.append(f"… {len(values) - MOST_SHOWN} more")
    return f"  └─ Metrics: {', '.join(texts)}" if texts else ""


def metric(name: str, value: Any) -> str:
    """A value in few characters: rates with one decimal, all else with three, or as 1.23e-05."""
    if finite(value) is None:
        return clean(str(value))
    if isinstance(value, int):
        return str(value)
    size = abs(value)
    if size and not 1e-3 <= size < 1e9:
        return f"{value:.2e}"
    return f"{value:.1f}" if "per_s" in name else f"{value:.3f}"


def evaluation_lines(values: Mapping[str, Any]) -> list[str]:
    """The block of an evaluation, names as they were logged."""
    return ["📊 EVALUATION RESULTS:", *(f"  • {clean(name)}: {fixed(value, '.4f')}" for name, value in values.items())]


def communication_line(operation: str, rank: int, size: Any = None, took_ms: Any = None, rate: Any = None) -> str:
    """``Communication | gradient_sync | Rank 0 | Size: 45.67MB | Duration: 12.34ms | Bandwidth: 3701.46MB/s``.

    size: bytes. rate: MB/s, as it was measured.
    """
    parts = ["Communication", clean(operation), f"Rank {rank}"]
    if size is not None:
        parts.append(f"Size: {fixed(size / MB, '.2f')}MB")
    if took_ms is not None:
        parts.append(f"Duration: {fixed(took_ms, '.2f')}ms")
    if rate is not None:
        parts.append(f"Bandwidth: {fixed(rate, '.2f')}MB/s")
    return " | ".join(parts)


def multigpu_step_line(word: str, step: int, processes: int, local_rank: int | None, rank: int) -> str:
    """``Multi-GPU Step 20 | Processes: 2 | Local rank: 0 | Process index: 0``."""
    local = "" if local_rank is None else f" | Local rank: {local_rank}"
    return f"{word} Step {step} | Processes: {processes}{local} | Process index: {rank}"


def performance_line(step: int, step_s: float | None, rate: float | None, batch: float | None) -> str:
    """``Performance | Step 100 | Avg step time: 0.380s | Throughput: 10.5 samples/s | Total batch size: 4``."""
    parts = ["Performance", f"Step {step}"]
    if step_s is not None:
        parts.append(f"Avg step time: {step_s:.3f}s")
    if rate is not None:
        parts.append(f"Throughput: {rate:.1f} samples/s")
    if batch is not None:
        parts.append(f"Total batch size: {batch:g}")
    return " | ".join(parts)


def gpu_line(label: str, name: str, memory_bytes: float | None) -> str:
    """``GPU 0: NVIDIA RTX 4090 (24.0GB)``."""
    size = f" ({memory_bytes / GB:.1f}GB)" if memory_bytes else ""
    return f"GPU {label}: {clean(name) or 'unknown'}{size}"


def duration(seconds: float) -> str:
    """``650.2s (10.8min)``."""
    return f"{seconds:.1f}s ({seconds / 60:.1f}min)"


def fixed(value: Any, form: str) -> str:
    """A number in a format; what is none as it is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return clean(str(value))
    try:
        return f"{value:{form}}"
    except OverflowError:  # an integer beyond a float's range
        return str(value)


def clean(text: str) -> str:
    """Text on one line, without terminal escapes, cut where it is very long."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= TEXT_CHARS else text[:TEXT_CHARS] + "…"


MAIN, MULTIGPU, PERFORMANCE = "main", "multigpu", "performance"

UNKNOWN = "�-?"
"""Stands in a line that is held back for the word that only the head knows."""


class PagePosition(msgspec.Struct):
    """Position in the text. waiting: the head isn't written yet, and ``held`` is what follows it, each with its log.

    block: the main log ends with lines that stand together, behind which an empty line belongs.
    """

    waiting: bool = True
    held: list[tuple[str, str]] = []
    block: bool = False


class Pages:
    """New text, by log.

    Args:
        place: where the text stands; it is changed.
    """

    def __init__(self, place: PagePosition, settings: SessionSettings) -> None:
        self.place = place
        self.texts: dict[str, list[str]] = {MAIN: [], MULTIGPU: [], PERFORMANCE: []}
        self._levels = dict.fromkeys((MAIN, PERFORMANCE), settings.training_level)
        self._levels[MULTIGPU] = settings.multigpu_level
        self._ends_with_block = False

    def say(self, log: str, time: float, level: int, text: str) -> None:
        """A line with its time."""
        self.add(log, level, (main_line if log == MAIN else process_line)(time, level, text))

    def add(self, log: str, level: int, *lines: str) -> None:
        """Add lines as they are, if their level is one that is written."""
        if level < self._levels[log]:
            return
        if log == MAIN:
            self.end_block()
        for line in lines:
            self._add(log, line)

    def block(self, lines: list[str]) -> None:
        """Lines of the main log that stand together, with an empty line before and behind them."""
        self.blank()
        self.add(MAIN, logging.INFO, *lines)
        self.place.block = True

    def blank(self) -> None:
        """An empty line in the main log, but no second one."""
        self.place.block = True
        self.end_block()

    def end_block(self) -> None:
        """Add the empty line behind a block, if the text ends with one."""
        if self.place.block:
            self.place.block = False
            if self._levels[MAIN] <= logging.INFO:
                self._add(MAIN, "")

    def hold_back(self) -> None:
        """Hold back what is written from here on, until the head is written before it."""
        self.place.waiting = True

    def release(self) -> list[tuple[str, str]]:
        """Write to the logs again. What was held back is the caller's to give to ``follow``, behind the head."""
        waiting, self.place.held = self.place.held, []
        self._ends_with_block, self.place.block = self.place.block, False
        self.place.waiting = False
        return waiting

    def follow(self, waiting: list[tuple[str, str]], word: str) -> None:
        """Write what was held back, with the word for :data:`UNKNOWN`."""
        first = next((text for log, text in waiting if log == MAIN), None)
        if first is not None:
            if first != "\n":
                self.end_block()
            self.place.block = self._ends_with_block
        for log, text in waiting:
            self.texts[log].append(text.replace(UNKNOWN, word, 1) if log == MULTIGPU else text)

    def _add(self, log: str, line: str) -> None:
        if self.place.waiting and log != PERFORMANCE:
            self.place.held.append((log, f"{line}\n"))
        else:
            self.texts[log].append(f"{line}\n")
