"""``trackers setup`` with a real package index: ``make setup-check``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trackers.cli.app import app
from trackers.support import environments


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("tracker", ["wandb", "trackio", "tensorboard", "mlflow"])
def test_environment_from_the_index(tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wheels are downloaded, and an environment is made of them alone, which imports the tested client."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for words in (["--download", str(tmp_path / "wheels")], ["--from", str(tmp_path / "wheels")]):
        done = CliRunner().invoke(app, ["setup", tracker, *words])
        assert done.exit_code == 0, done.output + repr(done.exception)
    made = environments.find(tracker)
    assert made is not None
    assert environments.has_tested_versions(made)
    subprocess.run([made.python, "-c", f"import {tracker}"], check=True, cwd=tmp_path)
