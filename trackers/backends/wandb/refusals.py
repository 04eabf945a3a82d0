"""What W&B's server refuses for good: found out by asking it about each part, and set aside.

The client sends configuration, name, tags, notes and group in one request, and many rows and all results in another.
When such a request is refused, the client drops everything in it: so each part is tried alone, and the next client
leaves out what is refused.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from trackers.backends.wandb.client import WandbSession
from trackers.backends.wandb.state import WandbState
from trackers.records import Config, Info, Record, Summary, decode, encode

logger = logging.getLogger("trackers.wandb")

REMEMBERED = 1000
"""Maximum number of ids kept of records that were sent or refused."""
SIFTS = 2
"""Number of searches that find nothing refused, after which the refused part counts as written by the client itself."""
BLAMED_ROWS = 3
"""Number of consecutive rows, each sent alone and refused, after which the server counts as refusing every row."""
ATTRIBUTES = {"name": "displayName", "group": "groupName", "job_type": "jobType", "tags": "tags", "notes": "notes"}
"""Attributes of a run: their names in ``wandb.init``, and on the server."""


class Refusals:
    """The refused parts of a run, which survive a restart in the delivery's state."""

    def __init__(self, state: WandbState) -> None:
        self._state = state

    def take(self) -> Iterator[tuple[Record, str]]:
        """The records that were refused and nobody was told of, and why; each is told once."""
        while waiting := self._state.refused:
            id, line, why = waiting[0]
            record = decode(line.encode())
            if record is not None:
                yield msgspec.structs.replace(record, id=id), why
            self._state.refused = waiting[1:]

    def accepted_config(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a configuration but those that the server has refused."""
        refused = self._state.refused_config
        return {name: value for name, value in values.items() if name not in refused or refused[name] != value}

    def sift(self, session: WandbSession, config: Mapping[str, Any]) -> None:
        """Find out what of the run's configuration, name, tags, notes and group the server refuses, and set it aside.

        Args:
            config: as the records have it.

        Raises:
            DeliveryError: a query failed.
        """
        refused_any = self.sift_attributes(session) if self._state.unsaved else False
        sent = session.run.config.as_dict()
        own = {name: {"value": sent[name]} for name in ("_wandb",) if name in sent}

        def ask(names: list[str]) -> str:
            values = {**own, **{name: {"value": sent[name]} for name in names}}
            return session.refusal({"config": json.dumps(values, default=str)})

        names = [name for name in sent if name not in own]
        for name, why in sift(names, ask):
            refused_any = True
            value = config.get(name)
            self._state.refused_config = {**self._state.refused_config, name: value}
            self.set_aside(Config(time=0.0, values={name: value}), f"config/{name}", why)
        self._state.sifted = 0 if refused_any else self._state.sifted + 1
        if self._state.sifted == SIFTS:
            logger.warning(
                "W&B refuses what its client says about the run's metrics and charts: rows, configuration and results "
                "are there; the x axes and custom charts may be missing"
            )
        self._state.save()

    def sift_attributes(self, session: WandbSession) -> bool:
        """Set the name, group, job type, tags and notes that aren't saved yet, and set aside what the server refuses.

        Returns:
            whether the server has refused anything.
        """
        refused_any = False
        for name, value in self._state.unsaved.items():
            refused = sift(list(value) if name == "tags" else [value], partial(_attribute_refusal, session, name))
            if refused:
                refused_any = True
                refused_value = [item for item, _ in refused] if name == "tags" else value
                record: Record = Config(time=0.0, values={name: refused_value})
                if name != "job_type":
                    record = msgspec.structs.replace(Info(time=0.0), **{name: refused_value})
                self.set_aside(record, name, refused[0][1])
        self._state.unsaved = {}
        self._state.save()
        return refused_any

    def sift_rows(self, session: WandbSession, alone: Sequence[Record], last: int) -> None:
        """Find out which result or row made the server refuse a request of the file stream, and set it aside.

        Results are tried with separate requests. Rows are sent again one by one by the next client; a refused row is
        then the only one in flight.

        Args:
            alone: the records of the only row in flight; none where there are several.
            last: the ``_step`` of the last row.

        Raises:
            DeliveryError: a query failed.
        """
        results = self._state.summary

        def ask(names: list[str]) -> str:
            return session.refusal({"summaryMetrics": json.dumps({name: results[name] for name in names}, default=str)})

        refused = sift([*results], ask)
        for name, why in refused:
            self._state.summary = {other: value for other, value in self._state.summary.items() if other != name}
            self._state.refused_results = {**self._state.refused_results, name: results[name]}
            self.set_aside(Summary(time=0.0, values={name: results[name]}), f"summary/{name}", why)
        # A server that refuses each row alone has another reason than the rows: none is set aside for it.
        if alone and not refused and self._state.blamed < BLAMED_ROWS:
            self._state.blamed += 1
            for record in alone:
                self.set_aside(record, record.id, "W&B's server refuses this row")
            ids = [record.id for record in alone]
            self._state.refused_rows = [*self._state.refused_rows, *ids][-REMEMBERED:]
        self._state.careful = max(last, self._state.careful)
        self._state.save()

    def set_aside(self, record: Record, id: str, why: str) -> None:
        """Keep a record for :meth:`take`, with the current time if it has none."""
        line = encode(record)
        if not record.id:  # a part of one record, or of several
            id = f"{id}/{hashlib.sha256(line).hexdigest()[:8]}"
            line = encode(msgspec.structs.replace(record, time=time.time()))
        self._state.refused = [*self._state.refused, [id, line.decode().rstrip("\n"), why]]


def _attribute_refusal(session: WandbSession, attribute: str, items: list[Any]) -> str:
    """Set an attribute of the run. Why the server refuses it; "" if it accepts it."""
    return session.refusal({ATTRIBUTES[attribute]: items if attribute == "tags" else items[0]})


def sift(items: list[Any], refusal: Callable[[list[Any]], str]) -> list[tuple[Any, str]]:
    """Find the refused items by bisection; each with the reason. All others are accepted together in the end.

    Args:
        refusal: sends items, replacing those sent before. Returns why they are refused; "" if they are accepted.
    """
    accepted: list[Any] = []
    refused: list[tuple[Any, str]] = []

    def add(batch: list[Any]) -> None:
        if not batch:
            return
        why = refusal([*accepted, *batch])
        if not why:
            accepted.extend(batch)
        elif len(batch) == 1:
            refused.append((batch[0], why))
        else:
            add(batch[: len(batch) // 2])
            add(batch[len(batch) // 2 :])

    add(items)
    return refused
