"""``trackers setup`` with a real package index: ``make setup-check``."""

from __future__ import annotations

import os
import subprocess
import sys
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


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("setting", ["", "UV_OFFLINE"])
def test_environment_by_uv(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where uv is on PATH, it makes the environment, which has no pip then; where its own settings keep it from the
    index, pip does."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path / "uv"), "uv"]
    subprocess.run(pip, check=True)
    monkeypatch.setenv("PATH", f"{tmp_path / 'uv/bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    if setting:
        monkeypatch.setenv(setting, "1")
    done = CliRunner().invoke(app, ["setup", "tensorboard"])
    assert done.exit_code == 0, done.output + repr(done.exception)
    assert "installing with uv into" in done.output
    assert ("installing with pip into" in done.output) is bool(setting)
    made = environments.find("tensorboard")
    assert made is not None
    assert environments.has_tested_versions(made)
    subprocess.run([made.python, "-c", "import tensorboard"], check=True, cwd=tmp_path)
