"""``init(sync_tensorboard=True)``: what a script gives to TensorBoard's writers is recorded with its run too.

The writers of torch, TensorBoard and tensorboardX pass every event through ``EventFileWriter.add_event``. From there an
event goes to the run, at the call: nothing waits in a buffer, whether the writer is closed or the process is killed.
TensorFlow writes its files outside of Python; their directories are read when the run ends.
Tags are the names, and the event's step and time are the record's.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from trackers.errors import reason
from trackers.records import SUMMARY_PREFIX, Config, Media, Metrics, Record, Summary, Text
from trackers.support.interruption import pass_on

WRITERS = {
    "tensorboard.summary.writer.event_file_writer": "EventFileWriter",
    "tensorboardX.event_file_writer": "EventFileWriter",
}
"""Where the writers are through which all events go, by module. Torch's ``SummaryWriter`` uses TensorBoard's."""
TENSORFLOW = "tensorflow.python.ops.gen_summary_ops"
"""Module of ``create_summary_file_writer``, which all of TensorFlow 2's writers call."""
SPLIT = ("train", "validation")
"""Directories that Keras makes in the one it is given; their names are prefixes, as in W&B."""

_lock = threading.Lock()
_taps: list[WriterTap] = []
_root: str | None = None


class WriterTap:
    """Records what TensorBoard's writers are given, until it is closed.

    Args:
        run: a run that records.
        root: the directory whose subdirectories are prefixes of tags; "" for that of the first writer.
    """

    def __init__(self, run: Any, root: str = "") -> None:
        self._recorder = run._recorder
        self._config = run.config
        self._root = os.path.abspath(root) if root else ""
        self._translations: dict[str, Any] = {}
        self._prefixes: dict[str, str] = {}
        self._folders: dict[str, dict[str, int]] = {}

    def take(self, event: Any, logdir: str) -> None:
        """Record a writer's event. What can't be recorded is reported once; nothing raises."""
        self._recorder.guard("sync_tensorboard", self._record_event, event, logdir)

    def begin(self, logdir: str) -> None:
        """A writer was made: the first one's directory is the root."""
        self._prefix(logdir)

    def take_under(self, event: Any, namespace: str) -> None:
        """Record an event whose tags get a prefix."""
        self._prefixes[namespace] = f"{namespace}/" if namespace else ""
        self._record_all(event, namespace)

    def records(self, run: Any) -> bool:
        """Whether it is this run's."""
        return run._recorder is self._recorder

    def follow(self, logdir: str) -> None:
        """Read the files that appear in a directory, or grow, when the run ends."""
        self._recorder.guard("sync_tensorboard", self._note, os.path.abspath(logdir))

    def close(self) -> None:
        """Read the directories of TensorFlow's writers, and take nothing more."""
        with _lock:
            if self in _taps:
                _taps.remove(self)
        for logdir, known in self._folders.items():
            self._recorder.guard("sync_tensorboard", self._read, logdir, known)

    def _record_event(self, event: Any, logdir: str) -> None:
        if not event.HasField("summary"):
            return
        values = event.summary.value
        if len(values) == 1 and values[0].WhichOneof("value") == "simple_value":  # the most of all, by far
            tag = values[0].tag
            if not tag.startswith(SUMMARY_PREFIX):
                number = {f"{self._prefix(logdir)}{tag}": shortest(values[0].simple_value)}
                self._recorder.take(Metrics(step=event.step, time=event.wall_time, values=number))
                return
        if type(event).__module__.partition(".")[0] != "tensorboard":  # tensorboardX has messages of its own
            from tensorboard.compat.proto.event_pb2 import Event

            event = Event.FromString(event.SerializeToString())
        self._record_all(event, logdir)

    def _record_all(self, event: Any, logdir: str) -> None:
        for record in self._records(event, logdir):
            match record:
                case Config():
                    self._config.update(record.values)
                case Summary():
                    self._recorder.summarize(record.values)
                case Metrics() | Text() | Media():
                    self._recorder.take(record)

    def _records(self, event: Any, logdir: str) -> Iterator[Record]:
        translation = self._translations.get(logdir)
        if translation is None:
            translation = self._translations[logdir] = self._translate(logdir)
        prefix = self._prefix(logdir)
        for record in translation.event(event):
            match record:
                case Metrics():
                    record.values = {f"{prefix}{name}": shortest(value) for name, value in record.values.items()}
                case Text():
                    record.values = {f"{prefix}{name}": text for name, text in record.values.items()}
                case Media():
                    record.name = f"{prefix}{record.name}"
            yield record

    def _translate(self, logdir: str) -> Any:
        from trackers.readers.reader import SourceRun
        from trackers.readers.tensorboard.reader import EventTranslation

        return EventTranslation(SourceRun(source=f"tb:{logdir}", id="", group=""), self._recorder.store().put)

    def _prefix(self, logdir: str) -> str:
        """What stands before a writer's tags: its directory below the root; "" outside of it."""
        prefix = self._prefixes.get(logdir)
        if prefix is None:
            whole = os.path.abspath(logdir)
            if not self._root:
                self._root = os.path.dirname(whole) if os.path.basename(whole) in SPLIT else whole
            inside = os.path.relpath(whole, self._root).replace(os.sep, "/")
            prefix = self._prefixes[logdir] = "" if inside == "." or inside.startswith("..") else f"{inside}/"
        return prefix

    def _note(self, logdir: str) -> None:
        if logdir not in self._folders:
            self._folders[logdir] = {str(path): path.stat().st_size for path in _event_files(logdir)}

    def _read(self, logdir: str, known: dict[str, int]) -> None:
        from trackers.readers.tensorboard.reader import events

        fresh = [path for path in _event_files(logdir) if str(path) not in known]
        for event in events(fresh, self._recorder.problem):
            self._record_event(event, logdir)


def begin(run: Any) -> None:
    """Record what TensorBoard's writers are given from now on, with this run, until it ends."""
    tap = WriterTap(run, _root or "")
    with _lock:
        _taps.append(tap)
    run.close_with(tap)
    run._recorder.guard("sync_tensorboard", _hook)


def patch(
    save: bool = True, tensorboard_x: bool | None = None, pytorch: bool | None = None, root_logdir: str = ""
) -> None:
    """W&B's ``tensorboard.patch``: the runs that begin from now on, and the current one, record what writers are given.

    Args:
        root_logdir: its subdirectories are prefixes of the tags of writers there.
        save, tensorboard_x, pytorch: as W&B takes them; every kind of writer is recorded.
    """
    global _root
    _root = os.fspath(root_logdir)
    with _lock:
        patched = bool(_taps)
    run = _current()
    if run is not None and not patched:
        run.record_tensorboard()


def _current() -> Any:
    start = sys.modules.get("trackers.training.init")
    return start.current() if start is not None else None


def unpatch() -> None:
    """Take nothing more from TensorBoard's writers."""
    global _root
    _root = None
    with _lock:
        _taps.clear()


def take_summary(summaries: Any, step: int, namespace: str = "") -> None:
    """Record a summary, an event, or encoded summaries, with the current run; ``wandb.tensorboard.log``.

    Args:
        step: of what isn't an event. namespace: what stands before the tags, with "/".
    """
    run = _current()
    if run is None or run.disabled or not run._recorder.is_main:
        return
    tap = next((tap for tap in tuple(_taps) if tap.records(run)), None) or WriterTap(run, os.sep)
    run._recorder.guard("tensorboard.log", _take_summary, tap, summaries, step, namespace)


def _take_summary(tap: WriterTap, summaries: Any, step: int, namespace: str) -> None:
    from tensorboard.compat.proto.event_pb2 import Event

    for summary in summaries if isinstance(summaries, (list, tuple)) else [summaries]:
        content = summary if isinstance(summary, (bytes, bytearray)) else summary.SerializeToString()
        if hasattr(summary, "summary"):
            event = Event.FromString(content)
        else:
            event = Event(step=int(step), wall_time=time.time())
            event.summary.ParseFromString(content)
        tap.take_under(event, namespace)


def is_patched() -> bool:
    """Whether :func:`patch` was called."""
    return _root is not None


def shortest(value: Any) -> Any:
    """A number in single precision as the shortest decimal that stands for it: 0.1 for 0.10000000149011612."""
    if type(value) is not float or value != value or value in (float("inf"), float("-inf")):
        return value
    for digits in (6, 7, 8):
        short = float(f"{value:.{digits}g}")
        try:
            if struct.unpack("<f", struct.pack("<f", short))[0] == value:
                return short
        except OverflowError:
            pass
    return value


def _event_files(logdir: str) -> list[Path]:
    return sorted(path for path in Path(logdir).glob("*tfevents*") if path.is_file())


def _hook() -> None:
    """Wrap the writers that are imported, and each other one when it is."""
    for name in (*WRITERS, TENSORFLOW):
        if name in sys.modules:
            _wrap(sys.modules[name])
    if not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())


def _wrap(module: ModuleType) -> None:
    if module.__name__ == TENSORFLOW:
        _wrap_tensorflow(module)
        return
    cls = getattr(module, WRITERS[module.__name__])
    original = cls.add_event
    if getattr(original, "tapped", False):
        return

    def add_event(self: Any, event: Any, *arguments: Any, **more: Any) -> Any:
        answer = original(self, event, *arguments, **more)
        for tap in tuple(_taps):
            tap.take(event, str(self.get_logdir()))
        return answer

    make = cls.__init__

    def __init__(self: Any, *arguments: Any, **more: Any) -> None:
        make(self, *arguments, **more)
        for tap in tuple(_taps):
            tap.begin(str(self.get_logdir()))

    add_event.tapped = True  # type: ignore[attr-defined]
    add_event.__doc__, __init__.__doc__ = original.__doc__, make.__doc__
    cls.add_event, cls.__init__ = add_event, __init__


def _wrap_tensorflow(module: ModuleType) -> None:
    original: Callable[..., Any] = module.create_summary_file_writer
    if getattr(original, "tapped", False):
        return

    def create_summary_file_writer(*arguments: Any, **more: Any) -> Any:
        directory: Any = more.get("logdir", arguments[1] if len(arguments) > 1 else None)
        logdir = directory.numpy().decode() if hasattr(directory, "numpy") else directory
        for tap in tuple(_taps):
            if isinstance(logdir, (str, os.PathLike)):
                tap.follow(os.fspath(logdir))
        return original(*arguments, **more)

    create_summary_file_writer.tapped = True  # type: ignore[attr-defined]
    module.create_summary_file_writer = create_summary_file_writer  # type: ignore[attr-defined]


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Wraps a module of writers as soon as it has been imported."""

    def __init__(self) -> None:
        self._loaders: dict[str, Any] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in WRITERS and name != TENSORFLOW:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None and spec.loader is not None:
                self._loaders[name] = spec.loader
                spec.loader = self
                return spec
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loaders[spec.name].create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        loader = self._loaders.pop(module.__name__)
        module.__loader__ = loader
        if module.__spec__ is not None:
            module.__spec__.loader = loader
        loader.exec_module(module)
        try:
            _wrap(module)
        except AttributeError as error:  # another version of it, which has no such class
            pass_on(error)
            for tap in tuple(_taps):
                tap._recorder.problem(
                    f"sync_tensorboard: writers of {module.__name__} aren't recorded: {reason(error)}"
                )
