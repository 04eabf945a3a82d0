"""Options, sources and the client's settings, without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from trackers_kafka.client import settings
from trackers_kafka.precheck import KafkaPrecheck
from trackers_kafka.reader import KafkaReader

from trackers.errors import ConfigError, Refused, UsageError


@pytest.mark.parametrize(("options", "words"), [
    ({}, "needs brokers: KAFKA_SERVERS=HOST:PORT"),
    ({"KAFKA_SERVERS": "broker"}, "no broker's address"),
    ({"KAFKA_SERVERS": "kafka://u:p@broker:9092"}, "no broker's address"),
    ({"KAFKA_SERVERS": "a:1,b"}, "'b'"),
    ({"KAFKA_SERVERS": "a:1", "KAFKA_TOPIC": "my topic"}, "can't be a topic"),
])  # fmt: skip
def test_wrong_options_are_refused_before_the_first_step(options: dict[str, str], words: str) -> None:
    """One line that names the option."""
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        KafkaPrecheck.check(options)


@pytest.mark.parametrize("where", ["", "broker", "broker:9092/a b", "http://broker:9092/t"])
def test_wrong_sources_are_refused(where: str) -> None:
    """One line with the form."""
    with pytest.raises(UsageError, match="kafka:HOST:PORT/TOPIC#RUN"):
        KafkaReader().runs(where)


@pytest.mark.parametrize(("text", "words"), [("no pair\n", "line 1 isn't NAME=VALUE"), (None, "can't be read")])
def test_settings_that_cannot_be_read_are_refused(text: str | None, words: str, tmp_path: Path) -> None:
    """By the line; and by the name where the client doesn't know it."""
    path = tmp_path / "client.properties"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Refused, match=words):
        settings("a:1", str(path))


def test_settings_keep_what_delivery_needs(tmp_path: Path) -> None:
    """Brokers stay those of the option; a comment is none of them."""
    path = tmp_path / "client.properties"
    path.write_text("# mine\n\nbootstrap.servers = other:1\nsasl.username = me\ngroup.id=x\n")
    assert settings("a:1", str(path)) == {"socket.timeout.ms": 30000, "sasl.username": "me", "bootstrap.servers": "a:1"}
