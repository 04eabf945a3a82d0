"""Records: the only thing that passes between sources, trackers and analysis.

One record is one line of a stream: JSON with the field ``kind``. Non-finite numbers are the strings
``"NaN"``, ``"Infinity"``, ``"-Infinity"``; once read they are floats again. Unknown fields are ignored and
unknown kinds are skipped by :func:`decode`, so that an older reader can follow a newer writer.

``time`` is Unix seconds. ``step`` is the number of finished optimizer steps, or None where a record has none.
``id``, ``seq`` and ``trained`` are in no stream: a reader sets the first two. ``id`` names the record for ever
(``"rank-0.1:8192@1763688000.123"``: stream, byte offset, and time, should somebody cut the stream and another record
take the place); ``seq`` is its place, from 1, in the order one delivery chose; ``trained``: see :func:`on_axis`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Union

import msgspec

from trackers.support.interruption import pass_on

Number = Union[float, int, bool]

TIME_MAX = 253402300799.0
"""The last second of the year 9999, the last that Python's calendar knows."""

Time = Annotated[float, msgspec.Meta(ge=-TIME_MAX, le=TIME_MAX)]
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""What a record may say: a line beyond is none, as a damaged one. Who reads one calculates without a second look."""

DEPTH = 200
"""Mappings and lists in one another: what is nested more deeply no program wrote, and Python can hardly walk it."""

USED = "used_artifacts"
"""Name in a run's configuration of the versions of artifacts that it used: ``{"dataset": "digits/dataset:v3"}``."""

EDITS = "edits"
"""The kind of stream that changes made from outside of training are in: one for the whole run, whatever attempt."""
SUMMARY_PREFIX = "final/"
"""Metric names that begin so are results: recorded once, never a time series."""


SYSTEM_PREFIX = "system."
"""Names of samples of the machine beside training, which have no step (docs/hardware.md)."""

MAX_STEP = 2**53 - 1
"""Largest step, and -MAX_STEP the smallest. A double holds it (JSON in W&B's and trackio's pages, ``global_step``), and
64-bit integers hold it with room to count on for ever (W&B's ``_step``, MLflow's BIGINT, TensorBoard, SQLite).
"""


class Record(msgspec.Struct, tag_field="kind", omit_defaults=True, kw_only=True):
    step: Whole | None = None
    time: Time
    id: str = ""
    seq: int = 0
    trained: Whole | None = None


class Start(Record, tag="start"):
    """A process began to write this stream. First record of each stream.

    ``from_step``: this attempt supersedes what earlier attempts logged above that step (a rewind). ``until``: the
    latest time that earlier attempts had noted when this one began; None where they had this one's clock. ``boot_id``,
    ``pid_namespace`` and ``pid_start`` tell, of a rank, whether its process still lives. ``world_size``: 0 where the
    source doesn't say it. ``axis``: the highest one of the records up to ``from_step`` (:func:`on_axis`); ``axes``: the
    last one of each metric that has another; ``since``: what was logged later over one isn't up to it.
    ``run``: ``run.json`` without the configuration, should that file be lost.
    """

    attempt: Whole = 1
    rank: Whole | None = None
    world_size: Whole = 1
    node: Whole = 0
    host: str = ""
    pid: Whole = 0
    pid_start: Time = 0.0
    boot_id: str = ""
    pid_namespace: str = ""
    from_step: Whole | None = None
    until: Time | None = None
    axis: Whole | None = None
    axes: dict[str, Whole] = {}
    since: Time | None = None
    version: int = 1
    run: dict[str, Any] = {}

    @property
    def cut(self) -> float:
        """What earlier attempts logged later than this, by their own clock, doesn't belong to the run."""
        return self.time if self.until is None else self.until


class Config(Record, tag="config"):
    """Configuration values, nested as the user gave them; later records override earlier ones, key by key.

    whole: a mapping replaces the earlier value of its name, instead of being merged into it (:func:`merge`).
    """

    values: dict[str, Any]
    whole: bool = False


class Metrics(Record, tag="metrics", gc=False):
    """Numbers at a step. Names are flat; nested mappings were joined with "/". axis: see :func:`on_axis`. over: those
    of the names that are step metrics, where there is an axis.

    What it holds can form no cycle, so the garbage collector needn't walk over the many that a reader makes.
    """

    values: dict[str, Number]
    axis: Whole | None = None
    over: tuple[str, ...] = ()


class Text(Record, tag="text"):
    """Text at a step, by name. axis: see :func:`on_axis`.

    lists: names of those that were logged as lists or arrays, and are their JSON text (:func:`listed`).
    """

    values: dict[str, str]
    axis: Whole | None = None
    lists: list[str] = []


class MediaFile(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One image, sound, video, table or histogram.

    file: path relative to the run's directory, or "" where everything is in ``data``.
    format: how the file is encoded: npy, png, jpg, gif, wav, mp4, json, html, …
    data: small payloads inline: a histogram's ``{"counts": [n], "edges": [n + 1]}``, a table's
        ``{"columns": [...], "rows": [[...]]}`` (larger tables lie in ``file``, format json, same shape).
    width, height: pixels. sample_rate: Hz. fps: frames per second.
    """

    format: str
    file: str = ""
    data: Any = None
    caption: str | None = None
    width: Size | None = None
    height: Size | None = None
    sample_rate: Size | None = None
    fps: float | None = None
    meta: dict[str, Any] = {}


class Media(Record, tag="media"):
    """One or several media of one type under one name. type: image, audio, video, table, histogram, html.

    axis: see :func:`on_axis`. result: it was set as a result, not logged; trackers that can't hold such keep it at the
    step. listed: one that was given in a list.
    """

    name: str
    type: str
    items: list[MediaFile]
    axis: Whole | None = None
    result: bool = False
    listed: bool = False


class ArtifactFile(msgspec.Struct, omit_defaults=True, kw_only=True):
    """path: name inside the artifact. file: relative to the run's directory; "" for a mere reference (uri)."""

    path: str
    file: str = ""
    uri: str = ""
    size: Size = 0
    digest: str = ""


class ArtifactRecord(Record, tag="artifact"):
    """Files kept with the run. type: "model", "dataset", "file", …; a checkpoint is of type "model".

    version: its number among the project's artifacts of this name (:mod:`trackers.artifacts`); None where none could
    be taken, and of records of earlier releases. versioned: False for files that are no artifact (``run.save``).
    link: the collection of a registry that it is linked to, as the script gave it (``wandb-registry-model/zoo``), or
    ""; name is the collection's then, source the name under which the linked artifact was logged. tags: those of its
    metadata that aren't the script's own metadata.
    """

    name: str
    type: str = "file"
    files: list[ArtifactFile] = []
    aliases: list[str] = []
    description: str | None = None
    metadata: dict[str, Any] = {}
    version: Whole | None = None
    versioned: bool = True
    link: str = ""
    source: str = ""
    tags: list[Any] = []


def files_of(record: Record) -> list[str]:
    """Paths of the files that a record names, relative to the run's directory."""
    if isinstance(record, Media):
        return [item.file for item in record.items if item.file]
    return [part.file for part in record.files if part.file] if isinstance(record, ArtifactRecord) else []


class Summary(Record, tag="summary"):
    """Results of the run, by the name the user gave (see :func:`final_name`). The last value of a name counts.

    derived: computed from what was logged (:mod:`trackers.metrics.summary`), as an attempt ended or went back. lists:
    as those of :class:`Text`. removed: names that are no results any more, before ``values`` are taken
    (:func:`take_results`). by_word: metrics whose results by word are among the values, as ``define_metric`` makes
    them: ``acc`` of ``acc.min`` and ``acc.max``, or of ``acc`` where one word is asked for. so_far: where training went
    back and definitions ask for results: what the values that count come to, as in :class:`Define`. media: where
    training went back: those that are results again (:class:`Media`). within: names that are of values in mappings from
    here on, and the mapping's: ``{"a/q": "a"}`` of ``{"a": {"q": 1}}``, but not of ``{"a/q": 1}``.
    """

    values: dict[str, Any]
    derived: bool = False
    lists: list[str] = []
    removed: list[str] = []
    by_word: list[str] = []
    so_far: dict[str, dict[str, Number]] | None = None
    media: list[Media] = []
    within: dict[str, str] = {}


class Define(Record, tag="define"):
    """Definition of a metric. name may be a glob; summary: min, max, mean, first, last, best, none, copy.

    It adds to the earlier definitions of the name, or with ``overwrite`` replaces them
    (:mod:`trackers.metrics.definitions`). step_sync: None: if there is a step metric. so_far: of metrics whose summary
    it asks for and that were logged before: first, last, min, max, sum and count of their values, by name.
    """

    name: str
    step_metric: str | None = None
    summary: list[str] = []
    goal: str | None = None
    hidden: bool = False
    step_sync: bool | None = None
    overwrite: bool = False
    so_far: dict[str, dict[str, Number]] = {}


class Alert(Record, tag="alert"):
    """A message to the people who watch the run. level: INFO, WARN, ERROR.

    rule, key: of one that a rule raised (:mod:`trackers.alerts.rules`): which one, and what it raised it for.
    """

    title: str
    text: str = ""
    level: str = "INFO"
    rule: str = ""
    key: str = ""

    def line(self) -> str:
        """Level, title and text as a log shows them."""
        return f"{self.level}: {self.title}" + (f": {self.text}" if self.text else "")


class Info(Record, tag="info"):
    """A change of the run's own attributes. None: unchanged.

    undoes: the time of the edit that this one takes back, or that of the undo that it makes undone; 0: neither.
    """

    name: str | None = None
    group: str | None = None
    tags: list[str] | None = None
    notes: str | None = None
    undoes: Time = 0.0

    def changes(self) -> dict[str, Any]:
        """The attributes that it changes, by name."""
        values = {name: getattr(self, name) for name in ("name", "group", "tags", "notes")}
        return {name: value for name, value in values.items() if value is not None}


class Environment(Record, tag="environment"):
    """Environment of the run, gathered outside of the training process: git, packages, hardware."""

    values: dict[str, Any]


INTERRUPTED = 130
"""Exit code of a process that an interrupt ended, as shells and Python give it: 128 + SIGINT."""


class Finish(Record, tag="finish"):
    """The end of an attempt.

    status: finished, failed, crashed, preempted, stopped. leaving: its process was ending when this was written, by
    itself and not by ``finish``: the exit code that it then had may tell otherwise.
    """

    status: str
    exit_code: Whole | None = None
    reason: str = ""
    leaving: bool = False


class RankColumns(Record, tag="columns"):
    """Columns of a rank's rows, by number: names and kinds of reductions (``trackers.reductions``)."""

    number: int
    names: list[str]
    kinds: list[str]


class RankRow(Record, tag="row"):
    """A rank's contribution to values across ranks at a step; only in the ranks' own streams.

    step: None where the call gave none and only the main rank counts. values: the parts of the reductions that
    ``columns`` names, one after the other; all parts of a value that isn't there are None.
    """

    columns: int
    values: list[float | None]


class Console(Record, tag="console"):
    """Lines that a process of training wrote, escape sequences removed and secrets masked.

    ``time`` is that of the first line that was taken together with these; after: seconds from then to each line, where
    that isn't 0. stream: "stdout", "stderr", or "output" for a file that both go to. rank: None for the main one.
    partial: none of the lines has ended yet (a progress bar): what follows in the same source repeats them as they are
    then. left_out: bytes of the source before these lines that are kept nowhere. source, end: which of the rank's
    sources it is, and where in it the lines after these begin.

    No part of :data:`KINDS`: a tracker names it among what it accepts.
    """

    lines: list[str] = []
    after: list[float] = []
    stream: str = "stdout"
    rank: Whole | None = None
    partial: bool = False
    left_out: Size = 0
    source: str = ""
    end: Size = 0


class Span(Record, tag="span"):
    """A call that has ended: of an evaluation, a language model, a tool. ``time`` is when it ended, ``step`` that of
    training then.

    trace: 32 hexadecimal digits, which all spans of one tree share. span: its own id, 16 of them. parent: that of the
    span around it; "" for the root. began: Unix seconds. type: llm, tool, retriever, …, or "". status: ok or error,
    with the exception in ``error``. attributes: by name, as OpenTelemetry's.

    No part of :data:`KINDS`: a tracker names it among what it accepts.
    """

    name: str
    trace: str
    span: str
    began: Time
    parent: str = ""
    type: str = ""
    status: str = "ok"
    error: str = ""
    inputs: Any = None
    outputs: Any = None
    attributes: dict[str, Any] = {}

    @property
    def start(self) -> float:
        """When it began; when it ended, where the record says no time before that."""
        return self.began if 0 <= self.began <= self.time else self.time

    @property
    def seconds(self) -> float:
        """How long it took, 0 or more."""
        return self.time - self.start


KINDS: tuple[type[Record], ...] = (
    Start, Config, Metrics, Text, Media, ArtifactRecord, Summary, Define, Alert, Info, Environment, Finish,
)  # fmt: skip
"""Kinds of record that trackers receive."""
ALL_KINDS: frozenset[type[Record]] = frozenset(KINDS)

_AnyRecord = Union[
    Start, Config, Metrics, Text, Media, ArtifactRecord, Summary, Define, Alert, Info, Environment, Finish,
    RankColumns, RankRow, Console, Span,
]  # fmt: skip
# Not strict, so that "NaN" and "Infinity" become floats where a number is expected.
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_AnyRecord, strict=False)


class _Kind(msgspec.Struct):
    kind: str = ""


_kind_decoder = msgspec.json.Decoder(_Kind)
_encoder = msgspec.json.Encoder(decimal_format="number")
encode_lines: Callable[[list[Any]], bytes] = _encoder.encode_lines
"""Encodes several records whose numbers are all finite, each as a line; the quick way. See :func:`encode`.

It takes a list: of any other sequence msgspec 0.22 never lets go when a value can't be encoded, and a tensor holds the
graph that it was calculated by."""
_KNOWN = frozenset(kind.__struct_config__.tag for kind in KINDS) | {
    Console.__struct_config__.tag,
    Span.__struct_config__.tag,
}


class CorruptLine(ValueError):
    """A complete line that isn't a record."""


def on_axis(record: Record) -> list[Record]:
    """A record as a tracker with one axis gets it: at its ``axis``, if it has one. The step metric itself stays at the
    step: over its own values it would be a diagonal.

    ``axis`` is the place of the step metric that ``define_metric`` gave (:mod:`trackers.metrics.axes`). A start that
    goes back keeps both: what lies at the step counts up to ``from_step``, what lies at an axis up to ``axis``. A part
    at its axis has training's step as ``trained``, and stays there when it is placed again.
    """
    axis = getattr(record, "axis", None)
    if axis is None or isinstance(record, Start):
        return [record]
    placed = msgspec.structs.replace(record, step=axis, axis=None, trained=record.step)
    if not isinstance(record, Metrics) or not record.over:
        return [placed]
    own = {name: value for name, value in record.values.items() if name in record.over}
    others = {name: value for name, value in record.values.items() if name not in own}
    parts = ((msgspec.structs.replace(record, axis=None), own), (placed, others))
    return [msgspec.structs.replace(part, over=(), values=values) for part, values in parts if values]


def set_id(record: Record, stream: str, offset: int) -> None:
    """Set the ``id`` of a record from its position in a stream."""
    record.id = f"{stream}:{offset}@{record.time!r}"


def offset_of(record: Record) -> int:
    """Where in its stream a record begins."""
    return int(record.id.rpartition(":")[2].partition("@")[0])


def decode(line: bytes) -> Record | None:
    """One line (without its newline) as a record, or None if its kind isn't known here.

    Raises:
        CorruptLine: the line isn't JSON, or not a record, or nested more deeply than :data:`DEPTH`.
    """
    try:
        record: Record = _decoder.decode(line)
        if type(record) in _NESTED:
            check_record(record)
        return record
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            kind = _kind_decoder.decode(line).kind
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            kind = ""
        if kind and kind not in _KNOWN:
            return None
        raise CorruptLine(str(error)) from None


def decode_block(block: bytes) -> list[Record]:
    """All records of a block of whole lines; three times as quick as line by line.

    Raises:
        CorruptLine: a line isn't a record, or is of an unknown kind: :func:`decode` tells which.
    """
    try:
        decoded = _decoder.decode_lines(block)
        for record in decoded:
            if type(record) in _NESTED:
                check_record(record)
        return decoded
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptLine(str(error)) from None


def encode(record: Record) -> bytes:
    """One line, newline included, that :func:`decode` reads. Non-finite numbers anywhere in the record are kept as
    strings; what JSON can't hold, or is nested too deeply, is kept as text (see :func:`storable`)."""
    if type(record) is Metrics and not _all_finite(record.values):
        named = {name: name_floats(value) for name, value in record.values.items()}
        record = Metrics(step=record.step, time=record.time, values=named, axis=record.axis, over=record.over)
    try:
        if type(record) in _NESTED:
            check_record(record)
        line = _line(record)
        if type(record) not in _SURE:
            _decoder.decode(line)
    except (TypeError, ValueError, RecursionError) as error:  # msgspec's own, and Python's where text can't be encoded
        pass_on(error)
        line = _line(sound(record))
    return line + b"\n"


def _line(record: Record) -> bytes:
    line = _encoder.encode(record)
    if b"null" in line:  # msgspec writes NaN and infinities as null
        line = _encoder.encode(_with_named_floats(msgspec.structs.asdict(record), type(record)))
    return line


_SURE = frozenset({Metrics, Text, RankRow, RankColumns, Config, Summary, Environment})
"""Records whose fields hold what the package itself put there, or anything: a line of them can always be read."""


_NESTED = frozenset({Start, Config, Media, ArtifactRecord, Summary, Environment, Span})
"""Records with a field that may hold anything, nested as deeply as somebody likes."""


def escaped(text: str) -> str:
    """Text as it can be written: a plain ``str``, lone surrogates (of file names that aren't UTF-8) as ``\\udce9``.

    Those under which Python gives UTF-8 where the locale says ASCII become the characters that they stand for.
    """
    text = str.__str__(text)
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


def storable(value: Any, depth: int = 0) -> Any:
    """The same value as JSON holds it: text escaped, numbers plain, any other object by its ``str`` or its type."""
    if value is None or type(value) in (bool, float):
        return value
    if isinstance(value, str):
        return escaped(value)
    try:
        if isinstance(value, int):
            whole = int.__index__(value)
            return whole if whole.bit_length() <= _LARGEST_BITS else hex(whole)
        if isinstance(value, float):
            return float.__float__(value)
        if isinstance(value, (dict, list, tuple)) and depth < _DEEPEST:
            if isinstance(value, dict):
                return {str(storable(str(key))): storable(item, depth + 1) for key, item in value.items()}
            return [storable(item, depth + 1) for item in value]
        if isinstance(value, msgspec.Struct):
            return sound(value)
        if hasattr(type(value), "__index__"):
            return storable(int(value))
        if hasattr(type(value), "__float__"):
            return float(value)
        return escaped(str(value))
    except Exception as error:
        pass_on(error)
        return f"<{type(value).__name__}>"


_ANY, _OF_TIME, _OF_WHOLE, _OF_SIZE = (-math.inf, math.inf), (-TIME_MAX, TIME_MAX), (-(2**63), 2**63 - 1), (0, 2**53)
_BOUNDS: dict[Any, tuple[float, float]] = {
    int | None: _ANY, int: _ANY, float | None: _ANY, Time: _OF_TIME, Time | None: _OF_TIME,
    Whole: _OF_WHOLE, Whole | None: _OF_WHOLE, Size: _OF_SIZE, Size | None: _OF_SIZE,
}  # fmt: skip
"""Types of fields that hold a number, with the least and the largest that they hold."""
_LARGEST_BITS = 14_000
"""Integers of more bits can't be written in decimal: Python refuses above 4,300 digits."""
_DEEPEST = 100


def sound(record: Any) -> Any:
    """The same record, or other structure, with fields as their types say, and nothing in it that JSON can't hold.
    What is no number becomes the field's default; a time that has none, that of the record; that of the record, 0."""
    fields: dict[str, Any] = {}
    moment = record.time if is_time(getattr(record, "time", None)) else 0.0
    for field in msgspec.structs.fields(record):
        value = storable(getattr(record, field.name))
        if field.type in (str, str | None) and not isinstance(value, str) and value is not None:
            value = escaped(str(value))
        elif field.type in (list[str], list[str] | None) and isinstance(value, list):
            value = [item if isinstance(item, str) else escaped(str(item)) for item in value]
        elif (bounds := _BOUNDS.get(field.type)) and not (
            isinstance(value, (int, float)) and bounds[0] <= value <= bounds[1]
        ):
            none = moment if field.type == Time else 0
            value = none if field.default is msgspec.NODEFAULT else field.default
        fields[field.name] = value
    return type(record)(**fields)


def _all_finite(values: dict[str, Number]) -> bool:
    try:  # one addition finds NaN and infinities; finite sums that overflow only cost time
        return math.isfinite(sum(values.values()))
    except OverflowError:  # an integer too large for a float beside a float
        return all(math.isfinite(value) for value in values.values() if isinstance(value, float))


def _with_named_floats(fields: dict[str, Any], kind: type[Record]) -> dict[str, Any]:
    defaults = {
        f.name: f.default if f.default_factory is msgspec.NODEFAULT else f.default_factory()
        for f in msgspec.structs.fields(kind)
    }
    named: dict[str, Any] = {"kind": kind.__struct_config__.tag}
    for name, value in fields.items():
        if name not in ("id", "seq") and value != defaults.get(name, msgspec.NODEFAULT):
            named[name] = name_floats(value)
    return named


def is_time(value: Any) -> bool:
    """Whether a number is a time that a calendar knows."""
    number = double(value)
    return number is not None and abs(number) <= TIME_MAX


def double(value: Any) -> float | None:
    """A number as a float; None for truth values, integers that no float holds, and what is no number."""
    try:
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    except OverflowError:
        return None


def nearest_double(value: Number) -> float:
    """A number as the nearest float: an infinity for an integer beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def finite(value: Any) -> float | None:
    """As :func:`double`; None for NaN and infinities, too."""
    number = double(value)
    return number if number is not None and math.isfinite(number) else None


FLOAT_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Strings that stand for what JSON has no number for."""


def unnamed_float(value: Any) -> Any:
    """The float that a string of :data:`FLOAT_NAMES` stands for; anything else as it is."""
    return FLOAT_NAMES.get(value, value) if type(value) is str else str(value) if isinstance(value, str) else value


def name_floats(value: Any) -> Any:
    """The same value with NaN and infinities as the strings the journal uses, at any depth."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: name_floats(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [name_floats(item) for item in value]
    if isinstance(value, msgspec.Struct):
        return {key: name_floats(item) for key, item in msgspec.to_builtins(value).items()}
    return value


def unname_floats(value: Any) -> Any:
    """The same value with the floats that strings of :data:`FLOAT_NAMES` stand for, at any depth: no words."""
    if isinstance(value, dict):
        return {key: unname_floats(item) for key, item in value.items()}
    if not isinstance(value, list):
        return unnamed_float(value)
    words = are_words(value)
    return [item if words and isinstance(item, str) else unname_floats(item) for item in value]


def are_words(values: Iterable[Any]) -> bool:
    """Whether ``NaN`` is a text in a list or a column: other texts are beside it, and no numbers."""
    kinds = {type(value) for value in values if not isinstance(value, str) or value not in FLOAT_NAMES}
    return str in kinds and not kinds & {int, float}


def is_sample(record: Record) -> bool:
    """Whether the hardware sampler wrote this record: it says nothing of training itself."""
    return record.id.startswith("sampler-")


def final_name(name: str) -> str:
    """A result's name in the ``final/`` namespace: both ``best`` and ``final/best`` give ``final/best``."""
    return name if name.startswith(SUMMARY_PREFIX) else SUMMARY_PREFIX + name


def plain_name(name: str) -> str:
    """A result's name without ``final/``."""
    return name.removeprefix(SUMMARY_PREFIX)


def take_results(into: dict[str, Any], record: Summary, named: Callable[[str], str] = plain_name) -> dict[str, Any]:
    """Have results follow a record, in place, and return them.

    Args:
        named: how they are called in ``into``.
    """
    for name in record.removed:
        into.pop(plain_name(name), None)
        into.pop(final_name(name), None)
    into.update((named(name), value) for name, value in record.values.items())
    return into


def merge(into: dict[str, Any], values: dict[str, Any], whole: bool = False) -> dict[str, Any]:
    """Merge nested ``values`` into ``into`` key by key, in place, and return it: how Config records add up.

    whole: each value replaces the one of its name, mappings too.
    """
    for key, value in values.items():
        if not whole and isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value
    return into


def check_depth(value: Any) -> None:
    """See that mappings and lists aren't nested in one another more deeply than :data:`DEPTH`.

    Raises:
        RecursionError: they are.
    """
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEPTH:
            raise RecursionError(f"nested more than {DEPTH} levels deep")
        level = [
            item for container in level for item in _inner(container) if isinstance(item, (dict, list, msgspec.Struct))
        ]


def check_record(record: Record) -> None:
    """See that no field of a record is nested more deeply than :data:`DEPTH`.

    Raises:
        RecursionError: one is.
    """
    for nested in ("values", "metadata", "items", "run", "inputs", "outputs", "attributes"):
        check_depth(getattr(record, nested, None))


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, msgspec.Struct):
        return (getattr(value, name) for name in value.__struct_fields__)
    return value if isinstance(value, list) else ()


def flatten(values: dict[str, Any], separator: str = "/", prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of a nested mapping, their keys joined. An empty mapping is a leaf."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from flatten(value, separator, name + separator)
        else:
            yield name, value
