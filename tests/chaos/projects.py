"""A project of two hundred runs, copied from W&B to MLflow: ``make copy-project``."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.backends.wandb.support import server
from tests.copying.test_wandb import copy_project
from tests.fakes.wandb_server import WandbServer

__all__ = ["server"]
RUNS = 200


@pytest.mark.timeout(1800)
def test_project_of_two_hundred_runs(server: WandbServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each run arrives with its own values, once."""
    began = time.monotonic()
    copy_project(server, f"sqlite:///{tmp_path}/ml.db", RUNS)
    with capsys.disabled():
        print(f"\n{RUNS} runs copied, checked and copied again in {time.monotonic() - began:.0f} s")
