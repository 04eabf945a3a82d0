"""A plug-in in a distribution of its own works where only wheels are installed, and is what docs/plugins.md shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import ROOT
from tests.e2e.test_docs import blocks
from trackers.testing import checks

PLUGIN = ROOT / "examples/plugin"


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> str:
    """A command's output; its end with another code than 0 fails with all that it printed."""
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of a Python in which trackers and the plug-in are installed from wheels, outside the checkout."""
    site = tmp_path_factory.mktemp("site")
    # Neither index nor isolation: a build that needs the network would fail here.
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "install", *options, "--target", site, ROOT, PLUGIN)
    return {"PYTHONPATH": str(site), "SITE": str(site)}


@pytest.mark.slow
def test_plugin_is_known_by_its_entry_point(installed: dict[str, str], tmp_path: Path) -> None:
    """The registry lists and loads it, without importing its client."""
    code = (
        "import sys, trackers.backends.registry as r; cls = r.load('sqlite')\n"
        "print(r.__file__, cls.__module__, 'sqlite' in r.tracker_names(), 'sqlite3' in sys.modules)"
    )
    printed = run(sys.executable, "-c", code, env=installed).split()
    assert printed == [f"{installed['SITE']}/trackers/backends/registry.py", "trackers_sqlite", "True", "False"]


@pytest.mark.slow
def test_plugin_passes_its_own_tests(installed: dict[str, str], tmp_path: Path) -> None:
    """Its test file, which is the conformance kit, passes against the installed wheels."""
    printed = run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path,
        "-c", os.devnull, PLUGIN / "test_trackers_sqlite.py", env=installed,
    )  # fmt: skip
    assert f"{len(checks())} passed" in printed


@pytest.mark.parametrize("file", ["trackers_sqlite.py", "test_trackers_sqlite.py", "pyproject.toml"])
def test_page_shows_the_plugin_that_is_tested(file: str) -> None:
    """The files on the page, put together, are the files in examples/plugin."""
    shown = [block.body for block in blocks((ROOT / "docs/plugins.md").read_text()) if block.tag("file") == file]
    assert "".join(shown) == (PLUGIN / file).read_text()


def test_plugin_is_short() -> None:
    """What the page promises, "forty lines of code", holds."""
    lines = (PLUGIN / "trackers_sqlite.py").read_text().splitlines()
    code = [line for line in lines if line.strip() and not line.strip().startswith(("#", '"""', "from ", "import "))]
    assert len(code) <= 40
