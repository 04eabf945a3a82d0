"""How a run is shown in a notebook: its name, how each tracker stands, small charts of its latest values.

IPython asks a run for it. In a notebook what is shown is written anew while the run goes on. Nothing besides the
standard library is needed, and training isn't slowed: the values are read from the run's journal by a thread that
spends a small share of its time.
"""

from __future__ import annotations

import html
import math
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from trackers.analysis.tables import format_age, format_value
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import observe
from trackers.journal.stream import StreamReader
from trackers.metrics import roles
from trackers.metrics.groups import group_of
from trackers.records import Metrics
from trackers.support.clock import monotonic
from trackers.support.interruption import suppress
from trackers.support.progress import is_notebook
from trackers.support.seekable_zstd import open_file

PERIOD_S = 2.0
"""Minimum pause between two drawings of a run that goes on."""
SHARE = 20
"""A pause is this many times as long as reading and drawing took."""
CHARTS = 4
"""Maximum number of charts."""
POINTS = 400
"""Points of a curve beyond which the smallest and the largest of four take their places."""
NEWEST_BYTES = 8 * 1024 * 1024
"""Bytes of a journal's end that are read when a run is shown first."""
_WIDTH, _HEIGHT, _LEFT, _TOP = 260, 120, 44, 18
_COLOUR = "#0072B2"


class NotebookCurve:
    """Points of one metric; of many, the smallest and the largest of each few.

    Attributes:
        points: step and value; the value is NaN where the line is broken. last: the last one logged.
    """

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self.last: float = math.nan

    def add(self, step: float, value: float) -> None:
        """Take a point that comes after the others."""
        self.last = value
        self.points.append((step, value))
        if len(self.points) > 2 * POINTS:
            groups = [self.points[at : at + 4] for at in range(0, len(self.points), 4)]
            self.points = [point for group in groups for point in _ends(group)]

    def svg(self, name: str) -> str:
        """The chart, in the text's own colour on its own ground."""
        finite = [(x, y) for x, y in self.points if math.isfinite(y)]
        title = f"{_escaped(name[:40])} <tspan font-weight='bold'>{_escaped(format_value(self.last))}</tspan>"
        parts = [
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{_HEIGHT}' role='img' "
            f"viewBox='0 0 {_WIDTH} {_HEIGHT}' font-size='10' font-family='sans-serif' fill='currentColor'>",
            f"<title>{_escaped(name)}</title><text x='2' y='11'>{title}</text>",
        ]
        if finite:
            parts += _svg_lines(self.points, finite)
        return "".join([*parts, "</svg>"])


def _ends(group: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points with the smallest and the largest value, in their order; a NaN stays one."""
    finite = [point for point in group if math.isfinite(point[1])]
    extremes = {min(finite, key=lambda point: point[1]), max(finite, key=lambda point: point[1])} if finite else set()
    broken = [point for point in group if not math.isfinite(point[1])][:1]
    return sorted([*extremes, *broken], key=lambda point: point[0])


def _svg_lines(points: Sequence[tuple[float, float]], finite: Sequence[tuple[float, float]]) -> list[str]:
    x0, x1 = min(x for x, _ in finite), max(x for x, _ in finite)
    low, high = min(y for _, y in finite), max(y for _, y in finite)
    wide, tall = _WIDTH - _LEFT - 6, _HEIGHT - _TOP - 18

    def position(x: float, y: float) -> str:
        # Halves, since a difference of the largest doubles is none.
        across = (x / 2 - x0 / 2) / (x1 / 2 - x0 / 2) if x1 > x0 else 0.5
        up = (y / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
        return f"{_LEFT + across * wide:.1f},{_TOP + (1 - up) * tall:.1f}"

    lines: list[list[str]] = [[]]
    for x, y in points:
        if math.isfinite(y):
            lines[-1].append(position(x, y))
        elif lines[-1]:
            lines.append([])
    frame = f"M{_LEFT},{_TOP}V{_TOP + tall}H{_LEFT + wide}"
    parts = [f"<path d='{frame}' fill='none' stroke='currentColor' stroke-opacity='0.4'/>"]
    for line in filter(None, lines):
        line = line * 2 if len(line) == 1 else line  # a dot
        parts.append(
            f"<polyline points='{' '.join(line)}' fill='none' stroke='{_COLOUR}' stroke-width='1.5' "
            "stroke-linecap='round' stroke-linejoin='round'/>"
        )
    labels = [(_LEFT - 4, _TOP + 8, "end", f"{high:.4g}"), (_LEFT - 4, _TOP + tall, "end", f"{low:.4g}")]
    labels = labels if high > low else labels[:1]
    labels += [(_LEFT, _HEIGHT - 5, "start", f"{x0:,.0f}"), (_WIDTH - 6, _HEIGHT - 5, "end", f"step {x1:,.0f}")]
    parts += [f"<text x='{x}' y='{y}' text-anchor='{at}' fill-opacity='0.7'>{text}</text>" for x, y, at, text in labels]
    return parts


class LatestValues:
    """Curves of a run's metrics, read on from its journal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: StreamReader | None = None
        self.curves: dict[str, NotebookCurve] = {}

    def read(self) -> None:
        """Take what was logged since."""
        if self._reader is None:
            self._reader = StreamReader(self._path, _begin(self._path))
        while batch := self._reader.read(limit=100_000):
            for record in batch:
                if isinstance(record, Metrics) and record.step is not None:
                    for name, value in record.values.items():
                        self._add_value(name, record.step, value)

    def _add_value(self, name: str, step: int, value: Any) -> None:
        with suppress(OverflowError, TypeError, ValueError):
            self.curves.setdefault(name, NotebookCurve()).add(float(step), float(value))

    def charted_metrics(self) -> list[str]:
        """The metrics that are drawn: losses, then others of training and validation."""
        order = {name: index for index, name in enumerate((*roles.LOSSES, *roles.VALIDATION_LOSSES))}
        names = [name for name in self.curves if group_of(name) in ("training", "validation")]
        plain = [name for name in names if roles.role_of(name) is None and not name.startswith("perf/")] or names
        return sorted(plain, key=lambda name: (order.get(name, len(order)), roles.direction(name) is None))[:CHARTS]


def _begin(path: Path) -> int:
    """Where the first whole line of a journal's end begins."""
    with suppress(OSError), open_file(path) as file:
        size = file.seek(0, 2)
        if size > NEWEST_BYTES:
            file.seek(size - NEWEST_BYTES)
            rest = file.read(1 << 20)
            return size - NEWEST_BYTES + rest.find(b"\n") + 1
    return 0


class Displayed(Protocol):
    """A run, as far as it is shown: see :class:`trackers.Run`."""

    @property
    def name(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def project(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def finished(self) -> bool: ...
    @property
    def start_time(self) -> float: ...
    def status(self) -> dict[str, dict[str, Any]]: ...


class Shown:
    """A run as HTML and as text. stream: where its values are written."""

    def __init__(self, run: Displayed, stream: Path) -> None:
        self._run = run
        self._values = LatestValues(stream)

    def bundle(self) -> dict[str, str]:
        """By MIME type."""
        return {"text/plain": repr(self._run), "text/html": self.html()}

    def html(self) -> str:
        """Name, status, trackers, charts."""
        run = self._run
        with suppress(OSError):
            self._values.read()
        status = "running" if not run.finished else observe(RunDirectory(run.path)).name
        head = f"<b>{_escaped(run.name)}</b> ({_escaped(run.project)}/{_escaped(run.id)}), {_escaped(status)}"
        if not run.finished:
            head += f" for {format_age(time.time() - run.start_time)}"
        charts = "".join(self._values.curves[name].svg(name) for name in self._values.charted_metrics())
        return (
            f"<div>{head}<table>{_rows(run.status())}</table>"
            f"<div>{charts}</div><small>{_escaped(run.path)}</small></div>"
        )


def _rows(status: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for name, entry in status.items():
        url = _escaped(str(entry.get("url") or ""))
        link = f'<a href="{url}" target="_blank">{url}</a>' if url.startswith(("http://", "https://")) else url
        words = [str(entry["state"])]
        words += [f"{entry['waiting_bytes']:,} bytes wait"] if entry.get("waiting_bytes") else []
        words += [f"{entry['rejected']:,} rejected"] if entry.get("rejected") else []
        words += [str(entry["error"])] if entry.get("error") else []
        rows.append(f"<tr><td>{_escaped(name)}</td><td>{_escaped(', '.join(words))}</td><td>{link}</td></tr>")
    return "".join(rows)


def _escaped(text: str) -> str:
    return html.escape(text)


def display(shown: Shown, run: Displayed) -> None:
    """Show a run, and in a notebook write it anew until it has ended."""
    import IPython.display

    give: Any = IPython.display.display
    handle = give(shown.bundle(), raw=True, display_id=True)
    if handle is None or run.finished or not is_notebook():
        return

    def work() -> None:
        while True:
            began = monotonic()
            finished = run.finished
            with suppress(Exception):  # the front end has gone: nobody looks
                handle.update(shown.bundle(), raw=True)
            if finished and not _waits(run):
                return
            time.sleep(max(PERIOD_S, SHARE * (monotonic() - began)))

    threading.Thread(target=work, name="trackers notebook", daemon=True).start()


def _waits(run: Displayed) -> bool:
    """Whether a tracker is still being delivered."""
    return any(entry.get("held_by") for entry in run.status().values())
