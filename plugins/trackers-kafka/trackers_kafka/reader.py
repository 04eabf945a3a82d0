"""Reads what the tracker wrote: ``kafka:HOST:PORT/TOPIC``, all runs of a topic, or ``kafka:HOST:PORT/TOPIC#RUN``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import ConfigError, DeliveryError, NotFound, Refused, Unavailable, UsageError
from trackers.readers.reader import Reader, SourceRun
from trackers.records import CorruptLine, Finish, Record, decode
from trackers_kafka.client import TIMEOUT_S, made, settings, translated
from trackers_kafka.precheck import TOPIC, check_place

AT_ONCE = 1000
NO_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC")
ENDS = ("finished", "failed", "crashed", "preempted", "stopped")


class Head(msgspec.Struct):
    """What each message of a run says, and more where it is of the kind "run" or "status"."""

    run_id: str
    project: str
    kind: str
    id: str
    name: str = ""
    group: str | None = None
    tags: list[str] | None = None
    notes: str | None = None
    time: float = 0.0


class Place(msgspec.Struct, frozen=True):
    """servers, topic: of messages. run: of which; "": of all."""

    servers: str
    topic: str
    run: str

    def __str__(self) -> str:
        return f"{self.servers}/{self.topic}"


class KafkaReader(Reader):
    """Runs of one topic. Settings of the client are those of the environment's KAFKA_CONFIG."""

    scheme = "kafka"
    needs = ("confluent_kafka",)

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`. The topic is read once, from its first message to its last."""
        place = _place(where)
        heads = msgspec.json.Decoder(Head)
        found: dict[tuple[str, str], SourceRun] = {}
        foreign = 0
        for partition, value in _messages(place, None):
            try:
                head = heads.decode(value)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                foreign += 1
                continue
            if place.run not in ("", head.run_id):
                continue
            run = found.setdefault((head.project, head.run_id), SourceRun(
                source=f"kafka:{place}#{head.run_id}", id=head.run_id, project=head.project, status="running",
                native={"partition": partition},
            ))  # fmt: skip
            if head.kind == "run" and run.created:  # another attempt: what was edited since the first one stays
                run.status = "running"
            elif head.kind == "run":
                run.name, run.group, run.tags = head.name, head.group, head.tags or []
                run.notes, run.created = head.notes, head.time
            elif head.kind == "info":
                run.name, run.group = head.name or run.name, run.group if head.group is None else head.group
                run.tags = run.tags if head.tags is None else head.tags
                run.notes = run.notes if head.notes is None else head.notes
            elif head.kind == "status" and head.name in ENDS:
                run.status = head.name
        if not found:
            raise NotFound(f"kafka: no run {place.run}".rstrip() + f" in {place}: `trackers ls kafka:{place}`")
        if foreign:
            for run in found.values():
                run.note = f"{foreign} messages of the topic aren't of runs"
        return sorted(found.values(), key=lambda run: -run.created)

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`. Of messages with one id the first counts."""
        place = _place(run.source.removeprefix("kafka:"))
        heads, seen, records = msgspec.json.Decoder(Head), set(), []
        end: Finish | None = None
        for _, value in _messages(place, [run.native["partition"]]):
            try:
                head = heads.decode(value)
                if head.run_id != run.id or head.project != run.project or head.id in seen or head.kind == "run":
                    continue
                seen.add(head.id)
                if head.kind == "status":
                    end = Finish(time=head.time, status=head.name) if head.name in ENDS else end
                elif (record := decode(value)) is not None:
                    records.append(record)
            except (msgspec.MsgspecError, CorruptLine, UnicodeError, RecursionError):
                continue
        # A message that was lost on its way comes after those behind it.
        records.sort(key=lambda record: record.seq)
        yield from records
        if end is not None and not any(
            isinstance(record, Finish) and record.status == end.status for record in records
        ):
            end.time = end.time or max((record.time for record in records), default=run.created)
            yield end


def _place(where: str) -> Place:
    text, _, run = where.partition("#")
    servers, _, topic = text.partition("/")
    try:
        check_place(servers, topic or TOPIC)
    except ConfigError as error:
        raise UsageError(f"kafka:{where:.200} is no source: kafka:HOST:PORT/TOPIC#RUN ({error})") from None
    return Place(servers, topic or TOPIC, run)


def _messages(place: Place, partitions: Iterable[int] | None) -> Iterator[tuple[int, bytes]]:
    """Partition and value of each message that a topic has now. partitions: of which; None: of all."""
    from confluent_kafka import KafkaException, TopicPartition

    try:
        consumer = made("Consumer", {
            "group.id": "trackers-reader", **settings(place.servers, os.environ.get("KAFKA_CONFIG", "")),
            "enable.auto.commit": False, "enable.partition.eof": False, "auto.offset.reset": "earliest",
        })  # fmt: skip
    except Refused as error:
        raise UsageError(f"kafka: {error}") from None
    try:
        yield from _read(consumer, place, partitions, TopicPartition)
    except KafkaException as error:
        raise _readers(translated(error, str(place))) from None
    finally:
        consumer.close()


def _read(consumer: Any, place: Place, partitions: Iterable[int] | None, at: Any) -> Iterator[tuple[int, bytes]]:
    known = consumer.list_topics(place.topic, timeout=TIMEOUT_S).topics.get(place.topic)
    if known is not None and known.error is not None and known.error.name() not in NO_TOPIC:
        raise _readers(translated(known.error, str(place)))
    if known is None or not known.partitions:
        raise NotFound(f"kafka: {place.servers} has no topic {place.topic}")
    ends = {}
    for number in known.partitions if partitions is None else partitions:
        low, high = consumer.get_watermark_offsets(at(place.topic, number), timeout=TIMEOUT_S)
        if high > low:
            ends[number] = high
            consumer.incremental_assign([at(place.topic, number, low)])
    last = time.monotonic()
    while ends:
        for message in consumer.consume(AT_ONCE, 1.0):
            if (error := message.error()) is not None:
                raise _readers(translated(error, str(place)))
            last = time.monotonic()
            if message.value() is not None:
                yield message.partition(), message.value()
        for number in [
            number for number in ends if consumer.position([at(place.topic, number)])[0].offset >= ends[number]
        ]:
            del ends[number]
        if time.monotonic() - last > TIMEOUT_S:
            raise Unavailable(f"{place}: no message for {TIMEOUT_S:g} s, though there are more")


def _readers(error: DeliveryError) -> Exception:
    return UsageError(f"kafka: {error}") if isinstance(error, Refused) else error
