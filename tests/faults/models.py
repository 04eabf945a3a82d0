"""Trackers on paper, one for each of the three ways in which a delivery that comes again is made harmless.

What they hold lies in class attributes, as a destination lies outside the process that delivers to it: an object of
theirs can die at any moment. ``point`` is called wherever the real ones could die.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from trackers.records import ALL_KINDS, Record
from trackers.tracker import Cursor, RunInfo, State, Status, Tracker


class Model(Tracker):
    """What the three have in common. ``held``: ids in the order in which they arrived."""

    name = "model"
    accepts = ALL_KINDS
    held: ClassVar[list[str]] = []
    status: ClassVar[str] = ""
    point: ClassVar[staticmethod[[str], None]] = staticmethod(lambda name: None)

    @classmethod
    def reset(cls) -> None:
        """An empty destination."""
        cls.held, cls.status = [], ""


class Idempotent(Model):
    """The destination ignores a record whose id it has (trackio, MLflow)."""

    name = "idempotent"
    held: ClassVar[list[str]] = []
    status: ClassVar[str] = ""

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        state["opened"] = int(state.get("opened", 0)) + 1
        state.save()
        return None

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        for record in records:
            if record.id not in self.held:
                self.held.append(record.id)
            self.point("idempotent")

    def close(self, status: Status) -> None:
        type(self).status = status.name


class Asking(Model):
    """The client keeps the newest records to itself for a while; ``open`` asks what arrived (W&B)."""

    name = "asking"
    held: ClassVar[list[str]] = []
    seqs: ClassVar[list[int]] = []
    status: ClassVar[str] = ""
    LAG = 1

    @classmethod
    def reset(cls) -> None:
        super().reset()
        cls.seqs = []

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        self._taken = self.seqs[-1] if self.seqs else 0
        self._waiting: list[Record] = []
        return Cursor(self._taken)

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        for record in records:
            if record.seq > self._taken:
                self._taken = record.seq
                self._waiting.append(record)
                self._send(self.LAG)

    def close(self, status: Status) -> None:
        self._send(0)
        type(self).status = status.name

    def _send(self, keep: int) -> None:
        while len(self._waiting) > keep:
            record = self._waiting.pop(0)
            self.held.append(record.id)
            self.seqs.append(record.seq)
            self.point("asking")


class Owning(Model):
    """The tracker owns its file, and cuts it back to the length in its state (TensorBoard, JSON, CSV)."""

    name = "owning"
    held: ClassVar[list[str]] = []
    status: ClassVar[str] = ""

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        self._state = state
        length = int(state.get("length", 0))
        del self.held[length:]
        self._seq = int(state.get("seq", 0))
        return None if length or not self._seq else Cursor(0)

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        for record in records:
            if record.seq > self._seq:
                self.held.append(record.id)
                self._seq = record.seq
            self.point("owning")
        self._state["length"] = len(self.held)
        self._state["seq"] = self._seq

    def close(self, status: Status) -> None:
        type(self).status = status.name


MODELS: dict[str, Any] = {"idempotent": Idempotent, "asking": Asking, "owning": Owning}
