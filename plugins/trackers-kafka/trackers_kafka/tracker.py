"""Kafka: each record of a run is a message, keyed by the run, whose value is a line of JSON.

A record that is sent again has the id that it had; who takes the messages from the topic keeps the first of an id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from trackers.errors import DeliveryError, Unavailable
from trackers.records import (
    Alert,
    Config,
    Define,
    Environment,
    Finish,
    Info,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
    encode,
)  # fmt: skip
from trackers.support.failpoints import failpoint
from trackers.tracker import Cursor, RunInfo, State, Status
from trackers_kafka.client import TIMEOUT_S, made, settings, translated
from trackers_kafka.precheck import TOPIC, KafkaPrecheck


def preload() -> None:
    """Import what deliveries need, in the process that forks them."""
    import confluent_kafka  # noqa: F401


class KafkaTracker(KafkaPrecheck):
    """Messages of a topic."""

    accepts = frozenset({Alert, Config, Define, Environment, Finish, Info, Metrics, Start, Summary, Text})

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """See :class:`trackers.tracker.Tracker`."""
        servers, self._topic = str(info.option("KAFKA_SERVERS", "")), str(info.option("KAFKA_TOPIC", TOPIC))
        self._where = f"{servers}/{self._topic}"
        self._own = {"run_id": info.id, "project": info.project}
        self._key = f"{info.project}/{info.id}".encode("utf-8", "replace")
        self._producer = made("Producer", {
            "acks": "all", "max.in.flight.requests.per.connection": 1, "linger.ms": 5,
            "compression.type": "gzip", **settings(servers, str(info.option("KAFKA_CONFIG", ""))),
            "message.timeout.ms": int(TIMEOUT_S * 1000),
        })  # fmt: skip
        state["url"] = f"kafka:{self._where}#{info.id}"
        self._attempt = info.starts
        about = {
            "kind": "run", "id": f"run.{self._attempt}.{info.name}", "time": info.created, "name": info.name,
            "group": info.group, "job_type": info.job_type, "tags": info.tags, "notes": info.notes,
            "host": info.host, "user": info.user, "forked_from": info.forked_from,
        }  # fmt: skip
        self._send([about])
        return None

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """See :class:`trackers.tracker.Tracker`.

        Raises:
            Unavailable, Refused, Rejected: by what the brokers answer.
        """
        lines = []
        for record in records:
            line = msgspec.json.decode(encode(record))
            line.update(id=record.id, seq=record.seq)
            lines.append(line)
        self._send(lines)
        failpoint("kafka.records.after")

    def close(self, status: Status) -> None:
        """See :class:`trackers.tracker.Tracker`."""
        try:
            if status.name != "running":
                named = f"status.{self._attempt}.{status.name}"
                self._send([{"kind": "status", "id": named, **msgspec.to_builtins(status)}])
        finally:
            del self._producer

    def _send(self, lines: Sequence[dict[str, Any]]) -> None:
        """Send messages, and wait until the topic has each, or each has failed: none is under way then."""
        import confluent_kafka

        failed: list[DeliveryError] = []

        def answer(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(translated(error, self._where))

        for line in lines:
            value = msgspec.json.encode({**self._own, **line})
            while True:
                try:
                    self._producer.produce(self._topic, value, self._key, on_delivery=answer)
                    break
                except BufferError:  # librdkafka's queue is full
                    self._producer.poll(0.1)
                except confluent_kafka.KafkaException as error:
                    failed.append(translated(error, self._where))
                    break
            if failed:
                break
        if self._producer.flush(TIMEOUT_S + 10):
            self._producer.purge()
            self._producer.flush(1)
            failed.append(Unavailable(f"{self._where}: no answer for {TIMEOUT_S:g} s"))
        if failed:
            raise failed[0]
