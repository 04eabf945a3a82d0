"""Summaries of metrics over a whole W&B run (``define_metric``), and the rewinding of a run.

``define_metric`` sets the x axes of metrics, and requests their minimum, maximum, mean, first and last value. W&B's
client computes those too, but over the rows since its last start: after a resume, its minimum covers only the rest of
the run. So the client is configured not to summarize these metrics (``summary="none"``), and this module writes the
values.

Rewinding: the server drops the rows above a training step, if it can. W&B's rewind
(https://docs.wandb.ai/guides/runs/rewind) goes by its own ``_step``, online, and only on servers that support it. Where
it isn't supported, or would drop rows that are still valid, the new rows follow the superseded ones, and charts over
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
    """Aggregates by metric. ``state`` survives a restart: JSON values that cover the records up to its ``seq``."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._seq = int((state or {}).get("seq", -1))
        self._totals: dict[str, dict[str, float]] = {
            name: dict(totals) for name, totals in (state or {}).get("of", {}).items()
        }

    @property
    def state(self) -> dict[str, Any]:
        return {"seq": self._seq, "of": self._totals}

    def add(self, seq: int | None, values: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Aggregate a record's values of ``metrics``, once for each record; NaN and non-numbers are skipped.

        Args:
            seq: the record's number; None for the values of a row from the server.
            metrics: the names to aggregate.
        """
        if seq is not None and seq <= self._seq:
            return
        self._seq = self._seq if seq is None else seq
        for name in metrics.keys() & values.keys():
            value = values[name]
            if not isinstance(value, (int, float)) or math.isnan(value):
                continue
            totals = self._totals.get(name)
            if totals is None:
                initial = {"min": value, "max": value, "first": value, "last": value, "sum": value, "count": 1}
                self._totals[name] = initial
                continue
            totals["min"], totals["max"] = min(totals["min"], value), max(totals["max"], value)
            totals["last"] = value
            totals["sum"], totals["count"] = totals["sum"] + value, totals["count"] + 1

    def summary(self, metrics: Mapping[str, list[str]]) -> dict[str, dict[str, float]]:
        """W&B's summary values: for each metric with its operations, ``{"min": …}``."""
        summaries = {}
        for name, operations in metrics.items():
            totals = self._totals.get(name)
            if totals is not None:
                results = {**totals, "mean": totals["sum"] / totals["count"]}
                summaries[name] = {operation: results[operation] for operation in operations if operation in OPERATIONS}
        return summaries


class Definitions:
    """Applies ``define_metric``'s definitions to W&B's open run; ``state`` stores them."""

    def __init__(self, run: Any, state: State) -> None:
        self._run = run
        self._state = state
        self._seen: set[str] = set()
        self._operations: dict[str, list[str]] = {}
        self._summarized: dict[str, dict[str, float]] = {}
        saved = dict(state.get("aggregates") or {})
        if saved and "seq" not in saved:  # an older version counted rows: those before its newest restart point
            saved["seq"] = max((point[0] for point in state.get("marks", [])), default=-1)
        self._aggregates = Aggregates(saved)
        self._expand(self._aggregates.state["of"])

    def add(self, record: Define) -> None:
        """Add a definition; it applies to metrics that come after it.

        Raises:
            Rejected: it has an unknown operation.
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

    def observe(self, seq: int | None, values: Mapping[str, Any]) -> None:
        """Define the new metrics of a record (or, without a number, of a row), and aggregate its values."""
        if not self._seen.issuperset(values):
            self._expand(values)
        self._aggregates.add(seq, values, self._operations)

    def summarize(self) -> None:
        """Write the aggregates that changed into the run's summary."""
        for name, values in self._aggregates.summary(self._operations).items():
            if self._summarized.get(name) != values:
                self._run.summary[name] = self._summarized[name] = values
        self._state["aggregates"] = self._aggregates.state

    def _expand(self, names: Iterable[str]) -> None:
        """Define each new name separately, by its newest matching definition: W&B ignores other globs beside "*"."""
        for name in names:
            if name in self._seen:
                continue
            self._seen.add(name)
            defined = self._state.get("defined", {})
            matching = [fields for glob, fields in defined.items() if name == glob or fnmatchcase(name, glob)]
            if matching:
                fields = matching[-1]
                summary = "none" if fields["summary"] else None
                self._run.define_metric(name, fields["step"], summary=summary, hidden=fields["hidden"] or None)
                if fields["summary"]:
                    self._operations[name] = fields["summary"]


def _operation(name: str, goal: str | None) -> str:
    if name == "best":  # W&B has removed it, and goals
        return "max" if (goal or "").startswith("max") else "min"
    return name


REFUSAL = re.compile(r"failed to rewind run(?:: returned error (\d\d\d))?")
"""Message of wandb's client if only the rewind itself failed."""
UNSUPPORTED_STATUSES = ("400", "403", "404", "405", "422", "501")
TRIES = 4
"""Number of unexpected answers after which a server counts as unable to rewind."""

logger = logging.getLogger("trackers.wandb")


def reopen(
    session: WandbSession, info: RunInfo, state: State, attempt: int, step: int
) -> tuple[WandbSession, int | None]:
    """Reopen a run that was just closed, without its rows above a training step.

    Args:
        session: the closed session; the server has all of its rows.
        attempt: the attempt that rewinds. ``state`` notes it if the server can't rewind.

    Returns:
        the new session, and the ``_step`` of the last remaining row; None if no row was dropped.

    Raises:
        DeliveryError: the server is down, or failed.
    """
    last = last_kept(session, step)
    if last is not None:
        try:
            reopened = WandbSession(info, resume=True, fields={}, rewind=last, refused=session.refused)
        except DeliveryError as error:
            refusal = REFUSAL.search(str(error))
            if refusal is None:
                raise
            tries = int(state.get("rewind_tries", 0)) + 1
            state["rewind_tries"] = tries
            state.save()
            if tries < TRIES and refusal.group(1) not in UNSUPPORTED_STATUSES:
                raise
            logger.warning("this server doesn't rewind (%s): rows above step %d stay beside the new ones", error, step)
        else:
            state["rewind_tries"] = 0
            return reopened, last
    state["not_rewound"] = [*state.get("not_rewound", []), attempt]
    state["rewind_tries"] = 0
    state.save()
    return WandbSession(info, resume=True, fields={}, refused=session.refused), None


def last_kept(session: WandbSession, step: int) -> int | None:
    """The ``_step`` after which all of the server's rows have later training steps; None if there is no such step.

    Rows without a training step count with the rows around them.
    """
    last_step = session.last_step()
    kept_step = last_step
    for row in session.rows(step + 1, last_step):  # a row's _step is never below its training step
        training = row.get(STEP)
        if training is not None and training > step:
            kept_step = min(kept_step, int(row["_step"]) - 1)
        elif training is not None and kept_step < last_step:
            logger.warning("rows above step %d stay beside the new ones: earlier steps were logged after them", step)
            return None
    return kept_step


def count_again(session: WandbSession, definitions: Definitions, last: int, seq: int) -> None:
    """Compute the aggregates anew from the server's remaining rows, which cover the records up to number ``seq``."""
    for row in session.rows(0, last):
        definitions.observe(None, {name: value for name, value in row.items() if not name.startswith("_")})
    definitions.observe(seq, {})
