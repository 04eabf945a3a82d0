"""The contract between one kind of source and everything that reads runs: the mirror of ``trackers.tracker``.

A source is named ``scheme:where`` (``tb:runs/*``, ``wandb:entity/project``). Its reader answers two questions:
which runs are there, and what are a run's records. Records come in the source's own order, at full resolution,
with original names, steps and times; NaN and infinities are kept. Results are Summary records, configuration is
Config records, and the last record is a Finish where the source knows how the run ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec

from trackers.records import Media, Record
from trackers.support import plugins

REPEATED = "repeated"
"""In ``SourceRun.native``, once a run was read: results that its store has and that aren't told from the last values of
their metrics, by name; they aren't in a Summary record."""
PAUSES = "pauses"
"""The same: begin and end of the times between the run's attempts, in Unix seconds, where its store tells them."""


class SourceRun(msgspec.Struct, kw_only=True):
    """One run that a source names.

    source: the source that names this run alone (``"wandb:entity/project/4f9kq2ab"``).
    id: the run's id there. name: what people call it; may be shared by several runs.
    created: Unix seconds; 0.0 where the source doesn't say.
    status: one of our words (running, finished, failed, crashed, preempted, stopped), or "" where unknown.
    directory: what the ``file`` of media and artifacts is relative to; "" where there is none (yet).
    note: what a reader of the data must know, in one line ("sampled 500 of 12000"); "" if nothing.
    native: what the reader needs to find the run again; JSON values.
    """

    source: str
    id: str
    name: str = ""
    project: str = ""
    group: str | None = None
    tags: list[str] = []
    notes: str | None = None
    created: float = 0.0
    status: str = ""
    directory: str = ""
    note: str = ""
    native: dict[str, Any] = {}


class ServedMedia(Protocol):
    """Media of one run on a server: all are named, and each file is fetched when somebody looks at it.

    media: what ``read`` leaves out without ``files``. ``file`` of an item says where it lies below ``files``
    once it is fetched.
    """

    media: list[Media]

    def whole(self, record: Media, most_bytes: int) -> Media:
        """The record with what is shown beside files: captions, the content of tables.

        Raises:
            NotFound: a table isn't there, or has more than ``most_bytes``. Unavailable: the server can't be reached.
        """

    def fetch(self, record: Media, number: int, most_bytes: int) -> None:
        """Have the file of an item lie where it says.

        Args:
            number: of the item in the record.

        Raises:
            NotFound: it isn't there, or has more than ``most_bytes``. Unavailable: the server can't be reached.
        """

    def fetch_cell(self, path: str, most_bytes: int) -> None:
        """Have the file that a cell of a table names lie there. Raises as :meth:`fetch`."""


class Reader(ABC):
    """One kind of source. Constructed without arguments; may keep a client between calls; used from one thread.

    A class that has ``runs`` and ``read`` and doesn't derive from this one gets the defaults when it is loaded
    (:func:`trackers.readers.registry.load`).
    """

    scheme: ClassVar[str] = ""
    """What sources begin with: that of the entry point."""
    needs: ClassVar[Sequence[str]] = ()
    """Import names of the packages that it uses."""
    form: ClassVar[int] = 1
    """Of what ``read`` yields: another one than before makes void what was cached of such sources."""
    embeds: ClassVar[bool] = False
    """Whether its files hold pictures and sounds: ``trackers ui`` has those of a run that is looked at put beside."""

    @abstractmethod
    def runs(self, where: str) -> list[SourceRun]:
        """The runs that ``where`` (the source without its scheme) names, the newest first. Cheap: no history is read.

        Raises:
            NotFound: there are none; the message says what was looked for and what is there instead.
            UsageError: ``where`` can't be understood, or a login is missing.
        """

    @abstractmethod
    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """A run's records, complete, as far as it has got.

        Args:
            files: where to put media and artifact files that aren't on this machine's disk; ``run.directory`` is
                set to it. None: they are not fetched, and such records are left out.

        Raises:
            NotFound: the run has gone.
            Unavailable: a server can't be reached, after the pauses it asked for.
        """

    def version(self, run: SourceRun) -> str:
        """A word that differs once the run's content does (sizes and times of files, a server's last step and
        heartbeat), found cheaply. With it, what was read is cached as columns; "" where it can't be told."""
        return ""

    def served(self, run: SourceRun, files: Path) -> ServedMedia | None:
        """A run's media on a server, to be looked at one by one; None: there is none, or it lies on this machine."""
        return None

    def columns(self, run: SourceRun) -> tuple[list[Any], list[Record]] | None:
        """A run's metrics as columns (:class:`trackers.readers.columns.Block`) and its other records, where the source
        has them so; None: they are made from what ``read`` yields."""
        return None

    def section(self, runs: Sequence[SourceRun]) -> tuple[str, list[str]] | None:
        """What ``trackers report`` says of these runs of its kind besides: a heading, and lines of text."""
        return None

    def facts(self, run: SourceRun, version: str) -> bytes | None:
        """What a source keeps of a run for tables of many runs (:mod:`trackers.analysis.collect`), of this version of
        the format; None: it is found out by reading."""
        return None


def as_reader(scheme: str, cls: Any) -> type[Reader]:
    """A plug-in's class, with the defaults of :class:`Reader` if it doesn't derive from that.

    Raises:
        UsageError: it is no reader.
    """
    return plugins.implementation(Reader, f"the reader of {scheme!r}", cls)
