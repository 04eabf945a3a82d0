"""What tracker and reader ask of librdkafka, by Confluent's client."""

from __future__ import annotations

import os
from typing import Any

from trackers.errors import DeliveryError, Refused, Rejected, Unavailable

TIMEOUT_S = 30.0
"""How long a message may wait for its broker, and an answer may take, in seconds."""
_MOST_SETTINGS_BYTES = 1 << 16
_OURS = frozenset({"bootstrap.servers", "group.id", "enable.auto.commit", "enable.partition.eof", "auto.offset.reset"})
_REFUSED = (
    "_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED", "TOPIC_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "TOPIC_EXCEPTION",
    "UNSUPPORTED_SASL_MECHANISM", "_INVALID_ARG",
)  # fmt: skip
_REJECTED = ("MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_MSG_SIZE", "INVALID_RECORD")


def settings(servers: str, path: str) -> dict[str, Any]:
    """Of the client. path: KAFKA_CONFIG; "" for none.

    Raises:
        Refused: the file can't be read, or a line isn't NAME=VALUE.
    """
    found: dict[str, Any] = {}
    if path:
        try:
            if not os.path.isfile(path):
                raise OSError("it is no file")
            with open(path, encoding="utf-8") as file:
                lines = file.read(_MOST_SETTINGS_BYTES).splitlines()
        except (OSError, UnicodeError) as error:
            raise Refused(f"KAFKA_CONFIG {path} can't be read: {error}") from None
        for number, line in enumerate(map(str.strip, lines), 1):
            name, equals, value = line.partition("=")
            if not line or line[0] in "#!":
                continue
            if not equals:
                raise Refused(f"KAFKA_CONFIG {path}: line {number} isn't NAME=VALUE")
            if name.strip() not in _OURS:
                found[name.strip()] = value.strip()
    return {"socket.timeout.ms": int(TIMEOUT_S * 1000), **found, "bootstrap.servers": servers}


def made(kind: str, values: dict[str, Any]) -> Any:
    """A producer or a consumer; what it says by itself goes nowhere.

    Raises:
        Refused: a setting isn't known to the client, or has a wrong value.
    """
    import logging

    import confluent_kafka

    quiet = logging.getLogger("trackers.kafka.client")
    quiet.disabled = True  # errors come as exceptions, once
    try:
        return getattr(confluent_kafka, kind)(values, logger=quiet)
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        raise Refused(f"Kafka's client refuses KAFKA_CONFIG: {described(error)}") from None


def described(error: Any) -> str:
    """What librdkafka says, in words."""
    first = error.args[0] if getattr(error, "args", None) else error
    return str(first.str() if hasattr(first, "str") else first)


def translated(error: Any, where: str) -> DeliveryError:
    """A KafkaError or KafkaException as an error that a delivery understands. where: brokers and topic."""
    first = error.args[0] if getattr(error, "args", None) else error
    name, words = first.name() if hasattr(first, "name") else "", f"{where}: {described(error)}"
    if name in _REFUSED:
        return Refused(words)
    return Rejected(words) if name in _REJECTED else Unavailable(words)
