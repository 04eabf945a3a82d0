"""Contents of a destination after a delivery, its expected contents, and a description of the difference.

An author writes one function, the *reader*: it looks into the destination without the tracker's help (another
client, an SQL query, the vendor's loader) and answers with a :class:`Stored`. :class:`Limits` says which changes
the destination makes to values by its nature; everything else must come back as it was logged.
"""

from __future__ import annotations

import dataclasses
import json
import math
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from trackers.records import (
    Config,
    Info,
    Media,
    Metrics,
    Number,
    Record,
    Start,
    Summary,
    Text,
    flatten,
    is_sample,
    merge,
    name_floats,
    plain_name,
    take_results,
)
from trackers.tracker import RunInfo, Status, StatusName


class Point(NamedTuple):
    """One stored value of a metric. time: Unix seconds, None where the destination keeps none."""

    step: int | None
    value: Number
    time: float | None = None


@dataclasses.dataclass
class Stored:
    """A run's contents in the destination, as found by an independent reader.

    Names are as stored (``Limits.rename`` maps the logged name to them). What is None is not compared: the
    destination has no place for it, or the reader doesn't look.

    metrics: the time series by name, in the destination's own order.
    summary: results by name; ``final/`` before a name makes no difference.
    config: nested or flat; nested keys are joined with "/" before comparison.
    texts: (step, text) by name.
    tags, name, group: the run's own attributes.
    status: one of our words, or the destination's (see ``Limits.statuses``).
    """

    metrics: dict[str, list[Point]] = dataclasses.field(default_factory=dict)
    summary: dict[str, Any] | None = None
    config: dict[str, Any] | None = None
    texts: dict[str, list[tuple[int | None, str]]] | None = None
    tags: list[str] | None = None
    name: str | None = None
    group: str | None = None
    status: str | None = None


@dataclasses.dataclass(frozen=True)
class Limits:
    """Changes that a destination makes to values. Default: none.

    float32: numbers are rounded to single precision; what is too large for it becomes infinite.
    integers: "float" where every number is a double.
    big_integers: what becomes of integers outside 64 bits.
    infinity: "max_float" where ±Inf come back as the largest finite doubles.
    time_resolution_s: how far a time may be off; None where no times are kept.
    order: "step" where the destination sorts by step; the order within a step must stay.
    repeated: "last" where one step of one metric holds one value; "once" where a value that comes again while the step
        stays is the first one, if it equals that.
    rename: the logged metric name to the stored one; it must map no two names to one.
    keeps: which logged names the destination has a place for; None: all.
    config: "text" where every configuration value is stored as its ``str``.
    config_chars: configuration values longer than this may be cut, to no less than this.
    statuses: our status to the reader's word for it; None where the destination keeps none.
    """

    float32: bool = False
    integers: Literal["kept", "float"] = "kept"
    big_integers: Literal["kept", "float", "skipped"] = "kept"
    infinity: Literal["kept", "max_float"] = "kept"
    time_resolution_s: float | None = 1e-6
    order: Literal["arrival", "step"] = "arrival"
    repeated: Literal["kept", "last", "once"] = "kept"
    rename: Callable[[str], str] | None = None
    keeps: Callable[[str], bool] | None = None
    config: Literal["kept", "text"] = "kept"
    config_chars: int | None = None
    statuses: Mapping[str, str] | None = dataclasses.field(
        default_factory=lambda: {name: name for name in get_args(StatusName)}
    )

    def name(self, logged: str) -> str:
        """The name under which a metric is stored."""
        return self.rename(logged) if self.rename else logged

    def number(self, value: Number) -> Number | None:
        """A logged number as the destination stores it; None where it is skipped."""
        if isinstance(value, int) and not isinstance(value, bool):
            if not -(2**63) <= value < 2**64:
                if self.big_integers == "skipped":
                    return None
                if self.big_integers == "float":
                    value = float(value)
            elif self.integers == "float":
                value = float(value)
        if self.float32:
            value = _single(float(value))
        if isinstance(value, float) and math.isinf(value) and self.infinity == "max_float":
            value = math.copysign(sys.float_info.max, value)
        return value


def expected(info: RunInfo, records: Iterable[Record], limits: Limits, status: Status) -> Stored:
    """What a faultless tracker leaves behind after these records, each delivered once."""
    metrics: dict[str, list[Point]] = {}
    summary: dict[str, Any] = {}
    config: dict[str, Any] = {}
    texts: dict[str, list[tuple[int | None, str]]] = {}
    name, tags, group = info.name, info.tags, info.group
    for record in _once(records) if limits.repeated == "once" else records:
        match record:
            case Metrics():
                for metric, value in record.values.items():
                    number = limits.number(value) if limits.keeps is None or limits.keeps(metric) else None
                    if number is not None:
                        metrics.setdefault(limits.name(metric), []).append(Point(record.step, number, record.time))
            case Summary():
                take_results(summary, record)
            case Config():
                merge(config, record.values, record.whole)
            case Text():
                for key, text in record.values.items():
                    texts.setdefault(key, []).append((record.step, text))
            case Info():
                name, group = record.name or name, record.group or group
                tags = tags if record.tags is None else record.tags
    for metric, points in metrics.items():
        if limits.repeated == "last":
            points = list({point.step: point for point in points}.values())
        if limits.order == "step":
            points = sorted(points, key=lambda point: -1 if point.step is None else point.step)
        metrics[metric] = points
    word = limits.statuses[status.name] if limits.statuses is not None else None
    return Stored(metrics, summary, config, texts, tags, name, group, word)


def _once(records: Iterable[Record]) -> Iterator[Record]:
    """Records without the numbers and texts that equal the first one of their name since the step began."""
    step: int | None = None
    first: dict[str, Any] = {}
    for record in records:
        if isinstance(record, Start) and record.rank is not None:  # else of a helper's stream
            step = None
        if not isinstance(record, (Metrics, Text, Media)) or is_sample(record):
            yield record
            continue
        if record.step is None or record.step != step:
            step, first = record.step, {}
        if isinstance(record, Media):
            yield record
            continue
        values = {name: value for name, value in record.values.items() if not same(first.get(name), value)}
        first = {**record.values, **first}
        yield msgspec.structs.replace(record, values=values)


def differences(want: Stored, actual: Stored, limits: Limits, accepts: frozenset[type[Record]]) -> Iterator[str]:
    """Each way in which ``actual`` is not what it should be, as one line; kinds outside ``accepts`` aren't compared."""
    if Metrics in accepts:
        yield from _metrics(want.metrics, actual.metrics, limits)
    if Summary in accepts and actual.summary is not None:
        yield from _results(want.summary or {}, actual.summary, limits)
    if Config in accepts and actual.config is not None:
        yield from _config(want.config or {}, actual.config, limits)
    if Text in accepts and actual.texts is not None:
        for name, texts in (want.texts or {}).items():
            if actual.texts.get(name) != texts:
                yield f"text {name!r}: expected {_short(texts)}, found {_short(actual.texts.get(name))}"
    for attribute in ("name", "group", "status"):
        expected_value, got = getattr(want, attribute), getattr(actual, attribute)
        if expected_value is not None and got is not None and expected_value != got:
            yield f"{attribute}: expected {expected_value!r}, found {got!r}"
    if limits.statuses is not None and actual.status is None:
        yield f"status: expected {want.status!r}, found none (a destination without one: Limits(statuses=None))"
    if actual.tags is not None and sorted(actual.tags) != sorted(want.tags or []):
        yield f"tags: expected {want.tags!r}, found {actual.tags!r}"


def _results(want: Mapping[str, Any], actual: Mapping[str, Any], limits: Limits) -> Iterator[str]:
    stored = {plain_name(name): value for name, value in actual.items()}
    for name, value in want.items():
        value = limits.number(value) if isinstance(value, (int, float)) else value
        if name not in stored:
            yield f"result {name!r}: expected {value!r}, found nothing"
        elif not same(value, stored[name]):
            yield f"result {name!r}: expected {value!r}, found {stored[name]!r}"


def _metrics(want: Mapping[str, list[Point]], actual: Mapping[str, list[Point]], limits: Limits) -> Iterator[str]:
    missing = [name for name in want if name not in actual]
    extra = [name for name in actual if name not in want]
    if missing:
        yield f"metrics that are missing: {_short(missing)}" + (
            f"; unknown ones instead: {_short(extra)}" if extra else ""
        )
    elif extra:
        yield f"metrics that were never logged: {_short(extra)}"
    for name, points in want.items():
        if name in actual:
            line = _points(points, actual[name], limits)
            if line:
                yield f"metric {name!r}: {line}"


def _points(want: Sequence[Point], actual: Sequence[Point], limits: Limits) -> str:
    for index, (expected_point, got) in enumerate(zip(want, actual, strict=False)):
        if expected_point.step != got.step or not same(expected_point.value, got.value):
            return _counts(want, actual) + f"at place {index} expected {_point(expected_point)}, found {_point(got)}"
        resolution = limits.time_resolution_s
        if resolution is None or expected_point.time is None:
            continue
        if got.time is None or abs(got.time - expected_point.time) > resolution + 1e-6:
            return (
                f"at place {index} (step {got.step}) expected time {expected_point.time!r} within {resolution:g} s, "
                f"found {got.time!r}"
            )
    if len(want) != len(actual):
        index = min(len(want), len(actual))
        longer = want if len(want) > len(actual) else actual
        word = "missing" if longer is want else "not logged"
        return _counts(want, actual) + f"{word} from place {index} on: {_point(longer[index])}"
    return ""


def _config(want: Mapping[str, Any], actual: Mapping[str, Any], limits: Limits) -> Iterator[str]:
    stored = dict(flatten(dict(actual)))
    for name, value in flatten(dict(want)):
        if name not in stored:
            yield f"config {name!r}: expected {_short(value)}, found nothing"
            continue
        got = stored[name]
        if limits.config == "text":
            value, got = str(value), str(got)
        if same(name_floats(value), name_floats(got)):
            continue
        length = limits.config_chars
        if length is not None and len(str(value)) > length and str(got)[:length] == str(value)[:length]:
            continue
        yield f"config {name!r}: expected {_short(value)}, found {_short(got)}"


def same(left: Any, right: Any) -> bool:
    """Equal, with NaN equal to NaN and True equal to 1; containers are compared through JSON."""
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return left == right or (left != left and right != right)
    if isinstance(left, (dict, list, tuple)):
        return json.dumps(name_floats(left), sort_keys=True) == json.dumps(name_floats(right), sort_keys=True)
    return bool(left == right)


def _single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _counts(want: Sequence[Point], actual: Sequence[Point]) -> str:
    return f"expected {len(want)} points, found {len(actual)}; " if len(want) != len(actual) else ""


def _point(point: Point) -> str:
    return f"{point.value!r} at step {point.step}"


def _short(value: Any, length: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}… ({len(text)} characters)"
