"""An archive of lines, by a tracker of three short methods; Comet's and ClearML's tests have the promises."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from trackers_archives import ArchiveTracker, CommittedState, ending

from tests.helpers import T0, Driver, run_info, stream
from trackers.records import Metrics, Record
from trackers.tracker import Status


class LinesTracker(ArchiveTracker):
    """Values as lines of JSON, in ``lines/<key>.zip``."""

    name: ClassVar[str] = "lines"
    symbol: ClassVar[str] = "LINES_DIR"
    lines: ClassVar[str] = "values.jsonl"
    command: ClassVar[str] = "lines upload"

    def _head(self, state: CommittedState) -> bytes:
        return json.dumps({"generation": state.generation}).encode() + b"\n"

    def _lines(self, record: Record, draft: CommittedState) -> Iterator[bytes]:
        if isinstance(record, Metrics):
            yield json.dumps({"step": record.step, **record.values}).encode() + b"\n"

    def _is_superseded(self, line: bytes, last_step: int) -> bool:
        return bool(json.loads(line)["step"] > last_step)

    def _file_of(self, line: bytes) -> str:
        return ""

    def _fill(self, archive: zipfile.ZipFile, lines: Iterator[bytes], status: Status) -> None:
        next(lines)
        self._add(archive, "values.jsonl", lines)
        self._add(archive, "end.txt", iter([ending(status).encode()]))


def archived(folder: Path) -> tuple[list[dict[str, float]], str]:
    """What the one archive holds: the values, and how the run ended."""
    (path,) = folder.glob("lines/*.zip")
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("values.jsonl").splitlines()
        return [json.loads(line) for line in lines], archive.read("end.txt").decode()


def test_archive_has_each_value_once(tmp_path: Path) -> None:
    """A delivery that goes on from an earlier state writes nothing twice; a run that goes on has another archive."""
    records = stream([Metrics(step=step, time=T0 + step, values={"loss": 1.0 / (step + 1)}) for step in range(4)])
    run = Driver(LinesTracker, run_info(tmp_path))
    run.deliver(records[:2], status=Status("running"))
    again = Driver(LinesTracker, run.info, run.state, 0)
    again.deliver(records, status=Status("failed", exit_code=3, reason="no memory"))
    values, end = archived(tmp_path)
    assert [value["step"] for value in values] == [0, 1, 2, 3]
    assert end == "failed (exit code 3): no memory"
    more = [*records, *stream([Metrics(step=4, time=T0 + 9, values={"loss": 0.1})], first_seq=5)]
    Driver(LinesTracker, run.info, again.state, again.cursor).deliver(more, status=Status("finished"))
    assert [value["step"] for value in archived(tmp_path)[0]] == [0, 1, 2, 3, 4]
    assert archived(tmp_path)[1] == "finished"
