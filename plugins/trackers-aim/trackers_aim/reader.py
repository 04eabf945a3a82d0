"""Aim's stores on disk: what Aim 3 wrote below ``.aim``. Read with aimrocks, Aim's RocksDB, and without Aim itself.

A source is a directory with ``.aim``, one of many such, or a run: ``DIRECTORY/HASH``. Aim's own code isn't used: when
it opens a store it locks it, compacts it and deletes a damaged index, and it reads keys without a look at their length.

A metric has a context there, a mapping. ``{"subset": "train"}`` is ``train/loss`` here, others stand behind the name:
``loss/fold=1``. What Aim sampled of the machine has no step and W&B's names. An epoch that was given is a metric
``epoch`` at the same step. Points come ordered by time.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import NotFound
from trackers.formats import vendor_system_names
from trackers.readers import helpers
from trackers.readers.boundary import TolerantReader, bounded
from trackers.readers.reader import Reader, SourceRun
from trackers.records import (
    Alert,
    ArtifactFile,
    ArtifactRecord,
    Config,
    Environment,
    Finish,
    Media,
    MediaFile,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
)
from trackers.support import confined
from trackers_aim import tree
from trackers_aim.store import FOLDER, PROPERTIES, AimDatabase, Properties, open_store
from trackers_aim.tree import Node

RUNS = "meta/chunks"
SYSTEM = "__system__"
GPU = {"gpu": "gpu", "gpu_memory_percent": "memoryAllocated", "gpu_power_watts": "powerWatts", "gpu_temp": "temp"}
"""aim/ext/resource/stat.py, and W&B's names of the same."""
NUMBERS = ("int", "float", "float64", "number")
PARAMETERS = "__system_params"
OURS, FINAL = "trackers", "final"
"""Parameters in which this package's own tracker keeps what Aim has no field for, and results."""
VARIABLES = "env_variables"
"""Variables of the environment: they hold passwords."""
EPOCH = "epoch"
LOGGED, TERMINAL = "aim.log_record", "aim.log_line"
TYPES = {"q": ("int64", "uint64"), "d": ("float64",), "f": ("float32",), "i": ("int32",)}
MOST_BINS = 1 << 16

_Point = tuple[float, Any, str, Any, Any]
"""time, step, name, value, epoch"""


@bounded
class AimReader(Reader):
    """Reads directories of Aim."""

    scheme = "aim"
    needs = ("aimrocks",)
    embeds = True

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`. A directory stands for the stores below it."""
        path = Path(where).expanduser()
        run = path.parent / FOLDER / RUNS / path.name
        paths = helpers.find_paths(
            self.scheme, str(run) if where and not path.exists() and run.is_dir() else where, _run_directories
        )
        stores: dict[Path, Properties] = {}
        return sorted(helpers.those_of(paths, lambda path: _source_run(path, stores)), key=_created, reverse=True)

    def version(self, run: SourceRun) -> str:
        """See :class:`trackers.readers.reader.Reader`."""
        root, name = Path(run.native["root"]), run.id
        folders = (root / RUNS / name, root / "seqs/chunks" / name)
        written = [path for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_file()]
        return helpers.version([*written, *(path for path in (root / PROPERTIES,) if path.is_file())])

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`. Pictures and sounds lie in the database: see ``files``."""
        if files is not None:
            run.directory = str(files)
        yield from _Reading(run, files).records()


def _created(run: SourceRun) -> float:
    return run.created


def _run_directories(directory: Path) -> list[Path]:
    """The directories of runs that a directory means: of its store, of the stores below it, or itself."""
    if directory.parent.name == "chunks" and directory.parent.parent.name == "meta":
        return [directory]
    stores = [directory] if (directory / RUNS).is_dir() else sorted(directory.rglob(FOLDER))
    return [run for store in stores if (store / RUNS).is_dir() for run in sorted((store / RUNS).iterdir())]


def _source_run(path: Path, stores: dict[Path, Properties]) -> SourceRun:
    root, name = path.parents[2], path.name
    if not (path.parent.name == "chunks" and path.is_dir()):
        raise NotFound(f"aim: {path} is no run of Aim's")
    if root not in stores:
        stores[root] = Properties(root)
    known = stores[root].of(name)
    with open_store(path, root) as store:
        end = store.leaf("meta", "chunks", name, "end_time")
        ours = _own_attributes(
            tree.grow(Node(), store.items(tree.key("meta", "chunks", name, "attrs", OURS)), lambda name: None)
        )
    created = known.get("created")
    return SourceRun(
        source=f"aim:{path}",
        id=name,
        name=known.get("name") or name,
        project=known.get("experiment") or "",
        tags=known.get("tags", []),
        notes=known.get("description") or None,
        created=created if created is not None else path.stat().st_mtime,
        group=ours.get("group"),
        status="running" if end is None else ours.get("status", "finished"),
        native={"root": str(root)},
    )


class _Reading:
    """One reading of one run."""

    def __init__(self, run: SourceRun, files: Path | None) -> None:
        self._run, self._files = run, files
        self._root = Path(run.native["root"])
        self._names: dict[str, tuple[int, str]] = {}
        self._spared = TolerantReader(run)
        self._others: Counter[str] = Counter()
        self._time = run.created

    def records(self) -> Iterator[Record]:
        run, root = self._run, self._root
        directory = root / RUNS / run.id
        if not directory.is_dir():
            raise helpers.gone_error("aim", directory)
        yield Start(time=run.created, rank=0)
        with open_store(directory, root) as store:
            about = tree.grow(Node(), store.items(tree.key("meta", "chunks", run.id)), lambda name: None)
            contexts = tree.grow(Node(), store.items(tree.key("meta", "contexts")), lambda name: None)
            contexts.update(_node(about, "contexts"))
        attributes = tree.to_builtins(_node(about, "attrs"))
        parameters = attributes.pop(PARAMETERS, None)
        ours = _own_attributes(attributes.get(OURS))
        results = attributes.pop(FINAL, None) if ours else None
        if ours:
            del attributes[OURS]
        if attributes:
            yield Config(time=run.created, values=attributes)
        if isinstance(parameters, dict):
            parameters.pop(VARIABLES, None)
            yield Environment(time=run.created, values=parameters)
        for name, node in _node(about, "artifacts").items():
            yield from self._spared.read(self._artifact(str(name), tree.to_builtins(node)), f"artifact {name}")
        traces = [
            (context, name, node)
            for context, names in _node(about, "traces").items()
            for name, node in (names if isinstance(names, Node) else {}).items()
            if isinstance(context, int) and isinstance(name, str)
        ]
        if (root / "seqs/chunks" / run.id).is_dir():
            with open_store(root / "seqs/chunks" / run.id, root) as store:
                yield from self._series(store, traces, contexts)
        self._spared.add_note()
        left = ", ".join(f"{count:,} of {kind}" for kind, count in sorted(self._others.items()))
        if left:
            remark = f"not read: {left}"
            run.note = f"{run.note}; {remark}" if run.note else remark
        end = about.get("end_time")
        unasked = ours.get("results")
        results = {
            **(results if isinstance(results, dict) else {}),
            **(unasked if isinstance(unasked, dict) else {}),
        }
        if results:
            yield Summary(time=self._time if end is None else end, values=results)
        if end is not None:
            code = ours.get("exit_code")
            yield Finish(time=end, status=ours.get("status", "finished"), exit_code=code, reason=ours.get("reason", ""))

    def _artifact(self, name: str, about: dict[str, Any]) -> Iterator[Record]:
        """A reference: Aim keeps such files elsewhere."""
        file = ArtifactFile(path=confined.parts(str(about["path"]))[-1], uri=str(about["uri"]))
        known = about.get(OURS)
        if not isinstance(known, dict):
            yield ArtifactRecord(name=name, files=[file], time=self._time)
            return
        file.path = name.removeprefix(f"{known['name']}/")
        fields = {field: known[field] for field in ("aliases", "description", "metadata") if known.get(field)}
        yield msgspec.convert({"kind": "artifact", "name": known["name"], "type": known["type"], "time": known["time"],
                               "files": [file], **fields}, ArtifactRecord)  # fmt: skip

    def _series(self, store: AimDatabase, traces: list[tuple[Any, Any, Any]], contexts: Node) -> Iterator[Record]:
        numbers: list[list[_Point]] = []
        media = []
        for context, name, about in traces:
            kind = str(_node({"": about}, "").get("dtype", "float"))
            full_name = self._name(name, context, tree.to_builtins(_node(contexts, context)))
            if kind in NUMBERS:
                found = [*self._spared.read(self._points(store, context, name, full_name), full_name)]
                of_machine = isinstance(name, str) and name.startswith(SYSTEM)
                numbers.append([(point[0], None, *point[2:]) for point in found] if of_machine else found)
            else:
                media.append((context, name, full_name, kind))
        yield from _rows(heapq.merge(*numbers, key=_order))
        for context, name, full_name, kind in media:
            yield from self._spared.read(self._media(store, context, name, full_name, kind), full_name)

    def _name(self, name: str, context: Any, about: dict[str, Any]) -> str:
        """A metric's name with its context; that of no other."""
        if name.startswith(SYSTEM):
            field = name.removeprefix(SYSTEM)
            device = about.get("gpu")
            own = field if device is None else f"gpu.{device}.{GPU.get(field, field)}"
            full_name = vendor_system_names.ungrouped(own)
        else:
            subset = about.get("subset")
            named = isinstance(subset, str) and subset != ""
            behind = [f"/{key}={item}" for key, item in sorted(about.items()) if key != "subset" or not named]
            full_name = (f"{subset}/" if named else "") + name + "".join(behind)
        if self._names.setdefault(full_name, (context, name)) != (context, name):
            full_name = f"{name}/context={context}"
        return full_name

    def _points(self, store: AimDatabase, context: int, name: str, full_name: str) -> Iterator[_Point]:
        """The points of a metric, by time."""
        columns = self._columns(store, ("v2", "chunks"), context, name)
        steps = columns.get("step")
        if not columns.get("val"):  # of Aim before 3.11, where the key is the step
            columns = self._columns(store, ("chunks",), context, name)
            steps = {at: _number(at) for at in columns.get("val", ())}
        times, epochs = columns.get("time", {}), columns.get(EPOCH, {})
        points = []
        for at, value in columns.get("val", {}).items():
            if helpers.is_number(value):
                points.append((self._at(times.get(at)), (steps or {}).get(at), full_name, value, epochs.get(at)))
        yield from sorted(points, key=_order)

    def _at(self, time: Any) -> float:
        return float(time) if helpers.is_number(time) else self._run.created

    def _columns(
        self, store: AimDatabase, where: tuple[str, ...], context: int, name: str
    ) -> dict[str, dict[bytes, Any]]:
        """Columns of a series: leaves by what is their keys' last part."""
        columns: dict[str, dict[bytes, Any]] = {}
        for key, data in store.items(tree.key("seqs", *where, self._run.id, context, name)):
            column, _, at = key.partition(b"\xfe")
            if len(at) == tree.NUMBER_BYTES and data:
                columns.setdefault(column.decode(), {})[at] = tree.value(data)
        return columns

    def _media(self, store: AimDatabase, context: int, name: str, full_name: str, kind: str) -> Iterator[Record]:
        """Texts, pictures, sounds and histograms, step by step."""
        times: dict[bytes, float] = {}
        prefix = tree.key("seqs", "chunks", self._run.id, context, name)
        for key, data in store.items(prefix + tree.key("time")):
            times[key] = self._at(tree.value(data))
        values_key = prefix + tree.key("val")
        by_step = itertools.groupby(store.items(values_key), key=lambda item: item[0][: tree.NUMBER_BYTES])
        for at, items in by_step:
            if len(at) < tree.NUMBER_BYTES:
                continue
            inner = ((key[tree.NUMBER_BYTES :], data) for key, data in items)
            node = tree.grow(Node(), inner, lambda key, at=at: store.blob(values_key + at + key))  # type: ignore[misc]
            self._time = times.get(at, self._time)
            yield from self._item(node, full_name, _number(at), kind)

    def _item(self, node: Node, name: str, step: int, kind: str) -> Iterator[Record]:
        several = [item for item in node.values() if isinstance(item, Node)] if node.kind == tree.LIST else [node]
        texts = [item for item in several if item.kind == "aim.text"]
        for item in texts:
            yield Text(step=step, time=self._time, values={name: str(item.get("data"))})
        for type_name, make in (("image", self._image), ("audio", self._audio), ("histogram", self._histogram)):
            of_kind = [item for item in several if item.kind == _KINDS[type_name]]
            if not of_kind or (self._files is None and type_name != "histogram"):
                continue
            yield Media(name=name, type=type_name, items=[make(item) for item in of_kind], step=step, time=self._time)
        known = {"aim.text", TERMINAL, *_KINDS.values()}
        for item in several:
            if item.kind == LOGGED:
                yield Alert(time=self._time, title=str(item.get("message")), level=_level(item.get("log_level")))
            elif item.kind not in known:
                self._others[item.kind or kind] += 1

    def _image(self, item: Node) -> MediaFile:
        image = self._media_file(item, str(item.get("format")))
        image.width, image.height = item.get("width"), item.get("height")
        return image

    def _audio(self, item: Node) -> MediaFile:
        return self._media_file(item, str(item.get("format")))

    def _media_file(self, item: Node, ending: str) -> MediaFile:
        """A file with an object's content, below the directory for files."""
        content = item.get("data")
        if not isinstance(content, bytes) or not ending.isalnum() or len(ending) > 8:
            raise ValueError(f"a file of format {ending[:40]!r} without content")
        assert self._files is not None
        name = f"{hashlib.sha256(content).hexdigest()[:32]}.{ending}"
        if not (self._files / name).exists():
            (self._files / name).write_bytes(content)
        return MediaFile(format=ending, file=name, caption=str(item.get("caption") or "") or None)

    def _histogram(self, item: Node) -> MediaFile:
        content, kind, span = item.get("data"), str(item.get("dtype")), tree.to_builtins(item.get("range"))
        code = next((code for code, names in TYPES.items() if kind in names), None)
        if code is None or not isinstance(content, bytes) or not isinstance(span, list) or len(span) != 2:
            raise ValueError(f"a distribution of type {kind[:40]!r}")
        counts = array(code, content).tolist()
        low, high = span
        if not 0 < len(counts) <= MOST_BINS or not math.isfinite(low) or not math.isfinite(high):
            raise ValueError(f"a distribution of {len(counts):,} bins")
        width = (high - low) / len(counts)
        edges = [*(low + width * number for number in range(len(counts))), high]
        return MediaFile(format="json", data={"counts": counts, "edges": edges})


_KINDS = {"image": "aim.image", "audio": "aim.audio", "histogram": "aim.distribution"}


def _own_attributes(about: Any) -> dict[str, Any]:
    """What this package's tracker stores about a run; {} for a run of another program."""
    kinds = {"id": str, "group": str, "status": str, "reason": str, "exit_code": int, "results": dict}
    if not isinstance(about, dict) or not isinstance(about.get("id"), str) or about.get("status") not in _ENDS:
        return {}
    return {name: about[name] for name, kind in kinds.items() if isinstance(about.get(name), kind)}


_ENDS = (None, "running", "finished", "failed", "crashed", "preempted", "stopped")


def _node(node: dict[Any, Any], name: Any) -> Node:
    child = node.get(name)
    return child if isinstance(child, Node) else Node()


def _number(at: bytes) -> int:
    """A number in a key."""
    (number,) = tree.path(at)
    if not isinstance(number, int):
        raise ValueError(f"no step: {at!r}")
    return number


def _level(number: Any) -> str:
    """A level of Python's logging."""
    level = number if helpers.is_number(number) else 0
    return "ERROR" if level >= 40 else "WARN" if level >= 30 else "INFO"


def _order(point: _Point) -> tuple[float, float]:
    return point[0], point[1] if helpers.is_number(point[1]) else 0


def _rows(points: Iterable[_Point]) -> Iterator[Record]:
    """Points as records: those of one step and time are one record."""
    row: Metrics | None = None
    for time, at, name, value, epoch in points:
        if row is None or (row.step, row.time) != (at, time) or name in row.values:
            if row is not None:
                yield row
            row = Metrics(step=at, time=time, values={})
        row.values[name] = value
        if helpers.is_number(epoch):
            row.values.setdefault(EPOCH, epoch)
    if row is not None:
        yield row
