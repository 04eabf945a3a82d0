"""Counting and checksumming what a run holds, in one pass and little memory, so that two places can be compared.

What each destination keeps of a run, and how it changes values by its nature: the table in ``docs/copies.md``.

A copy agrees with its source if it differs in nothing but this.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from trackers.formats.vendor_system_names import Placement, is_sample, placed, returned
from trackers.readers.columns import Block, ColumnBlocks
from trackers.records import (
    SUMMARY_PREFIX,
    ArtifactRecord,
    Config,
    Finish,
    Info,
    Media,
    Metrics,
    Record,
    Summary,
    Text,
    flatten,
    merge,
    name_floats,
    nearest_double,
    on_axis,
    take_results,
)

CHUNK = 10_000
WORD = 2**64


class SeriesDigest(msgspec.Struct):
    """One metric. count: its points. checksum: over steps and values, whatever their order. first, last: times."""

    count: int = 0
    checksum: int = 0
    first: float = math.inf
    last: float = -math.inf


class ContentDigest(msgspec.Struct):
    """Digest of a run. texts, media: how many, by name and by type. files: of artifacts, by artifact and path.

    merged: points that were counted as one with an equal one. repeated: results that a store can't tell from the last
    values of their metrics, as it has them.
    """

    metrics: dict[str, SeriesDigest] = {}
    config: dict[str, Any] = {}
    results: dict[str, Any] = {}
    repeated: dict[str, Any] = {}
    merged: int = 0
    texts: dict[str, int] = {}
    media: dict[str, int] = {}
    files: dict[str, int] = {}
    tags: list[str] = []
    status: str = ""

    @property
    def values(self) -> int:
        """Points of all metrics."""
        return sum(series.count for series in self.metrics.values())

    @property
    def checksum(self) -> str:
        """One word over all metrics: name, steps and values."""
        total = 0
        for name, series in sorted(self.metrics.items()):
            for byte in name.encode("utf-8", "surrogatepass"):
                total = (total * 1_099_511_628_211 + byte) % WORD
            total = (total * 31 + series.checksum + series.count) % WORD
        return f"{total:016x}"


def tally(
    records: Iterable[Record], keeps: Capabilities | None = None, once: Literal["", "moment", "step"] = ""
) -> ContentDigest:
    """Count records.

    Args:
        keeps: count them as this destination keeps them; None: as they are.
        once: which points of one metric with equal values are one: see :class:`Capabilities`.
    """
    digest = ContentDigest()
    columns = ColumnBlocks()
    batch: list[Record] = []
    points = _Points(keeps is not None and keeps.last, once or (keeps.once if keeps is not None else ""))
    for record in records if keeps is None else _as_stored(records, keeps):
        batch.append(record)
        if len(batch) >= CHUNK:
            _count(digest, columns, batch, keeps, points)
            columns, batch = ColumnBlocks(columns.count), []
    _count(digest, columns, batch, keeps, points)
    points.settle(digest)
    return digest


class _Points:
    """Points that a destination makes one of: known once all are there, so a word or two of each are held.

    Args:
        last: of several points of a metric at a step the last counts. once: see :class:`Capabilities`.
    """

    def __init__(self, last: bool, once: str) -> None:
        self._last, self._once = last, once
        self._newest: dict[str, dict[int, tuple[int, int]]] = {}
        self._words: dict[str, list[tuple[Any, Any]]] = {}

    def add(self, name: str, block: Block, hashes: Any) -> None:
        """Take a block's points of a metric. hashes: of each one's step and value."""
        import numpy as np

        if self._last:
            newest = self._newest.setdefault(name, {})
            for step, number, word in zip(block.steps.tolist(), block.rows.tolist(), hashes.tolist(), strict=True):
                newest[step] = max(newest.get(step, (-1, 0)), (number, word))
        if self._once:
            words = hashes
            if self._once == "moment":
                moments: Any = np.round(block.times * 1000).astype(np.int64)
                words = _mixed(hashes ^ _mixed(moments.view(np.uint64)))
            self._words.setdefault(name, []).append((words, hashes))

    def settle(self, digest: ContentDigest) -> None:
        """Leave out what isn't a point of its own."""
        import numpy as np

        for name, newest in self._newest.items():
            series = digest.metrics[name]
            series.count, series.checksum = len(newest), sum(word for _, word in newest.values()) % WORD
        for name, parts in self._words.items():
            words, hashes = (np.concatenate([part[k] for part in parts]) for k in range(2))
            _, single = np.unique(words, return_index=True)
            if len(single) < len(words):
                series = digest.metrics[name]
                digest.merged += series.count - len(single)
                series.count, series.checksum = len(single), int(hashes[single].sum(dtype=np.uint64))


def _as_stored(records: Iterable[Record], keeps: Capabilities) -> Iterator[Record]:
    """Records as a destination stores them: results among metrics, steps of what has none, integers it can't hold."""
    step, top = 0, 0
    parts = (part for record in records for part in placed(record, keeps.machine, keeps.wish))
    for record in (own for part in parts for own in on_axis(part)) if keeps.axis else parts:
        if record.step is not None:
            step, top = record.step, max(top, record.step)
        if type(record) is Metrics:
            yield from _taken_out(record, keeps)
            if not record.values and record.step is None and keeps.samples:
                continue
            if record.step is None and keeps.stepless != "kept":
                record.step = {"zero": 0, "last": step, "top": top}[keeps.stepless]
        yield record


def _taken_out(record: Metrics, keeps: Capabilities) -> Iterator[Record]:
    """What of a row a destination has elsewhere, taken out of it: results, samples; and not at all: wide integers."""
    values = record.values
    if results := {name: value for name, value in values.items() if name.startswith(SUMMARY_PREFIX)}:
        yield Summary(time=record.time, values=results)
        values = {name: value for name, value in values.items() if name not in results}
    if not keeps.wide and any(type(value) is int and value not in NATIVE_INTEGERS for value in values.values()):
        values = {name: v for name, v in values.items() if type(v) is not int or v in NATIVE_INTEGERS}
    by_step = record.step is not None or not keeps.samples
    machine = {} if by_step else {name: value for name, value in values.items() if is_sample(name, None)}
    if machine:
        yield Metrics(time=record.time, values=returned(machine, keeps.units))
        values = {name: value for name, value in values.items() if name not in machine}
    record.values = values


def _count(
    digest: ContentDigest, columns: ColumnBlocks, batch: list[Record], keeps: Capabilities | None, points: _Points
) -> None:
    for record in columns.add(batch):
        match record:
            case Config():
                merge(digest.config, record.values, record.whole)
            case Summary():
                take_results(digest.results, record)
            case Text():
                for name in record.values:
                    digest.texts[name] = digest.texts.get(name, 0) + 1
            case Media():
                digest.media[record.type] = digest.media.get(record.type, 0) + len(record.items)
            case ArtifactRecord():
                for file in record.files:
                    name = f"{record.name}/{file.path}"
                    digest.files[name] = digest.files.get(name, 0) + 1
            case Info() if record.tags is not None:
                digest.tags = record.tags
            case Finish():
                digest.status = record.status
    for block in columns.blocks():
        _sum(digest, block, keeps, points)


def _sum(digest: ContentDigest, block: Block, keeps: Capabilities | None, points: _Points) -> None:
    """Add a block's points: a sum over a hash of each, so that their order doesn't matter."""
    import numpy as np

    values: Any = block.values
    if keeps is not None and keeps.single:
        with np.errstate(over="ignore"):
            values = values.astype(np.float32).astype(np.float64)
    if keeps is not None and keeps.finite:
        values = np.clip(values, -sys.float_info.max, sys.float_info.max)  # NaN stays
    values = np.where(np.isnan(values), np.nan, values + 0.0)  # one NaN, one zero
    words: Any = _mixed(values.view(np.uint64) ^ _mixed(block.steps.view(np.uint64))[:, None])
    low, high = float(block.times.min()), float(block.times.max())
    for index, name in enumerate(block.names):
        series = digest.metrics.setdefault(name, SeriesDigest())
        hashes = words[:, index]
        points.add(name, block, hashes)
        series.count += len(hashes)
        series.checksum = (series.checksum + int(hashes.sum(dtype=np.uint64))) % WORD
        series.first, series.last = min(series.first, low), max(series.last, high)


def _mixed(words: Any) -> Any:
    """Each word's bits well mixed (the finalizer of SplitMix64, https://prng.di.unimi.it/splitmix64.c)."""
    import numpy as np

    with np.errstate(over="ignore"):
        words = words + np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return words ^ (words >> np.uint64(31))


def differences(want: ContentDigest, have: ContentDigest, keeps: Capabilities) -> Iterator[str]:
    """Each way in which a destination differs from what it should hold, as one line."""
    for name, series in want.metrics.items():
        other = have.metrics.get(name)
        if other is None:
            yield f"metric {name!r}: {series.count:,} values, none there"
        elif other.count != series.count:
            yield f"metric {name!r}: {series.count:,} values, {other.count:,} there"
        elif other.checksum != series.checksum:
            yield f"metric {name!r}: the checksums of {series.count:,} steps and values differ"
    strange = [name for name in have.metrics if name not in want.metrics]
    if strange:
        yield f"metrics that the source doesn't have: {', '.join(map(repr, strange[:5]))}"
    for kind, ours, theirs in (("text", want.texts, have.texts), ("artifact file", want.files, have.files)):
        if not (keeps.texts if kind == "text" else keeps.files):
            continue
        for name, count in ours.items():
            if theirs.get(name, 0) != count:
                yield f"{kind} {name!r}: {count:,}, {theirs.get(name, 0):,} there"
    for kind, count in want.media.items():
        if kind in keeps.media and have.media.get(kind, 0) != count:
            yield f"{kind}: {count:,}, {have.media.get(kind, 0):,} there"
    if keeps.config:
        yield from _leaves("config", dict(flatten(want.config)), dict(flatten(have.config)), keeps)
    if keeps.results and want.status:  # some destinations take them when a run has ended
        yield from _leaves("result", want.results, {**have.repeated, **have.results}, keeps)
    if keeps.tags and sorted(want.tags) != sorted(have.tags):
        yield f"tags: {want.tags}, {have.tags} there"
    word = keeps.statuses.get(want.status, want.status)
    if word and have.status != word:
        yield f"status: {word}, {have.status or 'none'} there"


def _leaves(kind: str, want: dict[str, Any], have: dict[str, Any], keeps: Capabilities) -> Iterator[str]:
    for name, value in want.items():
        if name not in have:
            yield f"{kind} {name!r} isn't there"
        elif not _same(
            value if keeps.wide else _narrow(value), have[name], keeps if kind == "result" else Capabilities()
        ):
            yield f"{kind} {name!r}: {str(value)[:80]}, {str(have[name])[:80]} there"


def _narrow(value: Any) -> Any:
    """With integers beyond 64 bits as text: what a destination makes of them in its JSON."""
    if isinstance(value, list):
        return [_narrow(item) for item in value]
    if isinstance(value, dict):
        return {name: _narrow(item) for name, item in value.items()}
    return str(value) if type(value) is int and value not in NATIVE_INTEGERS else value


def _same(want: Any, have: Any, keeps: Capabilities) -> bool:
    if isinstance(want, (int, float)) and isinstance(have, (int, float)):
        # Results are exact where metrics are float32.
        return bool(_number(have, Capabilities()) == _number(want, msgspec.structs.replace(keeps, single=False)))
    return bool(name_floats(want) == name_floats(have))


def _number(value: Any, keeps: Capabilities) -> Any:
    import numpy as np

    number = nearest_double(value)
    if keeps.single:
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
    if keeps.finite and math.isinf(number):
        number = math.copysign(sys.float_info.max, number)
    return "NaN" if number != number else number


NATIVE_INTEGERS = range(-(2**63), 2**64)


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """One destination.

    machine, wish: where it has samples of the machine, and where the user wants them
        (:func:`trackers.formats.vendor_system_names.placed`).
    single: numbers of metrics are float32; results are exact.
    finite: ±inf becomes ±the largest double. wide: integers beyond 64 bits are kept (as doubles at least); else
        skipped, in settings text. once: points of one metric with the same value and step are one where they are of
        one "moment", a millisecond, or of one "step". last: a metric has one value at a step, the last.
    units: of which tracker the samples of the machine have the units there; "" for their own. samples: whether they
        are told from what else has no step.
    axis: what has a step metric lies at that one's value.
    stepless: the step of metrics without one: kept as none, "zero", the "last" step before, or the "top" one so far.
    texts, config, results, tags, files: whether it has them. media: the types that come back as what they were.
    statuses: how runs end there; what it has no word for becomes the word given here.
    """

    machine: Placement = "all"
    wish: str = "machine"
    single: bool = False
    finite: bool = False
    wide: bool = True
    once: Literal["", "moment", "step"] = ""
    last: bool = False
    axis: bool = False
    stepless: Literal["kept", "zero", "last", "top"] = "kept"
    units: Literal["", "mlflow", "trackio"] = ""
    samples: bool = True
    texts: bool = True
    config: bool = True
    results: bool = True
    tags: bool = True
    files: bool = True
    media: frozenset[str] = frozenset({"image", "audio", "video", "table", "histogram", "html"})
    statuses: dict[str, str] = {}


KEEPS: dict[str, Capabilities] = {
    "": Capabilities(),
    "wandb": Capabilities(machine="training", once="step", statuses={"crashed": "failed"}),
    "mlflow": Capabilities(machine="apart", finite=True, once="moment", axis=True, stepless="zero", units="mlflow"),
    "trackio": Capabilities(machine="apart", wide=False, units="trackio"),
    "tensorboard": Capabilities(
        machine="apart",
        single=True,
        axis=True,
        stepless="last",
        files=False,
        media=frozenset({"image", "audio", "histogram"}),
    ),
    # It names files, and holds none.
    "json": Capabilities(stepless="top", samples=False, once="step", files=False, media=frozenset()),
    "csv": Capabilities(files=False, config=False, tags=False, media=frozenset()),
}
"""By tracker; "" is a directory of our own."""
