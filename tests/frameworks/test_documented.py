"""Scripts of docs/frameworks.md that need packages of the extra ``frameworks``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.e2e.test_docs import Block, blocks
from tests.frameworks.support import only

PAGE = (ROOT / "docs/frameworks.md").read_text("utf-8")
SCRIPTS = [block for block in blocks(PAGE) if block.tag("frameworks") is not None]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda block: f"line {block.line}")
def test_script_runs_as_shown(script: Block, tmp_path: Path) -> None:
    """A script of the page ends well, and leaves a finished run."""
    environment = {**os.environ, "TRACKER_FINISH_TIMEOUT": "120", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", script.body], check=True, env=environment)
    assert only().status == "finished"


def test_page_has_such_scripts() -> None:
    """The search above finds them."""
    assert len(SCRIPTS) > 1
