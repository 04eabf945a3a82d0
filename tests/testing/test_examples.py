"""The examples that were written from docs/plugins.md pass their own tests, where an installer put them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT, plugin_site
from tests.fakes import servers


def passes(name: str, site: Path, **env: str) -> None:
    """Its tests, by pytest alone, in an interpreter that knows its entry points."""
    home = ROOT / "examples" / name
    plugin_site.install(site, name, plugin_site.points(home))
    path = os.pathsep.join(map(str, (site, home, ROOT)))
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", site, home / "tests"]
    env = {**os.environ, "PYTHONPATH": path, **env}
    done = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout


@pytest.mark.processes
def test_devices(tmp_path: Path) -> None:
    """A source of devices."""
    passes("trackers-hwmon", tmp_path)


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.processes
def test_tracker_reader_copy_and_command(tmp_path: Path) -> None:
    """A database server: all that check_plugin looks at."""
    if servers.postgresql_programs() is None:
        pytest.skip("needs PostgreSQL: no server programs in /usr/lib/postgresql or on PATH")
    with servers.postgresql() as url:
        passes("trackers-postgres", tmp_path, TEST_POSTGRES_URL=url.replace("+psycopg2", ""))
