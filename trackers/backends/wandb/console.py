"""Training's console output as lines of W&B's Logs tab (``output.log``): each exactly once, also after a kill.

W&B numbers the lines that it receives. So the number of lines up to each restart point is stored beside those of
rows (:mod:`trackers.backends.wandb.history_rows`), and lines that W&B already has are skipped when records are sent
again. An incomplete line becomes a line of its own; lines of other ranks begin with ``[rank 3]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trackers.backends.shared.console_log import console_lines
from trackers.backends.wandb.private_names import interface
from trackers.formats.wandb_datastore import records
from trackers.records import Console


class ConsoleSender:
    """Sends console lines through the client's sessions.

    Args:
        run: W&B's own object.
        begin: number of lines in the records before the first one that will be added.
        held_lines: number of lines that W&B already has.
    """

    def __init__(self, run: Any, begin: int, held_lines: int) -> None:
        self.count = begin
        self._run = run
        self._held_lines = held_lines
        self._counts: list[tuple[int, int]] = [(0, begin)]

    def add(self, record: Console) -> None:
        """Send those lines of a record that W&B doesn't have."""
        lines = console_lines(record)
        new = lines[max(0, self._held_lines - self.count) :]
        self.count += len(lines)
        self._counts.append((record.seq, self.count))
        if new:
            self._publish(record, "".join(f"{line}\n" for line in new))

    def reopened(self, run: Any) -> None:
        """Continue with another session's run."""
        self._run = run

    def counts_at(self, points: Sequence[int], previous: Mapping[int, int]) -> dict[int, int]:
        """Number of lines in the records up to each restart point. previous: the last result of this method."""
        counts = {}
        for seq in points:
            counts[seq] = previous[seq] if seq in previous else next(n for at, n in reversed(self._counts) if at <= seq)
        newest = max(points, default=0)
        passed = [index for index, (record_seq, _) in enumerate(self._counts) if record_seq <= newest]
        del self._counts[: passed[-1] if passed else 0]
        return counts

    def _publish(self, record: Console, text: str) -> None:
        from wandb.proto import wandb_internal_pb2 as protocol

        kinds = protocol.OutputRawRecord.OutputType
        kind = kinds.STDERR if record.stream == "stderr" else kinds.STDOUT
        sent = protocol.OutputRawRecord(line=text, output_type=kind)
        sent.timestamp.FromNanoseconds(int(record.time * 1e9))
        interface(self._run)._publish_output_raw(sent, nowait=False)


def lines_in(paths: Iterable[Path]) -> int:
    """Number of lines in offline files."""
    return sum(
        record.output_raw.line.count("\n")
        for path in paths
        for record in records(path)
        if record.WhichOneof("record_type") == "output_raw"
    )
