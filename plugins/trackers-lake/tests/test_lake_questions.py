"""Twenty questions on each engine, and the benchmarks of a lake at a small size: that they run, not how fast."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from benchmarks import lake_questions
from benchmarks.lake_questions import QUESTIONS, by_datafusion, by_duckdb, differences


@pytest.fixture
def source() -> str:
    """A lake of some runs."""
    return lake_questions.filled(Path("lake"), 40, 120)


def test_datafusion_gives_the_rows_of_duckdb(source: str) -> None:
    """Each of the twenty answers has rows, and the same values."""
    for question in QUESTIONS:
        expected = by_duckdb(source, question)
        assert expected, question.name
        assert differences(by_datafusion(source, question), expected, question.summed) == 0, question.name


@pytest.mark.timeout(900)
@pytest.mark.parametrize("cluster", ["standalone", "local-cluster"])
def test_spark_gives_the_rows_of_duckdb(source: str, cluster: str) -> None:
    """On a master with two workers, and on a cluster of two executors that Spark starts itself."""
    master: Any = (
        lake_questions.standalone() if cluster == "standalone" else nullcontext(lake_questions.local_cluster())
    )
    with master as address:
        answers = lake_questions.by_spark(source, address, QUESTIONS)
    for question, answer in zip(QUESTIONS, answers, strict=True):
        assert answer.rows is not None, question.name
        assert differences(answer.rows, by_duckdb(source, question), question.summed) == 0, question.name


def test_questions_are_asked_with_little_memory(source: str, tmp_path: Path) -> None:
    """What doesn't fit goes to a directory where one is given; without, DuckDB gives up."""
    (question,) = [one for one in QUESTIONS if one.name == "changes of all metrics"]
    free = lake_questions.duckdb_with(source, question)
    assert (free.seconds is not None, free.memory > 0, free.disk) == (True, True, 0)
    least = 12 * 2**20
    assert "Out of Memory" in lake_questions.duckdb_with(source, question, least).error
    spilled = lake_questions.duckdb_with(source, question, least, str(tmp_path / "spill"))
    assert (spilled.error, spilled.disk > 0) == ("", True)


def test_differences_are_counted() -> None:
    """Sums of floats may differ by their order; other values, columns and rows may not."""
    rows = [{"n": 1, "mean": 0.1 + 0.2}]
    assert differences([{"n": 1, "mean": 0.3}], rows, ("mean",)) == 0
    assert differences([{"n": 1, "mean": 0.3}], rows, ()) == 1
    assert differences([{"n": 2, "mean": 0.31}], rows, ("mean",)) == 2
    assert differences([], rows, ()) == differences([{"n": 1}], rows, ()) == 1
