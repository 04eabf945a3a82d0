"""A run on the user's terminal: a short line, or Megatron's training line.

    step 100 | train_loss 2.1234 | learning_rate 1.50e-04
    [2025-12-25 08:40:22] iteration        2/      50 | consumed samples:          256 | … | lm loss: 1.189062E+01 |

It runs in the training process, because it writes between the user's own lines and progress bars. A terminal that
is gone (a closed pipe, a dropped SSH session) ends the printing, and nothing else.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from trackers.backends.console.line import MARKERS, ConsoleLines
from trackers.backends.console.precheck import ConsolePrecheck
from trackers.backends.shared.step_rows import is_eval
from trackers.formats.megatron_line import SAMPLES, STRAGGLER_ENDS
from trackers.metrics import groups
from trackers.records import (
    SUMMARY_PREFIX,
    Alert,
    Config,
    Finish,
    Metrics,
    Number,
    Record,
    Start,
    Summary,
    Text,
    final_name,
    is_sample,
    take_results,
)
from trackers.support.terminal import write_line
from trackers.tracker import Cursor, RunInfo, State, Status

INTERVAL = 10
"""Default number of steps between two lines (``TRACKER_LOG_INTERVAL``)."""

TEXT_CHARS = 200
"""Maximum number of characters of a text that are shown."""
VALUES = 24
"""Values on a short line, if no option says otherwise: a model's tensors, layer by layer, would fill the terminal."""


class ConsoleTracker(ConsolePrecheck):
    """Prints a line at each ``TRACKER_LOG_INTERVAL``-th and the last step, and at each evaluation.

    Short lines say what a step logged, the first one, too; full ones sum up an interval. Full ones come where
    ``TRACKER_CONSOLE_STYLE`` says so, or where it says "auto" and the run logs what a training loop measures.
    Megatron's own logging prints its lines by itself: none is printed for it here.

    Args:
        stream: where to; None: standard error as it is at each line.
    """

    accepts = frozenset({Start, Config, Metrics, Text, Summary, Alert, Finish})

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._gone = False
        self._seq = 0
        self._first: int | None = None
        self._skipped: tuple[int, dict[str, Number]] | None = None
        self._results: dict[str, Any] = {}
        self._quiet = self._ended = False

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Begin; nothing is printed yet."""
        try:
            self._interval = max(1, int(info.option("TRACKER_LOG_INTERVAL", INTERVAL)))
        except ValueError:
            self._interval = INTERVAL
        self._style = str(info.option("TRACKER_CONSOLE_STYLE", "auto"))
        self._values = int(info.option("TRACKER_CONSOLE_VALUES", VALUES))
        self._lines = ConsoleLines(
            self._interval,
            str(info.option("TRACKER_TIMING_OPTION", "minmax")),
            timed=int(info.option("TRACKER_TIMING_LEVEL", 0)) >= 0 and bool(info.option("TRACKER_LOG_TIMERS", True)),
            ends=int(info.option("TRACKER_STRAGGLER_COUNT", STRAGGLER_ENDS))
            if info.option("TRACKER_LOG_STRAGGLER", True)
            else 0,
        )
        self._configure(info.config)
        self._seq = int(state.get("seq", 0))
        self._state = state
        return None

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Print what is due. Never raises because of the terminal."""
        for record in records:
            if record.seq and record.seq <= self._seq:
                continue
            self._seq = max(self._seq, record.seq)
            if is_sample(record):  # of the hardware: the lines are about training
                continue
            match record:
                case Metrics():
                    self._metrics(record)
                case Text():
                    for name, text in record.values.items():
                        shown = text if len(text) <= TEXT_CHARS else text[:TEXT_CHARS] + "…"
                        self._print(f"{_step(record.step)}{_clean(name)}: {_clean(shown)}")
                case Summary():
                    take_results(self._results, record, final_name)
                case Alert():
                    self._print(f"{_clean(record.level)}: {_clean(record.title)} {_clean(record.text)}".rstrip())
                case Finish():
                    self._ended = True
                case Config():
                    self._configure(record.values)
                case Start() if record.id.startswith("rank-"):
                    self._lines.ranks, self._ended = record.world_size, False
        self.tick()
        self._state["seq"] = self._seq

    def tick(self) -> None:
        """Print full lines that have waited long enough for values of other ranks."""
        self._print_all(self._lines.tick())

    def close(self, status: Status) -> None:
        """Print the last step, if it wasn't, and the results."""
        if self._skipped is not None:
            self._print(self._row(*self._skipped))
            self._skipped = None
        self._print_all(self._lines.close())
        if self._results and (self._ended or status.name != "running"):  # the relay may not have ended yet
            self._print(" | ".join(f"{_clean(name)} {_format(value)}" for name, value in self._results.items()))
            self._results = {}

    def _configure(self, values: Mapping[str, Any]) -> None:
        total = groups.steps(values)
        self._lines.iterations = self._lines.iterations if total is None else total

    def _metrics(self, record: Metrics) -> None:
        values = {name: value for name, value in record.values.items() if not name.startswith(SUMMARY_PREFIX)}
        self._results.update({name: value for name, value in record.values.items() if name not in values})
        step = record.step
        if step is None or not values:  # samples without a step: the line is about training
            return
        if self._style == "auto" and not MARKERS.isdisjoint(values):
            self._style, self._skipped = "full", None
        if self._style == "full":
            self._quiet = self._quiet or SAMPLES in values
            if not self._quiet:
                late = record.id.startswith("reducer-")
                self._print_all(self._lines.add(step, record.time, values, late))
            return
        if self._first is None:
            self._first = step
        evaluation = any(map(is_eval, values))
        if evaluation or step == self._first or step % self._interval == 0:
            self._print(self._row(step, values))
            if not evaluation or (self._skipped is not None and self._skipped[0] < step):
                self._skipped = None  # what training logged at an evaluated step may be the last
        elif self._skipped is not None and self._skipped[0] == step:
            self._skipped[1].update(values)
        else:
            self._skipped = (step, values)

    def _print_all(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._print(_clean(line))

    def _print(self, line: str) -> None:
        stream = self._stream or sys.stderr
        if self._gone or stream is None:
            return
        try:
            write_line(line, stream)
        except UnicodeEncodeError:
            encoding = getattr(stream, "encoding", None) or "ascii"
            self._print(line.encode(encoding, "backslashreplace").decode(encoding))
        except (OSError, ValueError):  # ValueError: the stream was closed
            self._gone = self._stream is not None or stream is sys.__stderr__

    def _row(self, step: int, values: Mapping[str, Number]) -> str:
        most = self._values or len(values)
        shown = [f"{_clean(name)} {_format(value)}" for name, value in itertools.islice(values.items(), most)]
        more = [f"… {len(values) - most} more"] if len(values) > most else []
        return " | ".join([f"step {step}", *shown, *more])


def _step(step: int | None) -> str:
    return "" if step is None else f"step {step} | "


def _format(value: Any) -> str:
    """A value in few characters: four decimals where they say something, else three digits and an exponent."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return _clean(str(value))
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    size = abs(value)
    return f"{value:.4f}" if value == 0 or 1e-2 <= size < 1e6 else f"{value:.2e}"


def _clean(text: str) -> str:
    """Text without line ends and terminal escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
