"""Runs written straight to disk, as training leaves them: quicker than starting each, and with times of our choice."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from trackers import records
from trackers.journal.run_directory import RunDirectory, project_folder
from trackers.records import Config, Finish, Metrics, Record, Start, Summary
from trackers.tracker import RunInfo

T0 = 1_763_688_000.0

Row = tuple[int | None, float, Mapping[str, Any]]
"""step, seconds after the start, values."""


def write_run(
    run_id: str,
    rows: Iterable[Row] = (),
    *,
    config: Mapping[str, Any] | None = None,
    summary: Mapping[str, Any] | None = None,
    more: Iterable[Record] = (),
    status: str = "finished",
    world_size: int = 1,
    root: Path | str = "runs",
    **fields: Any,
) -> Path:
    """A run of one attempt in the project ``digits``; returns its directory.

    Args:
        more: further records, written before the end. fields: of its identity.
    """
    values: dict[str, Any] = {"name": run_id, "project": "digits", "created": T0, "trackers": ["json"], **fields}
    directory = RunDirectory(Path(root, project_folder(values["project"]), run_id))
    directory.make(str(fields.get("options", {}).get("TRACKER_SHARE", "owner")))
    directory.write_info(RunInfo(id=run_id, **values))
    found: list[Record] = [Start(time=T0, rank=0, world_size=world_size, pid=1)]
    if config:
        found.append(Config(time=T0, values=dict(config)))
    found += [Metrics(step=step, time=T0 + seconds, values=dict(row)) for step, seconds, row in rows]
    found += more
    end = found[-1].time
    if summary:
        found.append(Summary(time=end, values={records.final_name(name): value for name, value in summary.items()}))
    if status != "running":
        found.append(Finish(time=end, status=status, exit_code=0))
    (directory.streams / "rank-0.1.jsonl").write_bytes(b"".join(map(records.encode, found)))
    return directory.path


def said_in_one_line(
    arguments: Iterable[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int | str | None, str]:
    """The exit code and the one line on stderr of a command, run in this process, that can't be carried out."""
    from trackers.cli import main

    monkeypatch.setattr(sys, "argv", ["trackers", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return ended.value.code, error
