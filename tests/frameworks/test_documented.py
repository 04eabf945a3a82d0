"""docs/frameworks.md with what needs packages of the extra ``frameworks``, or minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ROOT
from tests.e2e.test_docs import blocks, run_page

PAGE = ROOT / "docs/frameworks.md"


@pytest.mark.timeout(900)
def test_page_does_what_it_shows(tmp_path: Path) -> None:
    """All scripts of the page run as shown."""
    text = PAGE.read_text("utf-8")
    assert sum(block.tag("frameworks") is not None for block in blocks(text)) > 5
    run_page(text, PAGE.name, tmp_path, everything=True)
