"""Forks: a new run whose history begins as another run's, up to a step.

What the parent logged up to there that counts, its values, texts, media, definitions, results and settings, is written
into the new run as an attempt before its first: whatever reads a continued run reads a fork, and whatever counts
attempts doesn't count the parent's. Media are hard links where the file system has them. So the parent may be pruned,
and nothing that it logged above the step, and none of its alerts, artifacts, samples and printed lines, comes into the
fork.
"""

from __future__ import annotations

import heapq
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trackers import records
from trackers.errors import NotFound, UsageError
from trackers.journal.attempts import AttemptHistory
from trackers.journal.run_directory import RunDirectory, StreamName, is_run, project_folder
from trackers.journal.stream import StreamWriter
from trackers.records import Define, Media, Metrics, Record, Start, Summary, Text
from trackers.support import confined
from trackers.support.interruption import pass_on, suppress
from trackers.tracker import RunInfo
from trackers.training import resume as resumption

ATTEMPT = 0
"""Number of the attempt that holds what a fork has of its parent; its own first one is 1, as of any run."""
KEPT = (Metrics, Text, Media, Summary, Define)
"""Kinds of records that a fork has of its parent; the settings are its own, which :func:`inherit` makes."""
BATCH_BYTES = 1 << 20
CONFIG = "forked_from"
"""Name in the configuration, so that every tracker can filter and compare by it."""

_REFERENCE = re.compile(r"(?P<run>.+?)(?:@|\?_step=)(?P<step>[0-9]+)")


class ForkOrigin(NamedTuple):
    """What a run is forked from.

    Attributes:
        info: the parent's. step: the last one that the fork shares with it.
    """

    run: RunDirectory
    info: RunInfo
    history: AttemptHistory
    step: int

    @property
    def text(self) -> str:
        """``project/id@step``."""
        return f"{self.info.project}/{self.info.id}@{self.step}"


def find(reference: str, root: Path, project: str) -> ForkOrigin:
    """The run and step that ``init(fork_from=…)`` names.

    Args:
        reference: ``RUN@1200``, or in W&B's form ``RUN?_step=1200``, RUN being an id of this project, ``project/id`` or
            a run's directory; without a step, the last one that was logged.
        root: where runs lie. project: of the run that begins.

    Raises:
        NotFound: no such run. UsageError: it hasn't come so far, or its files are packed.
    """
    match = _REFERENCE.fullmatch(reference)
    name = match["run"] if match else reference
    place = next((path for path in _places(name, root, project) if is_run(path)), None)
    if place is None:
        raise NotFound(
            f"fork_from={reference!r}: no run {name!r} in {root / project_folder(project)}: give an id, project/id or "
            "a run's directory, and @STEP; `trackers ls` lists runs"
        )
    run = RunDirectory(place)
    if run.archived():
        raise UsageError(f"fork_from={reference!r}: its files are packed: trackers restore {run.quoted}")
    history = AttemptHistory(run)
    last = history.last_step()
    if last is None:
        raise UsageError(f"fork_from={reference!r}: nothing has been logged there at a step yet")
    step = int(match["step"]) if match else last
    if step > last:
        raise UsageError(f"fork_from={reference!r}: its last step is {last:,}")
    return ForkOrigin(run, run.read_info(), history, step)


def parent_of(reference: str) -> tuple[str, str]:
    """The project, or "" for this one's, and the id that a reference names; "" for a directory."""
    match = _REFERENCE.fullmatch(reference)
    project, _, name = (match["run"] if match else reference).rpartition("/")
    return (project, name) if confined.is_plain_name(name) and "/" not in project else ("", "")


def _places(name: str, root: Path, project: str) -> Iterator[Path]:
    if confined.is_plain_name(name):
        yield root / project_folder(project) / name
    parent, _, own = name.rpartition("/")
    if parent and confined.is_plain_name(own):
        yield root / project_folder(parent) / own
    yield Path(name).expanduser()


def inherit(info: RunInfo, origin: ForkOrigin) -> dict[str, Any]:
    """Give a fork its parent's settings, where it has none of its own. How its own differ from the parent's."""
    config = dict(origin.info.config)
    for record in resumption.configs(origin.history):
        records.merge(config, record.values, record.whole)
    config.pop(CONFIG, None)
    changed = resumption.differences(config, info.config)
    info.config = records.merge(records.unname_floats(config), info.config)
    info.config[CONFIG] = info.forked_from = origin.text
    first = origin.history.starts()[:1]
    info.attempts = [{"number": ATTEMPT, "time": first[0].time if first else info.created, "forked_from": origin.text}]
    return changed


def write(origin: ForkOrigin, run: RunDirectory) -> None:
    """Write what a fork has of its parent as its first attempt, in order of time.

    Raises:
        OSError: it can't be written.
    """
    writer = StreamWriter(run.stream(StreamName("rank", 0, ATTEMPT)), exclusive=True)
    made, block = [writer.path], bytearray()
    try:
        for record in _shared(origin):
            if isinstance(record, Media):
                made += _bring(record, origin.run, run)
            block += records.encode(_own(record))
            if len(block) >= BATCH_BYTES:
                _put(writer, block)
        _put(writer, block)
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise
    finally:
        writer.release()


def _shared(origin: ForkOrigin) -> Iterator[Record]:
    starts = origin.history.starts()
    if starts:
        first = starts[0]
        yield Start(time=first.time, attempt=ATTEMPT, rank=first.rank, world_size=first.world_size, host=first.host)
    yield from heapq.merge(*_streams(origin), key=lambda record: record.time)


def _streams(origin: ForkOrigin) -> Iterable[Iterator[Record]]:
    """Of each stream of training's own, what counts of it up to the step."""
    for name in origin.run.stream_names():
        if name.writer in ("rank", "reducer"):
            yield (
                record
                for record in origin.history.of(name)
                if isinstance(record, KEPT)
                and (record.step or 0) <= origin.step
                and not (
                    isinstance(record, Summary) and record.derived
                )  # of those that the fork has, others may follow
            )


def _own(record: Record) -> Record:
    """A record as a stream of another run has it."""
    record.id, record.seq = "", 0
    return record


def _put(writer: StreamWriter, block: bytearray) -> None:
    """Write lines, and empty the block."""
    writer.write(bytes(block))
    if not writer.healthy:
        raise writer.error or OSError(f"{writer.path} can't be written")
    block.clear()


def _bring(record: Media, source: RunDirectory, target: RunDirectory) -> list[Path]:
    """Bring a record's files; one that is gone by now is as one that was pruned. Those that are new here."""
    made = []
    for file in filter(confined.is_inside, records.files_of(record)):
        place = target.path / file
        with suppress(OSError):
            with confined.open_file(source.path / file, root=source.path):
                pass
            confined.make_folder(place.parent, root=target.path)
            with confined.pinned(source.path / file, root=source.path) as kept:
                if _link(kept, place):
                    made.append(place)
    return made


def _link(source: Path, target: Path) -> bool:
    """Whether the target wasn't there before."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        pass_on(error)
        shutil.copyfile(source, target, follow_symlinks=False)
    return True
