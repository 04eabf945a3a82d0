"""Runs in a topic of a real broker, read by a client of their own and by the reader."""

from __future__ import annotations

import json
import math
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka_broker import OLD, Broker
from trackers_kafka import reader as module

import trackers
from trackers.errors import NotFound, Unavailable
from trackers.readers.registry import open_source
from trackers.records import flatten
from trackers.testing import Point, Stored, check_plugin
from trackers.tracker import RunInfo

FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def messages(broker: str, topic: str) -> list[tuple[str, dict[str, Any]]]:
    """Key and content of each message, by partitions, with the client alone."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker, "group.id": "test", "enable.auto.commit": False, **OLD}
    )
    found = []
    for number in consumer.list_topics(topic, timeout=20).topics[topic].partitions:
        place = confluent_kafka.TopicPartition(topic, number, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=20)
        consumer.assign([place])
        while end and consumer.position([place])[0].offset < end:
            for message in consumer.consume(500, 1.0):
                assert message.error() is None, message.error()
                found.append((message.key().decode(), json.loads(message.value())))
    consumer.close()
    return found


def first(found: list[tuple[str, dict[str, Any]]], run: str) -> list[dict[str, Any]]:
    """What who takes the messages keeps of a run: the first of each id."""
    kept: dict[str, dict[str, Any]] = {}
    for _, content in found:
        if content["run_id"] == run:
            kept.setdefault(content["id"], content)
    return list(kept.values())


def read(info: RunInfo, state: Mapping[str, Any]) -> Stored:
    """What the topic has of a run."""
    stored = Stored(metrics={}, summary={}, config={}, texts={})
    found = first(messages(info.options["KAFKA_SERVERS"], info.options["KAFKA_TOPIC"]), info.id)
    for line in sorted((line for line in found if "seq" in line), key=lambda line: line["seq"]):
        kind, values = line["kind"], line.get("values", {})
        if kind == "config":
            stored.config.update(flatten(values))
        elif kind in ("metrics", "summary", "text"):
            for name, value in values.items():
                value = FLOATS.get(value, value) if isinstance(value, str) and kind != "text" else value
                if kind == "summary" or name.startswith("final/"):
                    stored.summary[name.removeprefix("final/")] = value
                elif kind == "metrics":
                    stored.metrics.setdefault(name, []).append(Point(line.get("step"), value, line["time"]))
                else:
                    stored.texts.setdefault(name, []).append((line.get("step"), value))
    stored.status = "running"
    for line in found:
        if line["kind"] == "run":
            stored.name, stored.tags, stored.status = (
                stored.name or line["name"],
                stored.tags or line["tags"],
                "running",
            )
        elif line["kind"] == "info":
            stored.name, stored.tags = line.get("name", stored.name), line.get("tags", stored.tags)
        elif line["kind"] == "status":
            stored.status = line["name"]
    return stored


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:10]}"


@pytest.mark.usefixtures("client")
def test_distribution_keeps_its_promises(broker: Broker, topic: str, tmp_path: Path) -> None:
    """Tracker with kills and errors, precheck, preload, options, reader, copies."""
    options = {"KAFKA_SERVERS": broker.servers, "KAFKA_TOPIC": topic, "KAFKA_CONFIG": str(broker.config)}
    place = f"{broker.servers}/{topic}-copies"
    report = check_plugin("trackers-kafka", read, directory=tmp_path, copies={"kafka": place}, options=options)
    print(report)
    assert "copies kafka" in report.passed


@pytest.mark.usefixtures("client")
def test_messages_are_keyed_by_run_and_named_by_record(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition for a run; each message tells run, project, an id of its own, and its place."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        with trackers.init("json,kafka", project="p", name=name, options={"KAFKA_TOPIC": topic}) as run:
            for step in range(20):
                run.log({"loss": 1 / (step + 1)}, step=step)
            run.summary["best"] = 0.05
    found = messages(broker.servers, topic)
    assert {key for key, _ in found} == {f"p/{content['run_id']}" for _, content in found}
    for run_id in {content["run_id"] for _, content in found}:
        lines = first(found, run_id)
        steps = [line["step"] for line in lines if line["kind"] == "metrics" and "loss" in line["values"]]
        assert steps == list(range(20))
        assert all(line["project"] == "p" and line["id"] for line in lines)
        assert [line["name"] for line in lines if line["kind"] == "status"] == ["finished"]


SCRIPT = """
import sys, time, trackers
run = trackers.init("json,kafka", project="p", id="r1")
for step in range(300):
    run.log({"loss": 1 / (step + 1), "odd": float("nan")}, step=step)
    time.sleep(0.01)
run.summary["best"] = 7
run.finish()
"""


def test_nothing_is_lost_where_the_broker_is_killed(
    mortal: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker dies amid training and comes back: each record is there, under one id, and read in its order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_TOPIC", topic)
    training = subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=tmp_path)
    time.sleep(3)
    mortal.kill()
    time.sleep(1)
    mortal.start()
    assert training.wait(120) == 0
    subprocess.run([sys.executable, "-m", "trackers", "sync", "r1"], check=True, timeout=120)
    lines = first(messages(mortal.servers, topic), "r1")
    steps = sorted(line["step"] for line in lines if line["kind"] == "metrics" and "loss" in line["values"])
    assert steps == list(range(300))
    reader, (run,) = open_source(f"kafka:{mortal.servers}/{topic}")
    assert run.status == "finished"
    losses = [record for record in reader.read(run) if "loss" in getattr(record, "values", {})]
    assert [record.step for record in losses if record.step is not None] == list(range(300))


def test_training_without_a_broker_is_delivered_later(
    mortal: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose broker isn't there ends as usual; `trackers sync` delivers it, and commands read it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_TOPIC", topic)
    mortal.kill()
    with trackers.init("json,kafka", project="p", id="r2") as run:
        run.log({"loss": 0.5}, step=0)
        run.log({"loss": 0.25}, step=1)
    mortal.start()
    words = [sys.executable, "-m", "trackers"]
    subprocess.run([*words, "sync", "r2"], check=True, timeout=120)
    shown = subprocess.run(
        [*words, "show", f"kafka:{mortal.servers}/{topic}#r2"], capture_output=True, text=True, check=True
    )
    assert "0.25" in shown.stdout
    same = subprocess.run([*words, "diff", "r2", f"kafka:{mortal.servers}/{topic}#r2"], capture_output=True, text=True)
    assert same.returncode == 0, same.stdout + same.stderr


@pytest.mark.usefixtures("client")
def test_messages_of_others_are_passed_over(broker: Broker, topic: str, tmp_path: Path, monkeypatch: Any) -> None:
    """A topic that others write to: what isn't of a run is counted, and a hostile line stops nothing."""
    monkeypatch.chdir(tmp_path)
    producer = confluent_kafka.Producer(broker.client())
    hostile = (b"\xff\xfe", b"[" * 5000, b"{}", b'{"run_id": 5}', b'{"kind":"metrics","run_id":"r3"}', b"null")
    for key in (b"p/r3", b"other"):
        for value in hostile:
            producer.produce(topic, value, key)
    assert producer.flush(30) == 0
    with trackers.init("json,kafka", project="p", id="r3", options={"KAFKA_TOPIC": topic}) as run:
        run.log({"loss": 0.5}, step=0)
    producer.produce(topic, b'{"kind":"metrics","run_id":"r3","project":"p","id":"x","seq":1,"values":7}', b"p/r3")
    assert producer.flush(30) == 0
    reader, (found,) = open_source(f"kafka:{broker.servers}/{topic}")
    assert found.note == "12 messages of the topic aren't of runs"
    assert [record.values["loss"] for record in reader.read(found) if "loss" in getattr(record, "values", {})] == [0.5]


@pytest.mark.usefixtures("client")
def test_missing_topics_and_runs_are_named(broker: Broker, topic: str, tmp_path: Path, monkeypatch: Any) -> None:
    """A reader makes no topic, and says what isn't there."""
    monkeypatch.chdir(tmp_path)
    with trackers.init("json,kafka", project="p", options={"KAFKA_TOPIC": topic}) as run:
        run.log({"loss": 0.5})
    with pytest.raises(NotFound, match="no run nobody in "):
        open_source(f"kafka:{broker.servers}/{topic}#nobody")


def test_broker_that_stops_answering_is_unavailable(mortal: Broker, topic: str, monkeypatch: Any) -> None:
    """Amid a topic: it isn't that the topic is gone, or ends there."""
    monkeypatch.setattr(module, "TIMEOUT_S", 3.0)
    with mortal.config.open("a") as file:
        file.write("fetch.message.max.bytes=2000\nqueued.min.messages=1\n")
    producer = confluent_kafka.Producer(mortal.client())
    for number in range(500):
        producer.produce(topic, json.dumps({"text": f"{number} " + "x" * 500}).encode(), b"p/r5")
    assert producer.flush(30) == 0
    found = module._messages(module.Place(mortal.servers, topic, ""), None)
    next(found)
    mortal.hang()
    with pytest.raises(Unavailable, match=topic):
        list(found)


def test_address_that_never_answers_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A door that opens, and nobody behind it."""
    monkeypatch.setattr(module, "TIMEOUT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as door, pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
        open_source(f"kafka:127.0.0.1:{door.getsockname()[1]}/topic")
