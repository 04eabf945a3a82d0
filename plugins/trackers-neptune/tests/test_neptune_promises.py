"""What every source must stand, with Neptune's exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import again
from tests.readers import test_bombs

globals().update(again.of_reader("neptune", "run_part_0.parquet"))


@pytest.mark.slow
def test_claims_cost_neither_memory_nor_time() -> None:
    """A file of terabytes of nothing is refused in one line."""
    test_bombs.check_claims(test_bombs.of_nothing(neptune="s_part_0.parquet"))


@pytest.mark.slow
def test_damaged_files_end_in_one_line(tmp_path: Path) -> None:
    """Whatever is changed in an export's tables."""
    again.fuzzed("neptune", tmp_path / "seeds")
