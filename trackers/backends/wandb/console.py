"""What training printed, as the lines of W&B's Logs tab (``output.log``): each once, also after a kill.

W&B numbers the lines that it gets. So the number of lines that the records up to a mark made is kept beside the marks
of rows (:mod:`trackers.backends.wandb.history_rows`), and of what is sent again, the lines that W&B has are left out. A
line that hasn't ended yet is a line of its own there; lines of other ranks begin with ``[rank 3]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trackers.backends.shared.console_log import console_lines
from trackers.formats.wandb_datastore import records
from trackers.records import Console

STATE = "lines"


class ConsoleLines:
    """The lines of one session of the client.

    Args:
        run: W&B's own object. begin: number of lines that the records before the first one to come made.
        held: of those that W&B has.
    """

    def __init__(self, run: Any, begin: int, held: int) -> None:
        self.count = begin
        self._run = run
        self._held = held
        self._after: list[tuple[int, int]] = [(0, begin)]

    def add(self, record: Console) -> None:
        """Send the lines of a record that W&B hasn't."""
        lines = console_lines(record)
        new = lines[max(0, self._held - self.count) :]
        self.count += len(lines)
        self._after.append((record.seq, self.count))
        if new:
            self._publish(record, "".join(f"{line}\n" for line in new))

    def reopened(self, run: Any) -> None:
        """Go on with another session."""
        self._run = run

    def at(self, marks: Sequence[int], before: Mapping[int, int]) -> dict[int, int]:
        """Number of lines that the records up to each mark made. before: what this answered last."""
        found = {}
        for seq in marks:
            known = before.get(seq)
            found[seq] = next(lines for at, lines in reversed(self._after) if at <= seq) if known is None else known
        newest = max(marks, default=0)
        passed = [place for place, (at, _) in enumerate(self._after) if at <= newest]
        del self._after[: passed[-1] if passed else 0]
        return found

    def _publish(self, record: Console, text: str) -> None:
        from wandb.proto import wandb_internal_pb2 as protocol

        kinds = protocol.OutputRawRecord.OutputType
        kind = kinds.STDERR if record.stream == "stderr" else kinds.STDOUT
        sent = protocol.OutputRawRecord(line=text, output_type=kind)
        sent.timestamp.FromNanoseconds(int(record.time * 1e9))
        self._run._interface._publish_output_raw(sent, nowait=False)


def lines_in(paths: Iterable[Path]) -> int:
    """Number of lines in offline files."""
    return sum(
        record.output_raw.line.count("\n")
        for path in paths
        for record in records(path)
        if record.WhichOneof("record_type") == "output_raw"
    )
