"""Aim's stores where any source is taken: the live page, readers' common promises, damaged files."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import aim_stand_in as stand_in
import pytest

from tests import again
from tests.ui.support import site

globals().update(again.of_reader("aim"))


def test_pictures_inside_aims_store_are_shown(tmp_path: Path) -> None:
    """They are put beside, as those in event files."""
    with stand_in.installed():
        stand_in.with_objects(tmp_path)
        with site(f"aim:{tmp_path}", runs=1) as found:
            key = found.rows()[0]["key"]
            there = {one["name"]: one["type"] for one in found.ask("run", run=key)["media"]}
            assert there["samples"] == "image"
            asked = urlencode({"run": key, "name": "samples", "type": "image", "place": 0, "item": 0})
            assert found.get(f"media?{asked}")[1]["content-type"].startswith("image/")


@pytest.mark.slow
def test_damaged_files_end_in_one_line(tmp_path: Path) -> None:
    """Whatever is changed in what RocksDB gives, and in Aim's index."""
    again.fuzzed("aim", tmp_path / "seeds")
