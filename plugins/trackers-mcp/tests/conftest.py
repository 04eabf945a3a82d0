"""What the tests of agents share."""

from __future__ import annotations

import os
from pathlib import Path

import mcp_project as project
import pytest


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the prepared runs."""
    folder = tmp_path_factory.mktemp("agents")
    before = os.getcwd()
    os.chdir(folder)
    try:
        project.make()
    finally:
        os.chdir(before)
    return folder / "runs"
