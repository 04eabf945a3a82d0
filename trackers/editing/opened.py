"""``trackers.open(RUN)``: a run that exists, to be changed: its name, tags, notes, group, and results found later."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from trackers.editing import delivering, edits
from trackers.editing.edits import Attributes, as_tags
from trackers.errors import TrackersError, UsageError
from trackers.journal.messages import Message, show
from trackers.journal.naming import find_run
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import observe
from trackers.readers.journal import JournalReader
from trackers.readers.run_data import RunData
from trackers.records import plain_name, storable
from trackers.support.redaction import mask
from trackers.values.coerce import Unrecordable, number


def open(run: str | Path, *, dir: str | Path | None = None) -> OpenedRun:
    """Open a run of ours, finished or going on, to change its name, tags, notes or group, or to add results.

    Args:
        run: as commands take it: an id, a name, ``project/id``, ``latest``, or a directory.
        dir: where runs lie; default what ``TRACKER_DIR`` says.

    Raises:
        NotFound: there is no such run. UsageError: several have that name, or it can't be changed from here.
    """
    reader = JournalReader(Path(dir).expanduser() if dir is not None else None)
    reference = str(run).removeprefix("run:")
    if not reference.strip():
        raise UsageError("a run's name is empty (an unset variable?): give an id, a name, latest or a directory")
    directory = find_run(reference, reader.root())
    edits.need_editable(directory)
    return OpenedRun(directory)


class OpenedRun:
    """A run that exists. Each change is in its journal when it returns; :meth:`close` has the trackers told.

    Made by :func:`trackers.open`; use it in a ``with`` block, or call :meth:`close`.
    """

    __slots__ = ("_changed", "_info", "_run", "_summary")

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._info = run.read_info()
        self._changed = False
        self._summary = Results(run, self._note)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"an opened run has no {name!r}: it has name, tags, notes, group, summary, edit, sync and close; "
            "trackers.load reads its values, trackers.init(id=…, resume='must') goes on with it"
        )

    def __repr__(self) -> str:
        return f"<trackers.OpenedRun {self.project}/{self.id} {self.name!r}>"

    def __enter__(self) -> OpenedRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def id(self) -> str:
        """The run's identity, which nothing changes."""
        return self._info.id

    @property
    def project(self) -> str:
        """The run's project."""
        return self._info.project

    @property
    def path(self) -> str:
        """The run's directory."""
        return str(self._run.path)

    @property
    def status(self) -> str:
        """How it stands now: running, finished, failed, crashed, preempted or stopped."""
        return observe(self._run).name

    @property
    def summary(self) -> Results:
        """The run's results by name, without ``final/``: what is set is recorded at once."""
        return self._summary

    @property
    def name(self) -> str:
        """What lists and legends show."""
        return self._now().name

    @name.setter
    def name(self, value: str) -> None:
        self.edit(name=value or "")

    @property
    def tags(self) -> Tags:
        """Labels to find the run by; setting them replaces all. ``+=`` adds: a list, a tuple or a text ``"a,b"``."""
        return Tags(self._now().tags)

    @tags.setter
    def tags(self, value: str | Iterable[str]) -> None:
        self.edit(tags=value or ())

    @property
    def notes(self) -> str:
        """What the run is for and what came out; "" for none."""
        return self._now().notes

    @notes.setter
    def notes(self, value: str | None) -> None:
        self.edit(notes=value or "")

    @property
    def group(self) -> str:
        """Name that runs of one ablation or one setting share; "" for none."""
        return self._now().group

    @group.setter
    def group(self, value: str | None) -> None:
        self.edit(group=value or "")

    def edit(
        self,
        *,
        name: str | None = None,
        tags: str | Iterable[str] | None = None,
        add_tags: str | Iterable[str] = (),
        remove_tags: str | Iterable[str] = (),
        notes: str | None = None,
        group: str | None = None,
    ) -> dict[str, tuple[Any, Any]]:
        """Change several attributes in one record. None: as it is; "": none.

        Args:
            tags: all of them, in place of the present ones. add_tags, remove_tags: to and from what is there now,
                whoever else edits the run at the same time.

        Returns:
            old and new value of what is different, by name.

        Raises:
            UsageError: a value can't be one, or the run can't be written.
        """
        added, removed = as_tags(add_tags), as_tags(remove_tags)

        def change(now: Attributes) -> Attributes:
            current = now.tags if tags is None else as_tags(tags)
            return Attributes(
                name=now.name if name is None else str(name),
                tags=tuple(tag for tag in dict.fromkeys([*current, *added]) if tag not in removed),
                notes=now.notes if notes is None else str(notes),
                group=now.group if group is None else str(group),
            )

        changed = edits.edit(self._run, change)
        if changed:
            self._note()
        return changed

    def sync(self, timeout: float = 60.0) -> bool:
        """Deliver the changes now. True if each tracker has all of the run, or its relay brings it.

        Args:
            timeout: give up after this many seconds without progress.

        Raises:
            UsageError: it can't be delivered: a package or a login is missing.
        """
        if delivering.awaits(self._run):
            return True
        problems: list[str] = []
        lacking = delivering.deliver([self._run], timeout_s=timeout, say=problems.append)
        if problems:
            raise UsageError(f"{problems[0]}; the edit is in the journal: trackers sync {self._run.quoted} delivers it")
        self._changed = self._changed and bool(lacking)
        return not lacking

    def close(self) -> None:
        """Have a process of its own deliver what was changed. What it can't deliver now ``trackers sync`` delivers.

        The end of the program does that for changes that were made without or after it.
        """
        atexit.unregister(self.close)
        if not self._changed:
            return
        self._changed = False
        try:
            delivering.deliver_later(self._run)
        except (TrackersError, OSError) as error:
            text = f"{error}; the edit is in the journal: trackers sync {self._run.quoted} delivers it"
            show(Message(time.time(), text))

    def _now(self) -> Attributes:
        return edits.attributes(self._run)

    def _note(self) -> None:
        if not self._changed:
            atexit.register(self.close)
        self._changed = True


class Tags(tuple[str, ...]):
    """Tags as they are: a tuple, to which ``+`` adds a list or the tags of a text, too."""

    def __add__(self, more: Any) -> Tags:
        return Tags(dict.fromkeys([*self, *as_tags(more)]))


class Results(MutableMapping[str, Any]):
    """The run's results by name, without ``final/``; what is set is recorded at once."""

    def __init__(self, run: RunDirectory, changed: Callable[[], None]) -> None:
        self._run = run
        self._changed = changed

    def __getitem__(self, name: str) -> Any:
        return self._read()[plain_name(name)]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        raise UsageError(f"result {name!r} stays: trackers that have it can't take it back; another value replaces it")

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(self._read())

    def update(self, *values: Any, **named: Any) -> None:
        """Record several results in one record.

        Raises:
            UsageError: a value is no number, text, list or mapping, or the run can't be written.
        """
        results = {str(name): _value(name, value) for name, value in dict(*values, **named).items()}
        edits.add_results(self._run, mask(results))
        if results:
            self._changed()

    def _read(self) -> dict[str, Any]:
        reader = JournalReader()
        (run,) = reader.runs(str(self._run.path))
        return RunData(reader, run).summary


def _value(name: object, value: Any) -> Any:
    if isinstance(value, (str, bool, int, float, list, tuple, dict)):
        return storable(value)
    try:
        return number(value)
    except Unrecordable as error:
        raise UsageError(f"result {str(name)!r}: {error}") from None
