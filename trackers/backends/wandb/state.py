"""What W&B's delivery keeps from one process to the next, each value by its name in the delivery's state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Generic, TypeVar, cast, overload

from trackers.tracker import State

T = TypeVar("T")

Names = dict[str, Any]
"""Values by their names in the run."""


class Kept(Generic[T]):
    """A value of the state of one type, under the attribute's own name; its default where the state has none."""

    def __init__(self, default: Callable[[], T]) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, state: None, owner: type) -> Kept[T]: ...

    @overload
    def __get__(self, state: WandbState, owner: type) -> T: ...

    def __get__(self, state: WandbState | None, owner: type) -> Kept[T] | T:
        if state is None:
            return self
        return cast(T, state.stored[self._name]) if self._name in state.stored else self._default()

    def __set__(self, state: WandbState, value: T) -> None:
        state.stored[self._name] = value

    def __delete__(self, state: WandbState) -> None:
        state.stored.pop(self._name, None)


def _none() -> None:
    return None


class WandbState:
    """The delivery's state in W&B's terms, all values JSON.

    What an attribute has by default isn't stored: assign a new value, rather than change it in place.

    Args:
        stored: the delivery's (:class:`trackers.tracker.State`). It is empty before the run's first session.
    """

    # Sessions.
    native_id = Kept[str](str)
    """The run's id in W&B; "" before its first session. Online, name and tags are not sent again once it is known."""
    url = Kept[str](str)
    """Where the run is seen, or how its files are uploaded."""
    began = Kept[float](float)
    """When the newest session says that the run began, in Unix seconds: each session says a little later."""
    clock = Kept["list[list[float]]"](list)
    """Number, begin and end of each attempt, in Unix seconds."""
    not_rewound = Kept["list[int]"](list)
    """The attempts whose rewind the server couldn't do: their rows follow the superseded ones."""
    rewinds = Kept["list[list[Any]]"](list)
    """Rewinds: the attempt, the last row before it that stays, the training step, and names whose results may not be
    their last values any more."""
    recount = Kept[bool](bool)
    """Whether W&B's summary may lack what the newest rewind changes of it."""
    rewind_tries = Kept[int](int)
    """How often the rewind that is due has failed."""
    own_step = Kept["int | None"](_none)
    """Number of the record with which ``global_step`` became a metric of the script."""

    # From where records are sent again after a restart.
    marks = Kept["list[list[int]]"](list)
    """Restart points: the number of a record, the last row's ``_step`` by then, that of the first row to compare."""
    row = Kept["list[int] | None"](_none)
    """``_step`` and training step of the last row that was sent; None before it."""
    filed = Kept["list[int]"](lambda: [0, -1])
    """The newest restart point whose rows were read back from an offline file, which may be gone by now."""
    files = Kept["list[list[Any]] | None"](_none)
    """Offline files by the name of their directory, and which records' rows each holds. None online."""
    media_from = Kept["int | None"](_none)
    """Number of the record before the first whose media weren't seen to arrive; None if all were."""
    lines = Kept["list[list[int]]"](list)
    """Number of console lines before the record of each restart point."""
    axes = Kept["list[list[Any]]"](list)
    """The last values of step metrics at the record of each restart point."""

    # What the run says of itself.
    config = Kept["Names | None"](_none)
    """The configuration with all changes since the run began; None before the first."""
    info = Kept[Names](dict)
    """What edits and the script said since of name, tags, notes and group."""
    unsaved = Kept[Names](dict)
    """Of these, what was sent and not seen to be accepted."""
    cleared = Kept["list[str]"](list)
    """Of these, what was emptied, which W&B's client can't send."""
    machine = Kept["list[Any] | None"](_none)
    """The newest attempt whose machine is known, and what W&B is told of it."""
    charts = Kept["list[list[Any]]"](list)
    """Custom charts: where they stand in the configuration, and what stands there."""
    increments = Kept["dict[str, list[list[Any]]]"](dict)
    """Tables that are logged in parts: of each part the record's id, its path, and the rows up to its end."""
    increments_before = Kept["dict[str, int]"](dict)
    """Number of such a table's first parts that aren't remembered any more."""
    artifacts = Kept["list[str]"](list)
    """Ids of the newest artifacts that were sent."""

    # Results.
    summary = Kept[Names](dict)
    """Results that were set, until their metric's next value."""
    kept = Kept[Names](dict)
    """Results of metrics that have no further ones since ``define_metric`` said so."""
    deleted = Kept["list[str]"](list)
    """Names that the script deleted from its results, until their next value."""
    aggregates = Kept["Names | None"](_none)
    """What results are computed from, and up to which record (:class:`trackers.backends.wandb.summary.Aggregates`)."""
    defined = Kept[Names](dict)
    """The definitions of metrics."""
    defines = Kept["list[Any] | None"](_none)
    """Definitions up to some record, and the later ones with their numbers: for records that are sent again."""

    # Refusals: see trackers.backends.wandb.refusals.
    refused = Kept["list[list[str]]"](list)
    """What the server refused for good and nobody was told yet: an id, the record, why."""
    refused_config = Kept[Names](dict)
    """Refused values of the configuration, left out as long as they are the same."""
    refused_results = Kept[Names](dict)
    """Refused results, likewise."""
    refused_rows = Kept["list[str]"](list)
    """Ids of the records of refused rows."""
    sifted = Kept[int](int)
    """How many searches after another have found nothing that is refused."""
    blamed = Kept[int](int)
    """How many rows after another were sent alone and refused."""
    careful = Kept[int](lambda: -1)
    """The ``_step`` up to which rows are sent one by one, as one of them was refused."""

    def __init__(self, stored: State) -> None:
        self.stored = stored

    def __bool__(self) -> bool:
        return bool(self.stored)

    def save(self) -> None:
        """See :meth:`trackers.tracker.State.save`."""
        self.stored.save()

    def rewind(self, attempt: int, last: int, step: int, names: Iterable[str]) -> None:
        """Note a rewind, once: see :attr:`rewinds`. names: those of rows that it drops, or of deleted results."""
        known = next((entry for entry in self.rewinds if entry[0] == attempt), [attempt, last, step, []])
        noted = [*known[:3], sorted({*chain(*known[3:]), *names})]
        self.rewinds, self.recount = [*(entry for entry in self.rewinds if entry[0] != attempt), noted], True
        self.save()
