"""What each known program prints is read whole: step, names, units, validation, end, the release of its format."""

from __future__ import annotations

import io
import math
from datetime import datetime, timezone

import pytest
from log_look_alikes import LOOK_ALIKES
from log_samples import SAMPLES, Sample
from log_variants import VARIANTS
from trackers_console_logs.programs import ALL
from trackers_console_logs.reader import LogStream, looked_through

from tests import LOGS
from trackers.errors import NotFound
from trackers.records import Config, Finish, Metrics, Record, merge


def read(text: str | bytes) -> tuple[list[Record], str]:
    """The records of a log and its note."""
    content = text if isinstance(text, bytes) else text.encode()
    known = looked_through(lambda: io.BytesIO(content), 2026)  # as the reader of files
    stream = LogStream("a.log", 1e9, 2026, known)
    return list(stream.read(io.BytesIO(content))), stream.note()


def rows(records: list[Record]) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for record in records:
        if isinstance(record, Metrics):
            found.setdefault(record.step or 0, {}).update(record.values)
    return found


pytestmark = pytest.mark.usefixtures("utc")


ALL_SAMPLES = {**SAMPLES, **VARIANTS}


@pytest.mark.parametrize(("name", "sample"), ALL_SAMPLES.items(), ids=ALL_SAMPLES)
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
    numbered = "the log has no steps: its rows are numbered"
    assert note.startswith(sample.note) if sample.note else note in ("", numbered)
    times = [record.time for record in records if isinstance(record, Metrics)]
    if sample.begins:
        assert [_shown(times[0]), _shown(times[-1])] == [sample.begins, sample.ends]


def _shown(time: float) -> str:
    return datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


@pytest.mark.parametrize("text", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_lines_of_other_programs_are_refused(text: str) -> None:
    """In one line, which names the option for them."""
    with pytest.raises(NotFound, match="--log-format FILE") as caught:
        read(text)
    assert "\n" not in str(caught.value)


SAME = {
    "trainer-4": ("dict-other", "evaldict"), "trainer-5": ("dict-other", "evaldict"), "lightning": ("tqdmepoch",),
    "maxtext-2026": ("own-completed",), "nanochat": ("own-step-of",), "accelerate": ("own-step-of",),
    "prime-rl": ("own-step",), "prime-rl-sft": ("own-step",), "automodel": ("own-step-epoch",),
}  # fmt: skip
"""Whose lines are of a program's very form: with other keys, and without a logger."""


@pytest.mark.parametrize("name", SAMPLES)
def test_lines_of_other_programs_add_no_values(name: str) -> None:
    """In the midst of a known program's log, too: what may be a row of it is counted."""
    lines = (LOGS / f"{name}.log").read_text().splitlines(keepends=True)
    whole, noted = read("".join(lines))
    for other, text in LOOK_ALIKES.items():
        if other in SAME.get(name, ()):
            continue
        records, note = read("".join([*lines[:-1], lines[-1].rstrip("\n") + "\n", text]))
        found = rows(records)
        assert {step: str(values) for step, values in found.items()} == {
            step: str(values) for step, values in rows(whole).items()
        } or ("not understood" in note and note != noted), text


def test_row_before_its_programs_sign_is_read() -> None:
    """Accelerate says its speed behind some steps only: the rows before that aren't another program's."""
    records, note = read("Step 1/20, Loss: 2.5000\nStep 2/20, Loss: 2.2500 | Average tokens/s: 3072.00\n")
    assert (rows(records)[1], note) == ({"train_loss": 2.5}, "")


def test_every_program_has_a_sample() -> None:
    """A table without a log to try it on isn't one of ours."""
    formats = {sample.format.partition(" (")[0] for sample in SAMPLES.values()}
    assert {program.name for program in ALL} <= formats
