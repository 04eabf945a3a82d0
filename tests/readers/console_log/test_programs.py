"""What each known program prints is read whole: step, names, units, validation, end, the release of its format."""

from __future__ import annotations

import io
import math

import pytest

from tests.readers.console_log.samples import LOGS, SAMPLES, Sample
from trackers.readers.console_log.programs import ALL
from trackers.readers.console_log.reader import LogStream, survey
from trackers.records import Config, Finish, Metrics, Record, merge


def read(text: str | bytes) -> tuple[list[Record], str]:
    """The records of a log and its note."""
    content = text if isinstance(text, bytes) else text.encode()
    stream = LogStream("a.log", 1e9, 2026, survey(io.BytesIO(content), 2026))
    return list(stream.read(io.BytesIO(content))), stream.note()


def rows(records: list[Record]) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for record in records:
        if isinstance(record, Metrics):
            found.setdefault(record.step or 0, {}).update(record.values)
    return found


@pytest.mark.parametrize(("name", "sample"), SAMPLES.items(), ids=SAMPLES)
def test_log_of_a_program_is_read_whole(name: str, sample: Sample) -> None:
    """Every value of every row, under its name, at its step; nothing is left over."""
    records, note = read((LOGS / f"{name}.log").read_bytes())
    found = rows(records)
    assert found.keys() == sample.rows.keys()
    for step, values in sample.rows.items():
        assert found[step].keys() == values.keys(), step
        for name, value in values.items():
            assert found[step][name] == value or (math.isnan(value) and math.isnan(found[step][name])), (step, name)
    config: dict[str, object] = {}
    for record in records:
        if isinstance(record, Config):
            merge(config, record.values)
    log = config["log"]
    assert isinstance(log, dict)
    assert log["format"] == sample.format
    assert str(log.get("release", "")).startswith(sample.release)
    assert config.get("train_iters") == sample.total
    ends = [record.status for record in records if isinstance(record, Finish)]
    assert ends == ([sample.status] if sample.status else [])
    assert note in ("", "the log has no steps: its rows are numbered")


def test_every_program_has_a_sample() -> None:
    """A table without a log to try it on isn't one of ours."""
    formats = {sample.format.partition(" (")[0] for sample in SAMPLES.values()}
    assert {program.name for program in ALL} <= formats
