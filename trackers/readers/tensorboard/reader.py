"""TensorBoard's event files, ours and those of torch, TensorFlow, tensorboardX and Keras; without TensorFlow.

A run is a directory with event files; a directory of such names all of them. Scalars come as they lie there, in
single precision: one event with several tags is one record. What a later session superseded (a ``SessionLog`` that
starts at a lower step) is left out. Files are read as far as they are whole.
"""

from __future__ import annotations

import bisect
import copy
import glob
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trackers.errors import NotFound
from trackers.formats import vendor_system_names
from trackers.formats.tensorboard_event import SECOND_KIND, unframe
from trackers.journal.run_directory import RunDirectory
from trackers.readers import helpers
from trackers.readers.boundary import TolerantReader, bounded
from trackers.readers.reader import Reader, SourceRun
from trackers.records import (
    SUMMARY_PREFIX,
    Alert,
    Config,
    Environment,
    Finish,
    Info,
    Media,
    Metrics,
    Record,
    Summary,
    Text,
    merge,
    unnamed_float,
)

CHUNK_BYTES = 4 << 20
FRAME_BYTES = 16
"""Around each record: its length, and two checksums (tensorflow/core/lib/io/record_writer.h)."""

FRAME_MOST = 256 << 20
"""No record that claims more is read: it would be in memory at once."""

_SESSION_LOG = 0x3A
"""The byte before an Event's ``session_log``: field 7, of bytes (tensorflow/core/util/event.proto)."""
_SESSION_BYTES = 200


def frames(path: Path, note: Callable[[str], None] | None) -> Iterator[bytes]:
    """The records of a file, up to its torn tail or its first damage.

    Args:
        note: called with one line where there is damage; None: checksums aren't looked at.
    """
    waiting, at, read_bytes = b"", 0, CHUNK_BYTES
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while chunk := file.read(read_bytes):
            waiting += chunk
            used = 0
            try:
                for frame in unframe(waiting) if note is not None else _unchecked(waiting):
                    used += len(frame) + FRAME_BYTES
                    yield frame
            except ValueError:
                if note is not None:
                    note(f"{path.name} is damaged at byte {at + used:,}; what lies before is read")
                return
            waiting = waiting[used:]
            at += used
            declared = int.from_bytes(waiting[:8], "little") + FRAME_BYTES if len(waiting) >= 8 else 0
            if declared > FRAME_MOST:
                if note is not None:
                    note(f"{path.name} is damaged at byte {at:,}: a record claims {declared:,} bytes")
                return
            if at + declared > size:  # of a file that is still written, so much is there now
                return
            read_bytes = max(CHUNK_BYTES, declared - len(waiting))


def _unchecked(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + FRAME_BYTES <= len(data):
        end = at + FRAME_BYTES + int.from_bytes(data[at : at + 8], "little")
        if end > len(data):
            return
        yield data[at + 12 : end - 4]
        at = end


def events(paths: Sequence[Path], note: Callable[[str], None]) -> Iterator[Any]:
    """The events of a run's files, one after the other.

    Args:
        note: called with one line where a file is damaged.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    for path in paths:
        for frame in frames(path, note):
            try:
                yield Event.FromString(frame)
            except DecodeError:
                note(f"{path.name} is damaged: a record is no event; what lies before is read")
                break


def session_starts(paths: Sequence[Path]) -> tuple[list[int], list[int]]:
    """Where in the order of all events sessions start, and from which step on each takes back what came before."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    numbers: list[int] = []
    steps: list[int] = []
    number = 0
    for path in paths:
        for frame in frames(path, None):
            if len(frame) < _SESSION_BYTES and _SESSION_LOG in frame:  # few have it, and decoding costs most
                try:
                    event = Event.FromString(frame)
                except DecodeError:
                    continue
                if event.HasField("session_log") and event.session_log.status == event.session_log.START:
                    numbers.append(number)
                    steps.append(event.step)
            number += 1
    for index in range(len(steps) - 2, -1, -1):  # the lowest step of all later sessions counts
        steps[index] = min(steps[index], steps[index + 1])
    return numbers, steps


def purged(starts: tuple[list[int], list[int]], number: int, step: int) -> bool:
    """Whether a later session took back this step of an event."""
    numbers, steps = starts
    index = bisect.bisect_right(numbers, number)
    return index < len(steps) and step >= steps[index]


PATTERN = "*tfevents*"
OURS = "trackers:"
"""The model's address in sessions of ours: their group name is a run's."""
REPEATED = 1 << 20
_CREATED = re.compile(r"tfevents\.(\d+)")
_STATUS = re.compile(r"(finished|failed|crashed|preempted|stopped)(?: \(exit code (-?\d+)\))?(?:: (.*))?", re.DOTALL)
_ALERT = re.compile(r"\*\*(\w+)\*\* (.*?)\n\n(.*)", re.DOTALL)
_SECTION = re.compile(r"#### (\w+)\n\n(.*)", re.DOTALL)
ABOUT = "trackers/run"
"""Our tracker's tag for what it knows of a run: texts under headings."""
SECTIONS = ("configuration", "info", "environment", "results")
"""Of those texts, the ones that are JSON."""


@bounded
class TensorboardReader(Reader):
    """Reads directories of event files."""

    scheme = "tb"
    needs = ("tensorboard", "numpy")
    embeds = True

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`. Also a single event file, and patterns (``runs/*``)."""
        base = _base(Path(where).expanduser())
        paths = helpers.find_paths(
            self.scheme, where, lambda directory: sorted({file.parent for file in directory.rglob(PATTERN)})
        )
        runs = helpers.those_of(paths, lambda path: _source_run(path, base.resolve()))
        return sorted(runs, key=lambda run: run.created, reverse=True)

    def version(self, run: SourceRun) -> str:
        """See :class:`trackers.readers.reader.Reader`."""
        return helpers.version(_files(helpers.path(run)))

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`. Images and sounds lie inside event files: see ``files``."""
        paths = _files(helpers.path(run))
        if not paths:
            raise NotFound(f"tb: no event files in {helpers.path(run)}")
        if files is not None:
            run.directory = str(files)
        return EventTranslation(run, None if files is None else _keeper(files)).records(paths)


def _keeper(files: Path) -> Callable[[bytes, str], str]:
    """Puts media into a directory, by their content."""

    def keep(content: bytes, format: str) -> str:
        name = f"{hashlib.sha256(content).hexdigest()[:32]}.{format}"
        if not (files / name).exists():
            (files / name).write_bytes(content)
        return name

    return keep


class EventTranslation:
    """One pass over a run's events. The first event of a tag decides its type.

    Args:
        keep: puts a medium's content, in a format, where it is kept, and answers with its path; None: media are left
            out that lie in files.
    """

    def __init__(self, run: SourceRun, keep: Callable[[bytes, str], str] | None) -> None:
        self._run, self._keep = run, keep
        self._plugins: dict[str, tuple[str, bytes]] = {}
        self._configured = False
        self._config: Any = None
        self._environment: dict[str, Any] = {}
        self._grouped = False
        self._end: Finish | None = None

    def records(self, paths: list[Path]) -> Iterator[Record]:
        from google.protobuf.message import DecodeError

        starts = session_starts(paths)
        tolerant = TolerantReader(self._run, "events", (DecodeError,))
        for number, event in enumerate(events(paths, self._note)):
            if event.HasField("summary") and not purged(starts, number, event.step):
                yield from tolerant.read(self.event(event))
        tolerant.add_note()
        if self._end is not None:
            yield self._end

    def _note(self, text: str) -> None:
        self._run.note = text

    def event(self, event: Any) -> Iterator[Record]:
        """The records of an event that has a summary."""
        values: dict[str, Any] = {}
        samples: dict[str, Any] = {}
        others: list[Record] = []
        for value in event.summary.value:
            if value.metadata.summary_description == SECOND_KIND:
                value.tag = value.metadata.display_name
            kind = value.WhichOneof("value")
            if kind == "simple_value" and value.metadata.summary_description == vendor_system_names.SAMPLE:
                samples[vendor_system_names.ungrouped(value.tag)] = value.simple_value
            elif kind == "simple_value":
                self._scalar(value.tag, value.simple_value, event, values, others)
            elif kind is None and value.metadata.plugin_data.plugin_name == "hparams":
                others.extend(self._hparams(value.metadata.plugin_data.content, event))  # as torch writes them
            elif kind == "tensor":
                self._tensor(value, event, values, others)
            elif kind == "histo":
                others.append(_histogram(value.tag, _legacy(value.histo), event))
            elif kind == "image" and self._keep is not None:
                others.append(self._media(value.tag, "image", [value.image.encoded_image_string], event))
            elif kind == "audio" and self._keep is not None:
                others.append(self._media(value.tag, "audio", [value.audio.encoded_audio_string], event))
        if samples:
            yield Metrics(time=event.wall_time, values=samples)
        if values:
            yield Metrics(step=event.step, time=event.wall_time, values=values)
        yield from others

    def _scalar(self, tag: str, number: Any, event: Any, values: dict[str, Any], others: list[Record]) -> None:
        if tag.startswith(SUMMARY_PREFIX):
            others.append(Summary(time=event.wall_time, values={tag: number}))
        elif tag in values:  # the same tag twice in one event
            others.append(Metrics(step=event.step, time=event.wall_time, values={tag: number}))
        else:
            values[tag] = number

    def _tensor(self, value: Any, event: Any, values: dict[str, Any], others: list[Record]) -> None:
        if value.metadata.plugin_data.plugin_name or value.tag not in self._plugins:  # TF1 writes it once for each tag
            data = value.metadata.plugin_data
            self._plugins[value.tag] = (data.plugin_name, data.content)
        plugin, content = self._plugins[value.tag]
        strings = list(value.tensor.string_val)
        if plugin == "text" or (not plugin and strings):
            for text in strings:
                others.extend(self._text_records(value.tag, text.decode("utf-8", "replace"), event))
        elif plugin == "images":
            if self._keep is not None and len(strings) > 2:  # width, height, then the pictures
                others.append(self._media(value.tag, "image", strings[2:], event))
        elif plugin == "audio":
            if self._keep is not None:
                sounds = strings[::2] if len(value.tensor.tensor_shape.dim) == 2 else strings
                others.append(self._media(value.tag, "audio", sounds, event))
        elif plugin == "histograms":
            others.append(_histogram(value.tag, _array(value.tensor), event))
        elif plugin == "hparams":
            others.extend(self._hparams(content, event))
        elif plugin == "pr_curves":
            others.append(_pr_curve(value.tag, _array(value.tensor), event))
        elif not strings:
            array = _array(value.tensor)
            if array.size == 1 and array.dtype.kind in "fiub":
                self._scalar(value.tag, array.reshape(()).item(), event, values, others)

    def _text_records(self, tag: str, text: str, event: Any) -> Iterator[Record]:
        """A text; what our tracker keeps as one comes back as what it was."""
        at: dict[str, Any] = {"step": event.step, "time": event.wall_time}
        own = tag.removeprefix("trackers/") if tag.startswith("trackers/") else ""
        if tag == ABOUT and (section := _SECTION.fullmatch(text)):
            own, text = section[1], section[2]
        if own in SECTIONS and (value := _block(text)) is not None:
            yield from self._section_records(own, value, event.wall_time)
        elif own == "status" and (match := _STATUS.fullmatch(text)):
            code = int(match[2]) if match[2] else None
            self._end = Finish(time=event.wall_time, status=match[1], exit_code=code, reason=match[3] or "")
        elif own in ("alert", "alerts") and (match := _ALERT.fullmatch(text)):
            yield Alert(title=match[2], text=match[3], level=match[1], **at)
        elif own == "artifact" or own.startswith("artifacts/"):
            return  # a description: TensorBoard keeps no files
        elif tag.startswith(SUMMARY_PREFIX):
            result = _block(text)
            yield Summary(time=event.wall_time, values={tag: text if result is None else result})
        else:
            yield Text(values={tag: text}, **at)

    def _section_records(self, section: str, value: Any, time: float) -> Iterator[Record]:
        """What our tracker knows of a run, under one of :data:`SECTIONS`."""
        if section == "configuration":
            self._configured = True
            if value != self._config:  # the end repeats it
                self._config = value
                yield Config(time=time, values=value)
        elif section == "environment":
            if isinstance(value, dict) and merge(copy.deepcopy(self._environment), value) != self._environment:
                merge(self._environment, value)
                yield Environment(time=time, values=value)
        elif section == "results":
            yield Summary(time=time, values={k: unnamed_float(v) for k, v in value.items()})
        else:
            fields = {name: value[name] for name in ("name", "group", "tags", "notes") if name in value}
            self._grouped = self._grouped or "group" in fields
            yield Info(time=time, **fields)

    def _hparams(self, content: bytes, event: Any) -> Iterator[Record]:
        """The configuration that ``add_hparams`` and Keras keep; ours lies in a text, with its nesting."""
        from tensorboard.plugins.hparams import plugin_data_pb2

        data = plugin_data_pb2.HParamsPluginData.FromString(content)
        started = data.session_start_info
        if started.group_name and started.model_uri != OURS and self._run.group is None:
            yield Info(time=event.wall_time, group=started.group_name)
        if started.hparams and not self._configured:
            kinds = {name: value.WhichOneof("kind") for name, value in started.hparams.items()}
            plain = {name: getattr(started.hparams[name], kind) for name, kind in kinds.items() if kind}
            if self._grouped:
                plain.pop("group", None)
            yield Config(time=event.wall_time, values=plain)

    def _media(self, tag: str, kind: str, contents: list[bytes], event: Any) -> Media:
        from trackers.records import MediaFile

        assert self._keep is not None
        items = []
        for content in contents:
            format = _format(content)
            items.append(MediaFile(format=format, file=self._keep(content, format)))
        return Media(name=tag, type="video" if items and items[0].format == "gif" else kind, items=items,
                     step=event.step, time=event.wall_time)  # fmt: skip


def _histogram(tag: str, triples: Any, event: Any) -> Media:
    """A histogram of rows (left edge, right edge, count)."""
    from trackers.records import MediaFile

    edges = [*triples[:, 0].tolist(), float(triples[-1, 1])] if len(triples) else [0.0]
    counts = [int(count) if float(count).is_integer() else float(count) for count in triples[:, 2].tolist()]
    item = MediaFile(format="json", data={"counts": counts, "edges": edges})
    return Media(name=tag, type="histogram", items=[item], step=event.step, time=event.wall_time)


def _pr_curve(tag: str, rows: Any, event: Any) -> Media:
    """A precision-recall curve: a table of recall and precision, as W&B takes it.

    Args:
        rows: per threshold (in columns) true and false positives and negatives, precision and recall.
    """
    from trackers.records import MediaFile

    points = sorted(
        ([recall, precision] for precision, recall in rows[-2:].T.tolist() if recall or precision),
        key=lambda point: (point[0], -point[1]),
    )
    item = MediaFile(format="json", data={"columns": ["recall", "precision"], "rows": points})
    return Media(name=tag, type="table", items=[item], step=event.step, time=event.wall_time)


def _legacy(histogram: Any) -> Any:
    """A HistogramProto as rows: its buckets have right edges only, the outermost ones infinite ones."""
    import numpy as np

    rows: list[tuple[float, float, float]] = []
    left = histogram.min
    for right, count in zip(histogram.bucket_limit, histogram.bucket, strict=False):
        if count > 0 or rows:
            rows.append((left, min(right, histogram.max) if right > histogram.max else right, count))
        left = max(right, histogram.min)
    while rows and rows[-1][2] == 0:
        rows.pop()
    return np.array(rows, np.float64).reshape(-1, 3)


def _array(tensor: Any) -> Any:
    """A tensor's values. One value may stand for all, as for a tensor of zeros; not for more than a few.

    Raises:
        ValueError: its shape claims more values than it has.
    """
    from tensorboard.util import tensor_util

    declared = math.prod(dimension.size for dimension in tensor.tensor_shape.dim)
    stored = max(len(tensor.tensor_content), *(len(value) for field, value in tensor.ListFields()
                                             if field.name.endswith("_val")), 0)  # fmt: skip
    if declared > max(stored, REPEATED) or any(dimension.size < 0 for dimension in tensor.tensor_shape.dim):
        raise ValueError(f"a tensor claims {declared:,} values")
    return tensor_util.make_ndarray(tensor)


def _block(text: str) -> Any:
    """The JSON of a code block, or None."""
    if not text.startswith("    "):
        return None
    try:
        return json.loads("\n".join(line.removeprefix("    ") for line in text.split("\n")))
    except ValueError:
        return None


def _format(content: bytes) -> str:
    for start, format in ((b"\x89PNG", "png"), (b"\xff\xd8", "jpg"), (b"GIF8", "gif"), (b"RIFF", "wav")):
        if content.startswith(start):
            return format
    return "bin"


def _files(path: Path) -> list[Path]:
    """Event files in the order in which they were begun: by name, which begins with a time, as TensorBoard does."""
    files = (file for file in path.glob(PATTERN) if file.is_file())
    # Two writers of one process that begin in the same second are told apart by a count: ….9, ….10
    parts = {file: enumerate(re.split(r"([0-9]{1,30})", file.name)) for file in files}
    named = {file: [int(part) if index % 2 else part for index, part in split] for file, split in parts.items()}
    return [path] if path.is_file() else sorted(named, key=lambda file: named[file])


def _base(path: Path) -> Path:
    """The directory that names of runs are relative to: of a pattern, what stands before it."""
    while glob.has_magic(str(path)):
        path = path.parent
    return path


def _source_run(path: Path, base: Path) -> SourceRun:
    """The run of a directory. One that lies in a run of ours has its name."""
    paths = _files(path)
    for file in paths:
        helpers.check_size(file)
    match = _CREATED.search(paths[0].name) if paths else None
    created = float(match[1]) if match else path.stat().st_mtime
    own = next(
        (directory for directory in (path.parent, path.parent.parent) if (directory / "run.json").exists()), None
    )
    if own is not None:
        info = RunDirectory(own).read_info()
        return SourceRun(source=f"tb:{path}", id=info.id, name=info.name, project=info.project, created=info.created)
    is_below = path != base and path.is_relative_to(base)
    name = str(path.relative_to(base)) if is_below else path.name
    return SourceRun(source=f"tb:{path}", id=helpers.identity(path), name=name, project=base.name if is_below else "",
                     created=created)  # fmt: skip
