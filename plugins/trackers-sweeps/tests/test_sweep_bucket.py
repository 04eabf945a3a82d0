"""Workers that share a bucket of moto's server alone: S3's own protocol, and its conditional requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_sweep_store import quick, train

from tests.object_storage.support import BucketServer

__all__ = ["quick"]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket's address."""
    server = BucketServer()
    server.start()
    for name, value in server.variables().items():
        monkeypatch.setenv(name, value)
    yield "s3://bucket/runs"
    server.stop()


@pytest.mark.processes
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("workers", "points"), [(4, 12), (10, 100)])
def test_each_point_is_trained_once_by_machines_that_share_a_bucket(
    workers: int, points: int, bucket: str, tmp_path: Path
) -> None:
    """A machine that goes down with its program loses no point."""
    train(workers, points, bucket, tmp_path)
