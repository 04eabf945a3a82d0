"""State of a delivery: its progress and its failures. The file is replaced atomically at each commit."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from trackers.journal.run_directory import RunDirectory, read_json


class DeliveryState(msgspec.Struct, kw_only=True):
    """State of a delivery: the content of ``delivery/<tracker>.json``.

    delivered, rejected: records, up to number ``counted``. skipped: by kind, records that the tracker doesn't take.
    error: the failure that lasts, or "". failures: in a row, over restarts. strange: the exceptions among them that no
    tracker is meant to raise. stopped: it won't go on by itself.
    told: what the user was told of that failure, by attempt and kind. closed: the status it closed with.
    verify: what was delivered is to be read back. verified: what that found, when it was done last.
    times: of the last record of each stream. damaged: lines of the journal skipped, up to ``damaged_at`` in a stream.
    """

    tracker: str
    seq: int = 0
    offsets: dict[str, Annotated[int, msgspec.Meta(ge=0)]] = {}
    times: dict[str, float] = {}
    damaged: int = 0
    damaged_at: dict[str, int] = {}
    state: dict[str, Any] = {}
    delivered: int = 0
    rejected: int = 0
    counted: int = 0
    skipped: dict[str, int] = {}
    error: str = ""
    error_since: float = 0.0
    failures: int = 0
    strange: int = 0
    told: list[str] = []
    stopped: bool = False
    closed: str = ""
    verify: bool = False
    verified: dict[str, Any] = {}
    time: float = 0.0


def read_account(run: RunDirectory, tracker: str) -> DeliveryState:
    """What the file says; a fresh account where it is missing or damaged."""
    try:
        return msgspec.convert(
            {"tracker": tracker, **read_json(run.delivery_state(tracker))}, DeliveryState, strict=False
        )
    except msgspec.ValidationError:
        return DeliveryState(tracker=tracker)
