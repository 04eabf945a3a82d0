"""Summaries of metrics over a whole W&B run (``define_metric``), and the rewinding of a run.

``define_metric`` gives x axes of metrics, and their minimum, maximum, mean, first and last. W&B's client computes them
too, but over the rows since its last start: after a resume its minimum is that of the rest of the run. So it is told to
leave these metrics alone (``summary="none"``), and they are written from here.

Rewinding: the server drops the rows above a training step, if it can. W&B counts that as a rewind of the run
(https://docs.wandb.ai/guides/runs/rewind): by its own ``_step``, online, and only on servers that have it. Where it
can't be had, or would cost rows that still count, the new rows follow the superseded ones, and charts over
``global_step`` show both.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from trackers.backends.wandb.client import WandbSession
from trackers.backends.wandb.history_rows import STEP
from trackers.errors import DeliveryError, Rejected
from trackers.records import Define
from trackers.tracker import RunInfo, State

OPERATIONS = ("min", "max", "mean", "first", "last")


class Aggregates:
    """Aggregates by metric. ``state`` is what survives a restart: JSON values; records up to its ``seq`` are in it."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._seq = int((state or {}).get("seq", -1))
        self._of: dict[str, dict[str, float]] = {name: dict(held) for name, held in (state or {}).get("of", {}).items()}

    @property
    def state(self) -> dict[str, Any]:
        return {"seq": self._seq, "of": self._of}

    def add(self, seq: int | None, values: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        """Count the values of the record with this number, of the metrics in ``wanted``; a record counts once.

        NaN and what isn't a number is left out. None: of a row that isn't a record.
        """
        if seq is not None and seq <= self._seq:
            return
        self._seq = self._seq if seq is None else seq
        for name in wanted.keys() & values.keys():
            value = values[name]
            if not isinstance(value, (int, float)) or math.isnan(value):
                continue
            held = self._of.get(name)
            if held is None:
                first = {"min": value, "max": value, "first": value, "last": value, "sum": value, "count": 1}
                self._of[name] = first
                continue
            held["min"], held["max"] = min(held["min"], value), max(held["max"], value)
            held["last"] = value
            held["sum"], held["count"] = held["sum"] + value, held["count"] + 1

    def summary(self, wanted: Mapping[str, list[str]]) -> dict[str, dict[str, float]]:
        """What W&B's summary holds for each metric: ``{"min": …}`` with the operations asked for."""
        found = {}
        for name, operations in wanted.items():
            held = self._of.get(name)
            if held is not None:
                known = {**held, "mean": held["sum"] / held["count"]}
                found[name] = {operation: known[operation] for operation in operations if operation in OPERATIONS}
        return found


class Definitions:
    """Applies ``define_metric``'s definitions to W&B's open run; ``state`` stores them."""

    def __init__(self, run: Any, state: State) -> None:
        self._run = run
        self._state = state
        self._seen: set[str] = set()
        self._wanted: dict[str, list[str]] = {}
        self._summarized: dict[str, dict[str, float]] = {}
        counted = dict(state.get("aggregates") or {})
        if counted and "seq" not in counted:  # an older version counted rows: those before its newest mark
            counted["seq"] = max((mark[0] for mark in state.get("marks", [])), default=-1)
        self._aggregates = Aggregates(counted)
        self._expand(self._aggregates.state["of"])

    def add(self, record: Define) -> None:
        """Take a definition; it holds for the metrics that come after it.

        Raises:
            Rejected: an operation that isn't known.
        """
        operations = list(dict.fromkeys(_operation(how, record.goal) for how in record.summary))
        unknown = set(operations) - {*OPERATIONS, "none"}
        if unknown:
            known = ", ".join(("best", "none", *OPERATIONS))
            raise Rejected(f"summary {', '.join(sorted(unknown))} of {record.name!r}; known: {known}")
        fields = {"step": record.step_metric or STEP, "summary": operations, "hidden": record.hidden}
        defined = {**self._state.get("defined", {})}
        defined.pop(record.name, None)  # the newest comes last
        self._state["defined"] = {**defined, record.name: fields}
        self._seen.clear()

    def see(self, seq: int | None, values: Mapping[str, Any]) -> None:
        """Define the metrics that are new in a record (or, without a number, in a row), and count its values."""
        if not self._seen.issuperset(values):
            self._expand(values)
        self._aggregates.add(seq, values, self._wanted)

    def summarize(self) -> None:
        """Write the aggregates that changed into the run's summary."""
        for name, values in self._aggregates.summary(self._wanted).items():
            if self._summarized.get(name) != values:
                self._run.summary[name] = self._summarized[name] = values
        self._state["aggregates"] = self._aggregates.state

    def _expand(self, names: Iterable[str]) -> None:
        """Define each new name by itself, as its newest definition says: beside "*" W&B ignores other globs."""
        for name in names:
            if name in self._seen:
                continue
            self._seen.add(name)
            defined = self._state.get("defined", {})
            found = [fields for glob, fields in defined.items() if name == glob or fnmatchcase(name, glob)]
            if found:
                fields = found[-1]
                summary = "none" if fields["summary"] else None
                self._run.define_metric(name, fields["step"], summary=summary, hidden=fields["hidden"] or None)
                if fields["summary"]:
                    self._wanted[name] = fields["summary"]


def _operation(name: str, goal: str | None) -> str:
    if name == "best":  # W&B has dropped it, and goals
        return "max" if (goal or "").startswith("max") else "min"
    return name


REFUSAL = re.compile(r"failed to rewind run(?:: returned error (\d\d\d))?")
"""Message of wandb's client if only the rewind itself failed."""
WILL_NOT = ("400", "403", "404", "405", "422", "501")
TRIES = 4
"""Number of unexpected answers after which a server counts as unable to rewind."""

logger = logging.getLogger("trackers.wandb")


def reopen(
    session: WandbSession, info: RunInfo, state: State, attempt: int, step: int
) -> tuple[WandbSession, int | None]:
    """Open a run again that was just closed, its rows above a training step forgotten.

    Args:
        session: the closed one, whose server has all of its rows.
        attempt: which rewinds. Where that can't be had, ``state`` remembers it.

    Returns:
        the new session, and the ``_step`` of the last row that was kept; None if all were.

    Raises:
        DeliveryError: the server is away, or stumbled.
    """
    kept = last_kept(session, step)
    if kept is not None:
        try:
            found = WandbSession(info, resume=True, fields={}, rewind=kept, refused=session.refused)
        except DeliveryError as error:
            said = REFUSAL.search(str(error))
            if said is None:
                raise
            tries = int(state.get("rewind_tries", 0)) + 1
            state["rewind_tries"] = tries
            state.save()
            if tries < TRIES and said.group(1) not in WILL_NOT:
                raise
            logger.warning("this server doesn't rewind (%s): rows above step %d stay beside the new ones", error, step)
        else:
            state["rewind_tries"] = 0
            return found, kept
    state["not_rewound"] = [*state.get("not_rewound", []), attempt]
    state["rewind_tries"] = 0
    state.save()
    return WandbSession(info, resume=True, fields={}, refused=session.refused), None


def last_kept(session: WandbSession, step: int) -> int | None:
    """The ``_step`` behind which the server's rows are all of later training steps; None if there is no such place.

    Rows without a training step count as what they lie between.
    """
    held = session.held()
    kept = held
    for row in session.rows(step + 1, held):  # a row's _step is never below its training step
        training = row.get(STEP)
        if training is not None and training > step:
            kept = min(kept, int(row["_step"]) - 1)
        elif training is not None and kept < held:
            logger.warning("rows above step %d stay beside the new ones: earlier steps were logged after them", step)
            return None
    return kept


def count_again(session: WandbSession, definitions: Definitions, last: int, seq: int) -> None:
    """Minima, maxima and means over the rows that were kept: those of the records up to number ``seq``."""
    for row in session.rows(0, last):
        definitions.see(None, {name: value for name, value in row.items() if not name.startswith("_")})
    definitions.see(seq, {})
