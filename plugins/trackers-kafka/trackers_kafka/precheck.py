"""What ``init`` asks of Kafka's options before the first step. Imports nothing else of this distribution."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trackers.errors import ConfigError
from trackers.tracker import RunInfo, Tracker

TOPIC = "trackers"
SERVERS = re.compile(r"\s*(\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d{1,5}\s*")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Of a topic: org.apache.kafka.common.internals.Topic, LEGAL_CHARS and MAX_NAME_LENGTH."""


class KafkaPrecheck(Tracker):
    """Kafka: a topic of some brokers."""

    name = "kafka"
    common = True
    needs = ("confluent_kafka",)

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """See that there are brokers, and that the topic is one.

        Raises:
            ConfigError: there is no broker's address, or what is given is none; the topic's name can't be one.
        """
        check_place(str(options.get("KAFKA_SERVERS") or ""), str(options.get("KAFKA_TOPIC") or TOPIC))

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The brokers and the topic."""
        return f"{info.option('KAFKA_SERVERS', '')}/{info.option('KAFKA_TOPIC', TOPIC)}"


def check_place(servers: str, topic: str) -> None:
    """See that brokers and topic are such.

    Raises:
        ConfigError: they aren't.
    """
    if not servers:
        raise ConfigError("tracker 'kafka' needs brokers: KAFKA_SERVERS=HOST:PORT,…")
    if wrong := [one for one in servers.split(",") if not SERVERS.fullmatch(one)]:
        raise ConfigError(f"KAFKA_SERVERS has {wrong[0]!r:.100}, which is no broker's address: HOST:PORT,…")
    if not _NAME.fullmatch(topic) or topic in (".", ".."):
        raise ConfigError(f"KAFKA_TOPIC {topic!r:.100} can't be a topic: up to 249 of A-Z a-z 0-9 . _ -")
