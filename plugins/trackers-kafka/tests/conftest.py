"""Tests need a broker: Apache Kafka as a package of npm has it, and Java (`make kafka-check`, which sets TRACKERS_KAFKA
to its folder)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
collect_ignore = [] if "TRACKERS_KAFKA" in os.environ else ["test_kafka.py"]

from kafka_broker import Broker  # noqa: E402


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with its ZooKeeper, for all tests."""
    yield from _started(tmp_path_factory.mktemp("kafka"))


@pytest.fixture
def mortal(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """One that a test may kill."""
    for broker in _started(tmp_path_factory.mktemp("mortal")):
        _name(broker, monkeypatch)
        yield broker


@pytest.fixture
def client(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of trackers and readers."""
    _name(broker, monkeypatch)


def _started(home: Path) -> Iterator[Broker]:
    broker = Broker(Path(os.environ["TRACKERS_KAFKA"]), home)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def _name(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_CONFIG", str(broker.config))
    monkeypatch.setenv("KAFKA_SERVERS", broker.servers)
    monkeypatch.setenv("TRACKER_FINISH_TIMEOUT", "60")
