"""The pages of frameworks with what needs packages of the extra ``frameworks``, or minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ROOT
from tests.e2e.test_docs import blocks, run_page


@pytest.mark.parametrize(("page", "least"), [("frameworks.md", 5), ("more-frameworks.md", 3)])
@pytest.mark.timeout(900)
def test_page_does_what_it_shows(page: str, least: int, tmp_path: Path) -> None:
    """All scripts of the page run as shown."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    assert sum(block.tag("frameworks") is not None for block in blocks(text)) > least
    run_page(text, page, tmp_path, everything=True)
