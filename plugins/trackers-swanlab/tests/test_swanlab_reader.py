"""SwanLab's directories as a source and a destination of copies; what is damaged in them, and what they claim."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from trackers_swanlab import reader

from tests import again
from tests.readers import test_bombs
from tests.readers.test_local import DOUBLES, Place

globals().update(again.of_reader("swanlab", "run-1.swanlab"))
globals().update(again.of_round_trip("swanlab", Place("swanlab", DOUBLES, lambda info: str(info.path("swanlab")))))
globals().update(again.of_copies("swanlab", "swanlab:swanlab"))


def test_configuration_is_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read as any YAML of others, and refused in a word where PyYAML isn't installed."""
    assert reader._yaml("lr:\n  value: 0.1\n") == {"lr": {"value": 0.1}}
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ValueError, match="pip install pyyaml"):
        reader._yaml("a: 1")


@pytest.mark.slow
def test_claims_cost_neither_memory_nor_time() -> None:
    """A file of terabytes of nothing is refused in one line."""
    test_bombs.check_claims(test_bombs.of_nothing(swanlab="s.swanlab"))


@pytest.mark.slow
def test_damaged_files_end_in_one_line(tmp_path: Path) -> None:
    """Whatever is changed in a run's files."""
    again.fuzzed("swanlab", tmp_path / "seeds")
