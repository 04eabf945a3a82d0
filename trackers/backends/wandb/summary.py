"""What a run's summary and the definitions of its metrics are in W&B, and the rewinding of a run.

A result is the last that the records say, in their order, with W&B's meaning: a metric's last value, or what
``define_metric`` asks for; a result that was set counts until its metric's next value. W&B's client computes that too,
but for rows that it begins itself, and since its last start: after a resume, its minimum covers only the rest of the
run. So this module writes the summary, before the row that it is of: a server that has the row has its results.

Rewinding: the server drops the rows above a training step, if it can. W&B's rewind
(https://docs.wandb.ai/guides/runs/rewind) goes by its own ``_step``, online, and only on servers that support it. Where
it isn't supported, or would drop rows that are still valid, the new rows follow the superseded ones, and charts over
``global_step`` show both.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from trackers.backends.wandb.client import Begin, WandbSession
from trackers.backends.wandb.history_rows import OWN_STEP, STEP, training_step
from trackers.backends.wandb.private_names import interface
from trackers.backends.wandb.state import WandbState
from trackers.errors import DeliveryError, Rejected
from trackers.formats import float_names
from trackers.formats.vendor_system_names import is_job
from trackers.metrics.definitions import NO_SUMMARY, Definition, Definitions, is_glob, nested
from trackers.metrics.summary import words_of
from trackers.metrics.unasked import APART, is_unasked
from trackers.records import (
    EDITS,
    Define,
    Summary,
    decode,
    encode,
    final_name,
    nearest_double,
    plain_name,
    unnamed_float,
)
from trackers.tracker import RunInfo

OPERATIONS = ("min", "max", "mean", "first", "last")
INTEGERS = 2**63
MOST_DEFINES = 500
"""Maximum number of definitions that are noted one by one."""
Path = tuple[str, ...]
"""A name in the summary: of nested values those around it come first."""


class Aggregates:
    """Aggregates by metric, of the records up to number ``seq``. ``state``, JSON values, survives a restart."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self.seq = int((state or {}).get("seq", -1))
        self.totals: dict[str, dict[str, Any]] = float_names.unname((state or {}).get("of", {}))

    @property
    def state(self) -> dict[str, Any]:
        return {"seq": self.seq, "of": float_names.name(self.totals)}

    def take(self, seq: int | None) -> bool:
        """Whether a record isn't aggregated yet; it is from now on. seq: None for a row from the server."""
        if seq is not None and seq <= self.seq:
            return False
        self.seq = self.seq if seq is None else seq
        return True

    def add(self, name: str, value: Any) -> None:
        """Aggregate a value of a metric; texts, lists and NaN count as first or last values only."""
        if not isinstance(value, (int, float, str, list)):
            return
        totals = self.totals.setdefault(name, {"first": value})
        totals["last"] = value
        if isinstance(value, (str, list)) or math.isnan(value):
            return
        totals["min"], totals["max"] = min(totals.get("min", value), value), max(totals.get("max", value), value)
        totals["sum"], totals["count"] = totals.get("sum", 0) + value, totals.get("count", 0) + 1

    def result(self, name: str, operations: Iterable[str]) -> dict[str, Any] | None:
        """W&B's summary value of a metric: ``{"min": …}``; None if there is no value yet."""
        totals = self.totals.get(name)
        if totals is None:
            return None
        known = {**totals, "mean": totals["sum"] / totals["count"]} if "count" in totals else totals
        return {operation: known[operation] for operation in operations if operation in known} or None


class SummaryResults:
    """The summary and the definitions of W&B's open run.

    What the state has covers all records up to a number. Of these, some may be delivered again: they add nothing to it.

    Args:
        run: W&B's own object.
        state: in which they survive a restart.
        axes: the last values of step metrics in the rows before the first one that will be sent.
        seq: number of the last record before those that are delivered (again).
        plots_machine: W&B's page draws ``gpu/*`` by itself; else who wants a chart adds it, beside the system tab.
    """

    def __init__(
        self,
        run: Any,
        state: WandbState,
        axes: Mapping[str, float] | None = None,
        seq: int = 0,
        plots_machine: bool = False,
    ) -> None:
        self._run = run
        self._plots_machine = plots_machine
        self._state = state
        self._definitions = Definitions(state.defined)
        self._earlier: Definitions | None = _earlier_definitions(state, seq)
        self._shown: dict[str, Any] = {}
        self._deleted = frozenset(state.deleted)
        self._removed = set(self._deleted)
        self._kept: dict[str, Any] = float_names.unname(state.kept)
        self.step_name = OWN_STEP if state.own_step is not None else STEP
        self._published: dict[str, Definition | None] = {}
        self._known: dict[str, tuple[Definition, tuple[str, ...]]] = {}
        self._pending: dict[Path, Any] = {}
        self._with_row: set[str] = set()
        self.axes: dict[str, float] = {name: unnamed_float(value) for name, value in (axes or {}).items()}
        self._step_metrics = self._definitions.step_metrics()
        saved = dict(state.aggregates or {})
        self._aggregates = Aggregates(saved)
        self._by_hand: set[str] = set(saved.get("by_hand", ()))
        self._logged: dict[str, Any] = float_names.unname(
            saved.get("logged", {})
        )  # newest values of metrics that were set
        self._publish_axis()
        for name in self._definitions.names():
            self._look_up(name)
        for name in self._aggregates.totals:  # a metric takes a glob when it is logged, not when a delivery goes on
            self._aggregated(name, *self._asked(name))
        self._pending |= {(name,): value for name, value in self._kept.items()}
        self._pending |= {_place(name): float_names.unname(value) for name, value in state.summary.items()}

    def _publish_axis(self) -> None:
        self._publish_definition(self.step_name, Definition(hidden=True))
        self._publish_definition("*", Definition(step_metric=self.step_name, step_sync=True))

    def step_is_own(self) -> None:
        """From now on ``global_step`` is a metric of the script, and the training step has another name."""
        if self.step_name == STEP:
            self.step_name = OWN_STEP
            known = self._definitions.step_metrics()
            self.axes = {name: value for name, value in self.axes.items() if name != STEP or name in known}
            published, self._published = self._published, {}
            self._known.clear()
            self._publish_axis()
            for name in published:
                if name not in ("*", STEP):
                    self._look_up(name)

    def define(self, record: Define) -> None:
        """Add a definition.

        Raises:
            Rejected: it has an unknown operation.
        """
        known = (*NO_SUMMARY, "best", *OPERATIONS)
        unknown = sorted(set(record.summary) - set(known))
        if unknown:
            raise Rejected(f"summary {', '.join(unknown)} of {record.name!r}; known: {', '.join(known)}")
        if not self._aggregates.take(record.seq):
            if self._earlier is not None:
                self._earlier.define(record)
            return
        self._earlier = None
        self._note(record)
        self._definitions.define(record)
        self._known.clear()
        self._step_metrics |= self._definitions.step_metrics()
        totals = self._aggregates.totals
        newest = self._shown | {name: known["last"] for name, known in totals.items() if "last" in known}
        totals |= _counted(record.so_far)  # of numbers alone
        for name, value in newest.items():
            if isinstance(value, (str, list)) and name not in self._by_hand:
                totals.setdefault(name, {})["last"] = value
        if not is_glob(record.name):
            self._look_up(record.name)
            self._by_hand -= {record.name, nested(record.name)}
        for name in {**self._aggregates.totals, **self._shown}:
            if name not in self._state.summary:
                self._aggregated(name, *self._asked(name))
        kept = {name: value for name, value in self._kept.items() if self._asked(name)[0].none}
        if kept.keys() != self._kept.keys():
            self._kept, self._state.kept = kept, float_names.name(dict(kept))

    def observe(self, seq: int | None, values: Mapping[str, Any], media: bool = False) -> set[str]:
        """Take a record's values (or, without a number, a row's): define what is new, and keep the results.

        Args:
            media: their results are known when their row is sent.

        Returns:
            the step metrics that their row is to have.
        """
        axes: set[str] = set()
        new = self._aggregates.take(seq)
        self._earlier = None if new else self._earlier
        set_before = self._state.summary
        for name, value in values.items():
            definition, operations = self._known.get(name) or self._look_up(name, media, new and seq is not None)
            then = definition if self._earlier is None else self._earlier.of(name) or Definition()
            if then.step_metric and then.step_sync:
                axes.add(then.step_metric)
            if name in self._step_metrics and type(value) in (int, float):
                self.axes[name] = value
            if new:
                self._count(name, value, media, definition.none or bool(operations))
            self._note_logged(name, value, media)
            if name in self._deleted:
                if not new:  # it was taken back later
                    continue
                self._mark_deleted(self._deleted - {name})
            if definition.none:
                self._keep(name)
                continue
            if name in set_before:
                if not new:  # it was set later
                    continue
                set_before = {other: kept for other, kept in set_before.items() if other != name}
                self._state.summary = set_before
            if media:  # it has no extremes, and is the result once it is sent
                self._with_row.add(name)
            elif operations and name not in self._by_hand:
                self._aggregated(name, definition, operations)
            else:
                self._pending[name,] = self._shown[name] = value
        return axes

    def _count(self, name: str, value: Any, media: bool, asked: bool) -> None:
        if media and not asked:  # the metric's number isn't its last value any more
            self._aggregates.totals.pop(name, None)
        elif not media and (asked or name in self._aggregates.totals):
            self._aggregates.add(name, value)

    def _note_logged(self, name: str, value: Any, media: bool = False) -> None:
        """Note the newest value of a metric that a result was set of; of media when they are sent."""
        if not media and (name in self._by_hand or name in self._logged):
            self._logged[name] = value

    def _keep(self, name: str) -> None:
        """Keep the result of a metric that has no further ones: a client that is killed may not have sent it."""
        if name in self._shown:
            self._kept[name] = self._shown.pop(name)
            self._state.kept = float_names.name(dict(self._kept))

    def take(self, record: Summary, media: Mapping[str, Any]) -> None:
        """Take a record of results: those that it takes back, and those that were set. media: of it, as W&B's JSON."""
        values = {**self._words_together(float_names.listed(record), record.by_word), **media}
        if record.so_far is not None and record.seq > self._aggregates.seq:
            self._count_anew(_counted(record.so_far))
        if record.removed and record.seq > self._aggregates.seq:
            self._remove(record)
        by_hand = set(self._by_hand)
        if record.id.startswith(f"{EDITS}-"):  # by its plain name too, where the script set it so
            own = {name for name in by_hand if not isinstance(self._state.summary.get(name), dict)}
            values = {plain: values[name] for name in values if (plain := plain_name(name)) in own} | values
        self.set(record.seq, values)
        if record.derived:  # what counts again had been set before its metric's definition
            self._by_hand -= {name for name in values if name not in by_hand and self._asked(name)[1]}

    def set(self, seq: int, values: Mapping[str, Any]) -> None:
        """Take results that were set: each counts until its metric's next value. Refused ones are left out."""
        if not self._aggregates.take(seq):
            return
        self._earlier = None
        if not self._deleted.isdisjoint(values):
            self._mark_deleted(self._deleted - values.keys())
        refused, values = self._state.refused_results, float_names.name(dict(values))
        values = {name: value for name, value in values.items() if name not in refused or refused[name] != value}
        self._state.summary = {**self._state.summary, **values, **self._ended(values)}
        self._with_row.difference_update(values)
        self._by_hand.update(values)
        for name, value in (values | self._ended(values)).items():
            self._kept.pop(name, None)
            self._pending[_place(name)] = self._shown[name] = float_names.unname(value)
        if self._state.kept:
            self._state.kept = float_names.name(dict(self._kept))

    def _ended(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Results as they are named at an attempt's end (``final/``), of those that an earlier attempt left so."""
        found: dict[str, Any] = {}
        for name, value in values.items():
            words = value if isinstance(value, dict) and "_type" not in value else {}
            found |= {final_name(f"{name}.{word}"): part for word, part in words.items()}
            found[final_name(name)] = next(iter(words.values())) if len(words) == 1 else value
        return {name: value for name, value in found.items() if name in self._state.summary and name not in values}

    def _words_together(self, values: dict[str, Any], metrics: Iterable[str]) -> dict[str, Any]:
        """Values with the results by word of these metrics as one, as W&B has them: ``{"acc": {"min": 1}}``."""
        for metric in metrics:
            asked = self._asked(metric)[1]
            words = {asked[0] if asked else "last": values.pop(metric)} if metric in values else {}
            for name in words_of(metric):
                if name in values:
                    words[name.removeprefix(f"{metric}.")] = values.pop(name)
            values[metric] = words
        return values

    def _count_anew(self, totals: dict[str, dict[str, Any]]) -> None:
        """Go on from what metrics come to at the step that training went back to."""
        before, self._aggregates.totals = self._aggregates.totals, totals
        for name in totals:
            self._aggregated(name, *self._asked(name))
        for name in before.keys() - totals.keys() - self._by_hand:
            if self._asked(name)[1] and not self._asked(name)[0].none:
                self._drop(name)

    def _remove(self, record: Summary) -> None:
        """Take back results. Of a metric W&B shows what it has otherwise, where training went back to before the result
        was set; where the script deleted it, nothing until its next value."""
        gone = {named(name) for name in record.removed for named in (plain_name, final_name)}
        if record.derived:  # else the server's rows were counted again already
            gone -= {name for name in gone - self._by_hand - self._state.summary.keys() if (name,) in self._pending}
        self._state.summary = {k: v for k, v in self._state.summary.items() if k not in gone}
        self._by_hand -= gone
        for name in gone:
            self._kept.pop(name, None)
            self._shown.pop(name, None)
            self._pending.pop(_place(name), None)
            self._with_row.discard(name)
            if record.derived and name in self._aggregates.totals:
                self._aggregated(name, *self._asked(name))
            elif record.derived and self._logged.get(name) is not None:
                self._state.summary = {**self._state.summary, **float_names.name({name: self._logged[name]})}
                self._pending[name,] = self._shown[name] = self._logged[name]
        away = {name for name in gone if _place(name) not in self._pending}
        self._removed |= away
        self._mark_deleted(self._deleted | away if not record.derived else self._deleted - gone)

    def count_without(self, values: Mapping[str, Any], gone: Iterable[str]) -> None:
        """Go on from the last values that count, where W&B keeps rows that don't.

        What definitions ask for, and what was set, is told by a record of its own.

        Args:
            values: of names that superseded rows have, too. gone: names that superseded rows alone have.
        """
        for name, value in values.items():
            if name == self.step_name or name in self._step_metrics:
                self.axes[name] = value
            if name in self._by_hand:
                self._logged[name] = value
            elif self._is_last_value(name):
                self._pending[name,] = self._shown[name] = value
        for name in gone:
            self._logged.pop(name, None)
            if self._is_last_value(name):
                self._drop(name)

    def _drop(self, name: str) -> None:
        self._shown.pop(name, None)
        self._pending.pop((name,), None)
        self._removed.add(name)

    def _is_last_value(self, name: str) -> bool:
        """Whether a metric's result is its last value."""
        definition, operations = self._asked(name)
        others = (self._by_hand, self._deleted, self._state.summary)
        return not (operations or definition.none or any(name in names for names in others))

    def _mark_deleted(self, names: frozenset[str]) -> None:
        self._deleted, self._state.deleted = names, sorted(names)

    def undelete(self, seq: int) -> list[str]:
        """The names whose results were deleted, as training goes back with record ``seq``: a record of its own deletes
        them again if they were at a step that counts."""
        names = sorted(self._deleted) if seq > self._aggregates.seq else []
        self._mark_deleted(self._deleted.difference(names))
        return names

    def watch(self, names: Iterable[str]) -> None:
        """Note the newest values of these metrics from now on, for when results that were set are taken back."""
        self._logged = dict.fromkeys(names)

    def places(self, axes: Iterable[str]) -> dict[str, Any]:
        """The last values of step metrics, by name; 0 for one without a value yet."""
        return {name: self.axes.get(name, 0) for name in (nested(a) if nested(a) in self.axes else a for a in axes)}

    def complete(self, values: dict[str, Any], axes: Mapping[str, Any], further: bool) -> None:
        """Add to a row the values of step metrics that it lacks (:meth:`places`), as W&B's client does.

        Args:
            further: the summary is already.
        """
        for name, value in axes.items():
            if name not in values and nested(name) not in values:
                values[name] = value
                if not further and self._is_last_value(name):
                    self._pending.setdefault((name,), value)

    def publish(self, row: Mapping[str, Any] | None = None, runtime_s: int | None = None) -> None:
        """Send what has changed of the summary.

        Args:
            row: values of the row that is sent next, which are results by that: media, and W&B's own.
            runtime_s: the whole run's so far, in seconds.
        """
        from wandb.proto import wandb_internal_pb2 as protocol

        for name, value in (row or {}).items():
            if name.startswith("_") or name == self.step_name or name in self._with_row:
                self._pending[name,] = value
                self._with_row.discard(name)
                self._note_logged(name, value)
        if runtime_s is not None:
            self._pending["_wandb", "runtime"] = runtime_s
        summary = protocol.SummaryRecord()
        for path in {_place(name) for name in self._removed} - self._pending.keys():
            if len(path) == 1:
                summary.remove.add(key=path[0])
            else:
                summary.remove.add(nested_key=path)
        self._removed = set()
        for path, value in self._pending.items():
            if len(path) == 1:
                summary.update.add(key=path[0], value_json=json_text(value))
            else:
                summary.update.add(nested_key=path, value_json=json_text(value))
        self._pending = {}
        if summary.update or summary.remove:
            interface(self._run)._publish_summary(summary)

    def save(self) -> None:
        """Note in the state what a restart needs."""
        by_hand, logged = sorted(self._by_hand), float_names.name(self._logged)
        self._state.aggregates = {**self._aggregates.state, "by_hand": by_hand, "logged": logged}
        if self._definitions:
            self._state.defined = self._definitions.state

    def _note(self, record: Define) -> None:
        """Note a definition with its number, for records that are delivered again from before it."""
        base, later = self._state.defines or [self._definitions.state, []]
        text = encode(msgspec.structs.replace(record, so_far={})).decode()
        later = [*later, [record.seq, text]]
        if len(later) > MOST_DEFINES:
            base, later = _defined(base, later[: MOST_DEFINES // 2]).state, later[MOST_DEFINES // 2 :]
        self._state.defines = [base, later]

    def _look_up(self, name: str, media: bool = False, logged: bool = True) -> tuple[Definition, tuple[str, ...]]:
        """A metric's definition and what is computed for it; W&B is told if that is new.

        Args:
            logged: whether the metric is logged now, by which it takes a glob, not read again from before a definition.
        """
        later = self._definitions.takes_glob(name) and not logged
        if not later and self._definitions.takes_glob(name):
            self._by_hand.discard(name)
        definition = None if later else self._definitions.of(name)
        if definition is not None or not (media or name.startswith("_") or name == self.step_name):
            self._publish_definition(name, definition)
        asked = self._asked(name)
        if not later:
            self._known[name] = asked
        return asked

    def _asked(self, name: str) -> tuple[Definition, tuple[str, ...]]:
        """A metric's definition and what is computed for it, though it takes no glob by that."""
        definition = self._definitions.known(name) or Definition()
        operations = dict.fromkeys(_operation(word, definition.goal) for word in definition.summary)
        return definition, tuple(operations)

    def _publish_definition(self, name: str, definition: Definition | None) -> None:
        """Tell W&B a metric's definition: the whole of it, unless it has that already.

        W&B's own expansion of globs isn't asked for: of several that match, it takes any.
        """
        from wandb.proto import wandb_internal_pb2 as protocol

        if name in self._published and self._published[name] == definition:
            return
        self._published[name] = definition
        sent = protocol.MetricRecord(expanded_from_glob=definition is None)
        definition = definition or Definition(step_sync=True, hidden=is_job(name) and not self._plots_machine)
        if name == "*":
            sent.glob_name = name
        else:
            sent.name = name
        if name != self.step_name:
            sent.step_metric = definition.step_metric or self.step_name
        sent.options.defined = True
        sent.options.hidden = definition.hidden
        sent.options.step_sync = definition.step_sync or not definition.step_metric
        sent.summary.none = definition.none
        for operation in {_operation(word, definition.goal) for word in definition.summary}:
            setattr(sent.summary, operation, True)
        sent._control.overwrite = True
        interface(self._run)._publish_metric(sent)

    def _aggregated(self, name: str, definition: Definition, operations: tuple[str, ...]) -> None:
        if definition.none:
            self._keep(name)
            return
        totals = self._aggregates.totals.get(name, {})
        result = self._aggregates.result(name, operations) if operations else totals.get("last")
        if name in self._by_hand or name in self._deleted:
            return
        if result is not None:
            self._pending[name,] = self._shown[name] = result
        elif operations and name in self._shown:  # a maximum of texts: nothing, not the value before
            self._drop(name)


def _place(name: str) -> Path:
    """Where a result that was set lies: one that nobody asked for stands beside no result of the script."""
    return (APART, name) if is_unasked(final_name(name)) else (name,)


def _counted(so_far: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What a record says of metrics' values so far; of one without a finite number there is no minimum."""
    return {
        name: {key: value for key, value in totals.items() if totals.get("count") or key in ("first", "last")}
        for name, totals in so_far.items()
    }


def json_text(value: Any) -> str:
    """A value as JSON text, as W&B's client writes it: NaN too, and integers of more than 64 bits as doubles."""
    if type(value) is int and not -INTEGERS <= value < INTEGERS:
        value = nearest_double(value)
    if type(value) is float and math.isfinite(value):
        return repr(value)
    if type(value) is list:
        return f"[{', '.join(map(json_text, value))}]"
    return json.dumps(value, default=str)


def _operation(word: str, goal: str | None) -> str:
    if word == "best":  # W&B has removed it, and goals
        return "max" if (goal or "").startswith("max") else "min"
    return word


def _earlier_definitions(state: WandbState, seq: int) -> Definitions | None:
    """The definitions after record ``seq``; None where they aren't noted."""
    if state.defines is None:
        return None
    base, later = state.defines
    return _defined(base, [entry for entry in later if entry[0] <= seq])


def _defined(base: Mapping[str, Any], later: Iterable[Sequence[Any]]) -> Definitions:
    found = Definitions(base)
    for _, line in later:
        record = decode(line.encode())
        if isinstance(record, Define):
            found.define(record)
    return found


REFUSAL = re.compile(r"failed to rewind run(?:: returned error (\d\d\d))?")
"""Message of wandb's client if only the rewind itself failed."""
UNSUPPORTED_STATUSES = ("400", "403", "404", "405", "422", "501")
LOOK_BACK = 500
"""Number of values of ``_step`` among which a row is looked for first."""
TRIES = 4
"""Number of unexpected answers after which a server counts as unable to rewind."""

logger = logging.getLogger("trackers.wandb")


class RowNumber(NamedTuple):
    """A row of the server. number: its ``_step``. step: its training step; None if it has none."""

    number: int
    step: int | None


def reopen(
    session: WandbSession, info: RunInfo, state: WandbState, attempt: int, step: int, begin: Begin
) -> tuple[WandbSession, RowNumber | None]:
    """Reopen a run that was just closed, without its rows above a training step.

    Args:
        session: the closed session; the server has all of its rows.
        begin: of the new session. attempt: the attempt that rewinds. ``state`` notes it if the server can't rewind.

    Returns:
        the new session, and the last remaining row; None if no row was dropped.

    Raises:
        DeliveryError: the server is down, or failed.
    """
    last, names = last_kept(session, step)
    if last is not None:
        state.rewind(attempt, last.number, step, names | {*state.deleted})
        try:
            reopened = WandbSession(
                info, resume=True, fields={}, begin=begin, rewind=last.number, refused=session.refused
            )
        except DeliveryError as error:
            state.rewinds = [entry for entry in state.rewinds if entry[0] != attempt]
            refusal = REFUSAL.search(str(error))
            if refusal is None:
                raise
            state.rewind_tries += 1
            state.save()
            if state.rewind_tries < TRIES and refusal.group(1) not in UNSUPPORTED_STATUSES:
                raise
            logger.warning("this server doesn't rewind (%s): rows above step %d stay beside the new ones", error, step)
        else:
            state.rewind_tries = 0
            return reopened, last
    state.not_rewound = [*state.not_rewound, attempt]
    state.rewind_tries = 0
    state.save()
    return WandbSession(info, resume=True, fields={}, begin=begin, refused=session.refused), None


def last_kept(session: WandbSession, step: int) -> tuple[RowNumber | None, set[str]]:
    """The row after which all of the server's rows have later training steps, or None, and the names in those.

    Rows without a training step count with the rows around them.
    """
    names: set[str] = set()
    last_step = session.last_step()
    kept: RowNumber | None = None
    dropped: int | None = None
    for row in session.rows(step + 1, last_step):  # a row's _step is never below its training step
        training, number = training_step(row), int(row["_step"])
        if training is not None and training > step:
            dropped = number if dropped is None else dropped
        elif training is not None and dropped is not None:
            logger.warning("rows above step %d stay beside the new ones: earlier steps were logged after them", step)
            return None, names
        elif dropped is None:
            kept = RowNumber(number, training)
        if dropped is not None:
            names.update(name for name in row if not name.startswith("_"))
    if dropped is None:
        return kept or _last_up_to(session, last_step) or RowNumber(last_step, None), names
    return kept or _last_up_to(session, step) or RowNumber(dropped - 1, None), names


def _last_up_to(session: WandbSession, number: int) -> RowNumber | None:
    """The server's last row with a ``_step`` up to this one; None if it has none."""
    end, width = number, LOOK_BACK
    while end >= 0:
        rows = list(session.rows(max(0, end - width + 1), end))
        if rows:
            return RowNumber(int(rows[-1]["_step"]), training_step(rows[-1]))
        end, width = end - width, 2 * width
    return None


def count_without(results: SummaryResults, rows: Iterable[Mapping[str, Any]], rewinds: Sequence[Sequence[Any]]) -> None:
    """Take back what rows that don't count, and deletions after them, have made of the last values.

    Args:
        rows: W&B's, those that count and those that don't. Second values of a step come behind later steps.
        rewinds: as the state has them.
    """
    values: dict[str, Any] = {}
    newest: dict[str, int] = {}
    superseded = {name for entry in rewinds for name in chain(*entry[3:])}
    step = -1
    for row in rows:
        found = training_step(row)
        step = step if found is None else found
        names = [name for name in row if not name.startswith("_")]
        if any(row["_step"] <= last and step > kept for _, last, kept, *_ in rewinds):
            superseded.update(names)
            continue
        for name in names:
            if step >= newest.get(name, -1):
                values[name], newest[name] = row[name], step
    results.count_without({name: values[name] for name in superseded & values.keys()}, superseded - values.keys())


def count_again(
    session: WandbSession,
    results: SummaryResults,
    last: int,
    seq: int,
    waiting: Iterable[Mapping[str, Any]],
    before: Mapping[str, Any],
) -> None:
    """Compute the results anew from the server's remaining rows, which cover the records up to number ``seq``.

    Args:
        waiting: rows with second values of a step that aren't sent. Such rows come behind those of later steps.
        before: the aggregates of the results so far.
    """
    results.watch({*before.get("by_hand", ()), *before.get("logged", ())})
    newest: dict[str, int] = {}
    step = -1
    for row in chain(session.rows(0, last), waiting):
        found = training_step(row)
        step = step if found is None else found
        values = {n: value for n, value in row.items() if not n.startswith("_") and step >= newest.get(n, -1)}
        newest |= dict.fromkeys(values, step)
        results.observe(None, values)
    results.observe(seq, {})
