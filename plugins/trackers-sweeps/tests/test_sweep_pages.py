"""A sweep's files and directories where others are taken: docs/sweeps.md, damaged files, copies of a store's runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from trackers_sweeps.space import of_file
from typer.testing import CliRunner

from tests import ROOT, again
from tests.e2e import test_docs
from tests.formats.test_yaml_text import bomb
from trackers.cli.app import app
from trackers.errors import UsageError
from trackers.object_storage import addresses

test_page_does_what_it_shows = again.with_values(test_docs.test_page_does_what_it_shows, [ROOT / "docs/sweeps.md"])


@pytest.mark.parametrize("levels", [7, 9, 40])
def test_aliases_that_stand_for_too_much_are_refused(levels: int, tmp_path: Path) -> None:
    """A file of a few lines that stands for millions of values."""
    (tmp_path / "sweep.yaml").write_text(bomb(levels))
    with pytest.raises(UsageError, match="aliases stand for more than"):
        of_file(tmp_path / "sweep.yaml")


def test_copy_isn_t_changed(tmp_path: Path) -> None:
    """A copy of a store's runs gets no runs, which would reach nobody."""
    (tmp_path / addresses.COPY_MARKER).write_text("s3://bucket/runs")
    done = CliRunner().invoke(app, ["run", "--dir", str(tmp_path), "--grid", "lr=0.1,0.2", "--", "python", "train.py"])
    assert isinstance(done.exception, UsageError)
    assert f"{tmp_path} is a copy of a store's runs" in str(done.exception)


@pytest.mark.slow
def test_damaged_files_end_in_one_line(tmp_path: Path) -> None:
    """Whatever is changed in a file of a sweep."""
    again.fuzzed("sweep", tmp_path / "seeds")
