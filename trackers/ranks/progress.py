"""How far the values across ranks of an attempt are: of which rows of the main rank results are still to come."""

from __future__ import annotations

import math
import time

import msgspec

from trackers.journal.run_directory import RunDirectory, StreamName, read_json
from trackers.journal.stream import StreamReader
from trackers.ranks.launch import folder_of, rank_streams
from trackers.records import RankRow, offset_of
from trackers.tracker import RunInfo

MARGIN_S = 5.0
"""Time beyond ``TRACKER_REDUCE_WAIT`` after which a row isn't waited for any more, in seconds."""
BLOCK = 100


class _Position(msgspec.Struct):
    offset: int = 0
    done: list[int] = []


class _State(msgspec.Struct):
    """What of a reducer's state counts here: :class:`trackers.relay.aggregation.output.OutputState`."""

    size: int = 0
    lines: str = ""
    streams: dict[str, _Position] = {}
    done: bool = False


class ReductionProgress:
    """Follows the reducer of a run's newest attempt by its files."""

    def __init__(self, run: RunDirectory, info: RunInfo) -> None:
        self._run = run
        entry = info.attempts[-1] if info.attempts else {}
        self._attempt = int(entry.get("number", 1))
        self._main = int(entry.get("rank", 0))
        self._folder = folder_of(run, info, self._attempt)
        self._patience_s = float(info.option("TRACKER_REDUCE_WAIT", 10)) + MARGIN_S
        self._pending = math.inf
        self._since = 0.0

    def pending_since(self) -> float:
        """The time of the main rank's first row whose values across ranks are still to come, in Unix seconds; infinite
        if there is none, or the reducer makes no progress."""
        if self._folder is None:
            return math.inf
        pending = self._first_pending()
        if pending != self._pending:
            self._pending, self._since = pending, time.monotonic()
        return math.inf if time.monotonic() - self._since > self._patience_s else pending

    def _first_pending(self) -> float:
        assert self._folder is not None
        try:
            state = msgspec.convert(read_json(self._run.path / f"reducer.{self._attempt}.json"), _State, strict=False)
        except msgspec.ValidationError:
            state = _State()
        if state.done:
            return math.inf
        output = self._run.stream(StreamName("reducer", 0, self._attempt))
        written = StreamReader(output).size()
        if written < state.size + len(state.lines.encode()):  # the state is stored first
            return min(self._pending, time.time())
        for name, path in rank_streams(self._folder).items():
            if name.number != self._main:
                continue
            position = state.streams.get(str(name), _Position())
            if StreamReader(path).size() <= position.offset:
                continue
            for record in StreamReader(path, position.offset).read(BLOCK):
                if isinstance(record, RankRow) and offset_of(record) not in position.done:
                    return record.time
        return math.inf
