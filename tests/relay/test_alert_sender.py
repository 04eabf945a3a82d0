"""The sender: every alert reaches each place at least once, twice only where that can't be known, and not too many."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fakes.receivers import webhook
from tests.helpers import Killed, kill_at, made_run
from trackers.alerts.destinations import Destination, MailServer, parse
from trackers.alerts.payloads import AlertMessage
from trackers.alerts.sending import AGAIN, REFUSED, SENT, UNKNOWN, SendResult
from trackers.journal.run_directory import RunDirectory
from trackers.relay.alerting import sender as module
from trackers.relay.alerting.files import OutboxEntry, outbox, read_sent
from trackers.relay.alerting.sender import AlertSender

NOW = 1_700_000_000.0


class Clock:
    """Wall clock and monotonic clock in one."""

    def __init__(self) -> None:
        self.now = NOW

    def time(self) -> float:
        """Now."""
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """One that moves when it is told."""
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run without alerts."""
    return made_run(tmp_path / "runs/p/one")


def put(run: RunDirectory, *ids: str, at: float = NOW, level: str = "WARN") -> None:
    """Alerts into the outbox."""
    with outbox(run).open("ab") as file:
        for name in ids:
            file.write(msgspec.json.encode(OutboxEntry(name, at, f"title {name}", "text", level)) + b"\n")


class Places:
    """Stands in for the network: answers by what it is told, and keeps what it got."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.got: list[tuple[str, AlertMessage]] = []
        self.answer: Callable[[Destination, AlertMessage], SendResult] = lambda *_: SendResult(SENT)
        monkeypatch.setattr(module.sending, "send", self._send)

    def _send(self, place: Destination, message: AlertMessage, _server: MailServer) -> SendResult:
        self.got.append((place.kind, msgspec.structs.replace(message)))
        return self.answer(place, message)

    @property
    def ids(self) -> list[str]:
        """Of the messages that came."""
        return [message.id for _, message in self.got]


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    """Nothing is really sent."""
    return Places(monkeypatch)


def sender(run: RunDirectory, to: str = "https://x.example/1", say: Callable[[str], None] = print) -> AlertSender:
    """One for these places."""
    return AlertSender(run, run.read_info(), parse(to), MailServer(), say)


def work(one: AlertSender, clock: Clock, seconds: float = 100_000.0) -> None:
    """Until nothing waits, or so much time has passed; pauses are passed over."""
    until = clock.now + seconds
    while clock.now <= until:
        pause = one.step()
        if pause is None:
            return
        clock.now += max(pause, 0.01)


def test_each_alert_reaches_each_place_once(run: RunDirectory, clock: Clock, places: Places) -> None:
    """Also when the sender is begun again, and when more comes."""
    put(run, "a", "b", "a")
    to = "https://x.example/1; desktop"
    work(sender(run, to), clock)
    work(sender(run, to), clock)
    put(run, "c")
    work(sender(run, to), clock)
    assert sorted((kind, message.id) for kind, message in places.got) == [
        (kind, name) for kind in ("desktop", "webhook") for name in "abc"
    ]
    assert not any(message.repeat for _, message in places.got)


def test_place_that_hangs_costs_the_other_nothing(run: RunDirectory, clock: Clock, places: Places) -> None:
    """It is tried again after growing pauses; each try has the same id and says that it is one more."""
    put(run, "a", "b")
    places.answer = lambda place, _: (
        SendResult(UNKNOWN, "no answer in time") if place.kind == "webhook" else SendResult(SENT)
    )
    said: list[str] = []
    work(sender(run, "https://x.example/1; desktop", said.append), clock, 3600)
    assert [message.id for kind, message in places.got if kind == "desktop"] == ["a", "b"]
    tries = [message for kind, message in places.got if kind == "webhook"]
    assert {message.id for message in tries} == {"a"}
    assert [message.repeat for message in tries] == [False] + [True] * (len(tries) - 1)
    assert 8 <= len(tries) <= 20
    assert said == ["alerts wait for webhook (x.example): no answer in time; training goes on, they are tried again"]


def test_failure_that_is_known_is_no_repeat(run: RunDirectory, clock: Clock, places: Places) -> None:
    """An error of the server: nothing arrived."""
    put(run, "a")
    answers = iter([SendResult(AGAIN, "HTTP 500"), SendResult(AGAIN, "HTTP 500", 300.0), SendResult(SENT)])
    places.answer = lambda *_: next(answers)
    before = clock.now
    work(sender(run), clock)
    assert [message.repeat for _, message in places.got] == [False] * 3
    assert clock.now - before >= 300


def test_refused_alert_is_said_and_not_tried_again(run: RunDirectory, clock: Clock, places: Places) -> None:
    """The next one is: its content may be another."""
    put(run, "a", "b")
    said: list[str] = []
    places.answer = lambda *_: SendResult(REFUSED, "HTTP 404")
    work(sender(run, say=said.append), clock)
    assert places.ids == ["a", "b"]
    assert said[0] == "alert 'title a' isn't sent to webhook (x.example): HTTP 404"
    (outcomes,) = read_sent(run).places.values()
    assert [(one.state, one.reason) for one in outcomes.values()] == [("refused", "HTTP 404")] * 2


def test_flood_is_bounded_and_summed_up(run: RunDirectory, clock: Clock, places: Places) -> None:
    """Ten messages in ten minutes; the tenth has all that wait, and what comes later comes together, later."""
    put(run, *(f"a{n}" for n in range(50)), level="WARN")
    put(run, "worst", level="ERROR")
    one = sender(run)
    work(one, clock, 60)
    assert len(places.got) == 10
    last = places.got[-1][1]
    assert (last.title, last.count, last.level) == ("42 alerts", 42, "ERROR")
    assert "WARN: title a9: text" in last.text
    assert "and 22 more: trackers alerts p/one" in last.text or "and 22 more: trackers alerts" in last.text
    put(run, "b1", "b2")
    work(one, clock, 300)
    assert len(places.got) == 10
    work(one, clock)
    assert [message.count for _, message in places.got[10:]] in ([2], [1, 1])
    assert clock.now - NOW >= module.WINDOW_S


@pytest.mark.heavy
def test_old_news_is_not_sent(run: RunDirectory, clock: Clock, places: Places) -> None:
    """A run of last week that is synchronised now wakes nobody; nor does what waited for a day."""
    put(run, "old", at=NOW - module.LATE_S - 1)
    put(run, "new")
    places.answer = lambda *_: SendResult(AGAIN, "HTTP 500")
    work(sender(run), clock, 2 * module.LATE_S)
    assert set(places.ids) == {"new"}
    (outcomes,) = read_sent(run).places.values()
    assert [(one.state, one.reason) for one in outcomes.values()] == [
        ("late", "it was a day old"),
        ("late", "HTTP 500"),
    ]


@pytest.mark.parametrize("where", ["alerts.send.before", "alerts.send.after", "stored"])
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("many", [False, True])
def test_sender_killed_anywhere_loses_nothing_and_says_what_it_repeats(
    run: RunDirectory,
    clock: Clock,
    places: Places,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    number: int,
    many: bool,
) -> None:
    """Every alert arrives; what may have arrived before has the same id and says so; nothing else comes twice."""
    if many:
        monkeypatch.setattr(module, "BURST", 1)
    put(run, "a", "b", "c")
    survive = kill_at(monkeypatch, module, where, number, "stored")
    killed = False
    try:
        work(sender(run), clock)
    except Killed:
        killed = True
    assert killed or many  # three alerts in one message are two writings and one try
    survive()
    put(run, "d")
    work(sender(run), clock)
    messages = [message for _, message in places.got]
    fresh = [message for message in messages if not message.repeat]
    assert len({message.id for message in fresh}) == len(fresh)
    assert {message.id for message in messages if message.repeat} <= {message.id for message in messages}
    assert len(messages) - len(fresh) <= 1
    outcomes = next(iter(read_sent(run).places.values()))
    assert {name: one.state for name, one in outcomes.items()} == dict.fromkeys("abcd", SENT)


def test_real_webhook_that_fails_gets_each_alert_in_the_end(run: RunDirectory) -> None:
    """Over the network: errors, a broken connection, a pause that it asks for; the order stays."""
    import time

    put(run, "a", "b", at=time.time())
    with webhook(500, (429, {"Retry-After": "0.1"}), "drop") as place:
        one = AlertSender(run, run.read_info(), parse(place.url), MailServer(), print, pause_s=(0.01, 0.05))
        while (pause := one.step()) is not None:
            time.sleep(min(pause, 0.05))
    assert [(body["id"], body["repeat"]) for body in place.bodies] == [
        ("a", False), ("a", False), ("a", False), ("a", True), ("b", False),
    ]  # fmt: skip
    assert {headers["idempotency-key"] for _, headers, _ in place.got} == {'"a"', '"b"'}


def test_secret_of_an_alert_is_masked_again(run: RunDirectory, clock: Clock, places: Places) -> None:
    """Whoever wrote the outbox."""
    with outbox(run).open("ab") as file:
        entry: Any = OutboxEntry("a", NOW, "hf_abcdefghijklmnopqrstuvwxyzabcdefgh", "password=abcdefgh1")
        file.write(msgspec.json.encode(entry) + b"\n")
    work(sender(run), clock)
    assert (places.got[0][1].title, places.got[0][1].text) == ("***", "password=***")


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff\n{\n", b'{"places": {"x": 3}}'])
def test_damaged_files_cost_no_process(run: RunDirectory, clock: Clock, places: Places, content: bytes) -> None:
    """What was sent isn't known then: it is sent."""
    (run.path / "alerts.sent.json").write_bytes(content)
    outbox(run).write_bytes(content + b"\n")
    put(run, "a")
    work(sender(run), clock)
    assert places.ids == ["a"]
