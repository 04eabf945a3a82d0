"""W&B's rows, system events and summaries as records, whoever logged them and wherever they were read.

A row's step is W&B's ``_step``. Rows that our own tracker wrote are told by their definition (every metric has
``global_step`` for its x axis, or ``trackers/step`` where the script logs a ``global_step`` of its own): their step is
that, and names that had to give way to W&B's are put back.
Times are ``_timestamp``. Nested values are joined with "." as W&B shows them; "NaN" and "Infinity" are numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trackers.errors import UNDECODABLE
from trackers.formats import float_names, vendor_system_names
from trackers.metrics.summary import SUMMARIES
from trackers.metrics.unasked import APART
from trackers.records import (
    FLOAT_NAMES,
    SYSTEM_PREFIX,
    Media,
    MediaFile,
    Metrics,
    Record,
    Summary,
    Text,
    final_name,
    unnamed_float,
)
from trackers.support import confined

STATUS = {
    "finished": "finished", "failed": "failed", "crashed": "crashed", "killed": "crashed", "running": "running",
    "pending": "running", "preempting": "preempted", "preempted": "preempted",
}  # fmt: skip
"""W&B's states in our words: ``killed`` is a run that somebody stopped from the browser."""

STEP = "global_step"
OWN_STEP = "trackers/step"
OUR_STEPS = frozenset({STEP, OWN_STEP})
OWN = "logged/"
"""Before names of ours that W&B uses itself."""
OUR_SYSTEM = "system/"
"""Before samples of the machine that our tracker put into the history."""
RESERVED = frozenset({"_step", "_runtime", "_timestamp", "_wandb"})

KINDS = {
    "image-file": "image", "images/separated": "image", "audio-file": "audio", "audio": "audio",
    "video-file": "video", "videos": "video", "html-file": "html", "html": "html",
}  # fmt: skip

PAUSE_S = 1.0
"""Least time that counts as a pause, in seconds: the client rounds some of its times."""

Fetch = Callable[[str], Path | None]
"""Makes a run's file be there, by its path in W&B; None where it can't be had."""


class Decoder:
    """Makes records of one run's rows.

    Args:
        ours: our own tracker wrote the run.
        fetch: gets the files that media lie in; None: such media are left out.
        named: media are given with the names of their files, though these aren't there.

    ``last``: the last value of each name that rows had, for telling a summary's results from last values; ``newest``:
    with its time the one that was logged last, for our tracker sends second values of a step after later steps;
    ``repeated``: of the summary, what is the same as these. ``pauses``: begin and end of the times, in Unix seconds,
    during which the run's own clock (``_runtime``) stood still.
    """

    def __init__(self, ours: bool, fetch: Fetch | None = None, named: bool = False) -> None:
        self.ours = ours
        self.last: dict[str, Any] = {}
        self.newest: dict[str, tuple[float, Any]] = {}
        self.repeated: dict[str, Any] = {}
        self.time = 0.0
        self.pauses: list[tuple[float, float]] = []
        self._clock: tuple[float, float] | None = None
        self._fetch = fetch
        self._named = named

    def row(self, row: Mapping[str, Any]) -> Iterator[Record]:
        """The records of one row of the history."""
        time = _number(row.get("_timestamp"), self.time)
        self.time = max(self.time, time)
        self._see_clock(time, row.get("_runtime"))
        step = row.get("_step")
        step_name = OWN_STEP if OWN_STEP in row else STEP
        own = row.get(step_name) if self.ours else None
        numbers: dict[str, Any] = {}
        texts: dict[str, str] = {}
        lists: list[str] = []
        samples: dict[str, Any] = {}
        media: list[Media] = []
        for name, value in row.items():
            if name in RESERVED:
                continue
            self.last[name] = value
            if name not in self.newest or time >= self.newest[name][0]:
                self.newest[name] = time, value
            if own is not None and name == step_name:
                continue
            for leaf, inner in _leaves(name, value):
                if isinstance(inner, dict):
                    items = self._media(self._logged_name(leaf), inner, step if own is None else own, time)
                    media.extend(items)
                elif isinstance(inner, list):
                    texts[self._logged_name(leaf)] = float_names.list_text(inner)
                    lists.append(self._logged_name(leaf))
                elif isinstance(inner, str) and inner not in FLOAT_NAMES:
                    texts[self._logged_name(leaf)] = inner
                elif self.ours and leaf.startswith(OUR_SYSTEM):
                    samples[SYSTEM_PREFIX + leaf.removeprefix(OUR_SYSTEM)] = unnamed_float(inner)
                else:
                    numbers[self._logged_name(leaf)] = unnamed_float(inner)
        if self.ours:
            step = int(own) if isinstance(own, (int, float)) else None
        if samples:
            yield Metrics(time=time, values=samples)
        if numbers:
            yield Metrics(step=step, time=time, values=numbers)
        if texts:
            yield Text(step=step, time=time, values=texts, lists=lists)
        yield from sorted(media, key=lambda record: record.name)  # W&B gives a row's values in any order

    def _see_clock(self, time: float, runtime: Any) -> None:
        if not isinstance(runtime, (int, float)):
            return
        if self._clock is not None:
            passed_s, counted_s = time - self._clock[0], runtime - self._clock[1]
            if passed_s - max(0.0, counted_s) > PAUSE_S:
                self.pauses.append((self._clock[0], time - max(0.0, counted_s)))
        self._clock = time, float(runtime)

    def event(self, row: Mapping[str, Any]) -> Iterator[Record]:
        """The record of one line of system metrics, at no step, by our names: ``system.gpu.0.powerWatts``."""
        values = {}
        for name, value in row.items():
            if name not in RESERVED:
                for leaf, inner in _leaves(name, value):
                    number = unnamed_float(inner)
                    if isinstance(number, (int, float)):
                        plain, number = vendor_system_names.from_wandb(leaf.removeprefix(SYSTEM_PREFIX), number)
                        values[SYSTEM_PREFIX + plain] = number
        if values:
            yield Metrics(time=_number(row.get("_timestamp"), self.time), values=values)

    def results(self, summary: Mapping[str, Any]) -> Iterator[Record]:
        """The summary's results: what isn't merely the last value of a curve."""
        values: dict[str, Any] = {}
        lists: list[str] = []
        unasked = summary.get(APART)
        if self.ours and isinstance(unasked, dict):
            summary = {**{name: value for name, value in summary.items() if name != APART}, **unasked}
        for name, value in summary.items():
            if name in RESERVED:
                continue
            lasts = self.last.get(name), self.newest.get(name, (0.0, None))[1]
            is_last = name in OUR_STEPS or any(_same(last, value) for last in lasts)
            found = self.repeated if is_last else values
            by_word = isinstance(value, dict) and set(SUMMARIES).issuperset(value)
            for leaf, inner in _leaves(name, value):
                if by_word and (final_name(leaf) in summary or (len(value) == 1 and final_name(name) in summary)):
                    continue  # this package's delivery says it under that name, too
                if isinstance(inner, list):
                    found[leaf] = float_names.list_text(inner)
                    lists += [leaf] if found is values else []
                elif not isinstance(inner, dict):
                    found[leaf] = unnamed_float(inner)
        if values:
            yield Summary(time=self.time, values=values, lists=lists)

    def _logged_name(self, name: str) -> str:
        return name.removeprefix(OWN) if self.ours and name.rpartition(OWN)[2] in {*RESERVED, OWN_STEP, ""} else name

    def _media(self, name: str, value: dict[str, Any], step: Any, time: float) -> Iterator[Media]:
        kind = value.get("_type")
        items: list[MediaFile] = []
        if kind == "histogram":
            items = _histogram(value)
            media_type = "histogram"
        elif kind in ("table-file", "incremental-table-file"):
            items, media_type = self._table(value), "table"
            if kind != "table-file" or value.get("log_mode") == "INCREMENTAL":
                for part in items:
                    part.meta["log_mode"] = "INCREMENTAL"
        elif kind in KINDS:
            media_type = KINDS[kind]
            items = [item for part in _single_media(value) if (item := self._file(part, value)) is not None]
        else:
            return
        if items:
            whole = int(step) if isinstance(step, (int, float)) else None
            yield Media(step=whole, time=time, name=name, type=media_type, items=items)

    def _file(self, part: Mapping[str, Any], whole: Mapping[str, Any]) -> MediaFile | None:
        path = str(part.get("path") or "")
        if not (self._named and _is_relative(path)) and self._get(path) is None:
            return None
        return MediaFile(
            format=path.rpartition(".")[2].lower(),
            file=path,
            caption=part.get("caption"),
            width=part.get("width", whole.get("width")),
            height=part.get("height", whole.get("height")),
            sample_rate=part.get("sample_rate"),
        )

    def _table(self, value: Mapping[str, Any]) -> list[MediaFile]:
        path = str(value.get("path") or "")
        if self._named:
            return [MediaFile(format="json", file=path)] if _is_relative(path) else []
        file = self._get(path)
        try:
            return [MediaFile(format="json", data=table(file))] if file is not None else []
        except (OSError, *UNDECODABLE, KeyError, TypeError):
            return []

    def _get(self, path: str) -> Path | None:
        return self._fetch(path) if self._fetch is not None and _is_relative(path) else None


def table(file: Path, most_bytes: int = confined.READ_BYTES) -> dict[str, Any]:
    """W&B's table file as we have tables: rows are called "rows".

    Raises:
        OSError: it can't be read. ValueError, RecursionError, KeyError, TypeError: it is no table.
    """
    content = json.loads(confined.read(file, most=most_bytes))
    return float_names.content(content["columns"], content["data"])


def _is_relative(path: str) -> bool:
    return bool(path) and not path.startswith("/") and ".." not in path.split("/")


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What lies in a value: numbers, texts, and media as mappings; plain mappings are taken apart."""
    if isinstance(value, dict) and "_type" not in value:
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner)
    elif value is not None:
        yield name, value


def _single_media(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The single media of a value: itself, or what its lists name."""
    if "filenames" in value:
        captions = value.get("captions") or [None] * len(value["filenames"])
        return [{"path": path, "caption": text} for path, text in zip(value["filenames"], captions, strict=False)]
    for key in ("audio", "videos", "html"):
        if isinstance(value.get(key), list):
            return [part for part in value[key] if isinstance(part, dict)]
    return [value]


def _histogram(value: Mapping[str, Any]) -> list[MediaFile]:
    counts = value.get("values")
    edges = value.get("bins")
    packed = value.get("packedBins")
    if edges is None and isinstance(packed, dict) and isinstance(counts, list) and packed.get("count") == len(counts):
        edges = [packed["min"] + packed["size"] * index for index in range(packed["count"] + 1)]
    if not isinstance(counts, list) or not isinstance(edges, list):
        return []
    return [MediaFile(format="json", data={"counts": counts, "edges": edges})]


def _number(value: Any, default: float) -> float:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else default


def _same(left: Any, right: Any) -> bool:
    return bool(left == right) or json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


_HIDDEN = 2


def is_ours(metrics: Any) -> bool:
    """Whether our tracker wrote a run, by the definitions in its configuration (``_wandb.m``).

    A definition has its name as "1", its glob as "2", its x axis as "4", or as "5" its place in the list from 1, and as
    "6" what it has (2: hidden; ``MetricRecord`` and wandb/sdk/lib/proto_util.py). Clients before 0.29 keep no glob.
    """
    if not isinstance(metrics, list):
        return False
    definitions = [item for item in metrics if isinstance(item, dict)]
    for item in definitions:
        position = item.get("5")
        axis = item.get("4")
        if isinstance(position, int) and 0 < position <= len(definitions):
            axis = definitions[position - 1].get("1", axis)
        if item.get("2") == "*" and axis in OUR_STEPS:
            return True
        marks = item.get("6")
        if item.get("1") in OUR_STEPS and isinstance(marks, list) and _HIDDEN in marks:
            return True
    return False
