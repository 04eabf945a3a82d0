"""docs/more-frameworks.md with what needs minutes, or packages that ``make test-frameworks`` has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ROOT
from tests.e2e.test_docs import blocks, run_page


@pytest.mark.timeout(1800)
def test_page_does_what_it_shows(tmp_path: Path) -> None:
    """All scripts of the page run as shown."""
    text = (ROOT / "docs" / "more-frameworks.md").read_text("utf-8")
    assert sum(block.tag("frameworks") is not None for block in blocks(text)) > 5
    run_page(text, "more-frameworks.md", tmp_path, everything=True)
