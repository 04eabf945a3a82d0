"""The process that sends a run's alerts.

``alerts.sent.json`` has the outcome of each alert at each destination. It is written before a try and after it. If the
process is killed in between, it is unknown whether the alert arrived: it is sent again, with the same id and a line
that says so. So an alert arrives at least once, and twice only if the process died, or the answer was lost, in between.

A destination that doesn't answer is tried again after growing pauses, for :data:`LATE_S`. In :data:`WINDOW_S` a
destination gets :data:`BURST` messages at most: the last of them has all alerts that wait.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Sequence

import msgspec

from trackers.alerts import sending
from trackers.alerts.destinations import Destination, MailServer
from trackers.alerts.payloads import AlertMessage
from trackers.journal import trust
from trackers.journal.helper_process import AGAIN, DONE
from trackers.journal.lease import Lease
from trackers.journal.run_directory import RunDirectory, replace_file
from trackers.relay.alerting.child import destinations_of
from trackers.relay.alerting.files import AlertOutcome, OutboxEntry, digest, outbox, read_outbox, read_sent, sent_path
from trackers.support.failpoints import failpoint
from trackers.support.redaction import mask_source
from trackers.tracker import RunInfo

LATE_S = 24 * 3600.0
"""Age from which an alert isn't sent any more, in seconds."""
BURST = 10
WINDOW_S = 600.0
RETRY_S = (1.0, 600.0)
"""First and longest pause between two tries, in seconds."""
MOST_IN_ONE = 100
"""Maximum number of alerts in one message."""
LEVELS = {"INFO": 1, "WARN": 2, "ERROR": 3}


class AlertSender:
    """Sends the alerts in a run's outbox.

    Args:
        say: called with one line if a destination refuses an alert.
        pause_s: first and longest pause between two tries.
    """

    def __init__(
        self, run: RunDirectory, info: RunInfo, destinations: Sequence[Destination], server: MailServer,
        say: Callable[[str], None], pause_s: tuple[float, float] = RETRY_S,
    ) -> None:  # fmt: skip
        self._run = run
        self._info = info
        self._destinations = destinations
        self._server = server
        self._say = say
        self._pause_s = pause_s
        self._sent = read_sent(run)
        self._failures: dict[str, int] = {}
        self._retry_at: dict[str, float] = {}
        self._entries: list[OutboxEntry] = []
        self._size = -1

    def step(self) -> float | None:
        """Send what is due. Returns the time until the next try, in seconds; None if nothing waits."""
        self._read_outbox()
        now = time.monotonic()
        next_at: list[float] = []
        for destination in self._destinations:
            waiting = self._waiting(destination)
            if waiting and self._retry_at.get(destination.name, 0.0) <= now:
                self._try(destination, waiting)
                waiting = self._waiting(destination)
            if waiting:
                next_at.append(max(self._retry_at.get(destination.name, 0.0), now + self._blocked_s(destination)))
        return max(0.0, min(next_at) - time.monotonic()) if next_at else None

    def _read_outbox(self) -> None:
        try:
            size = os.stat(outbox(self._run)).st_size
        except OSError:
            size = 0
        if size != self._size:
            self._size = size
            self._entries = read_outbox(self._run)[0]

    def _waiting(self, destination: Destination) -> list[OutboxEntry]:
        outcomes = self._sent.places.setdefault(destination.name, {})
        self._sent.shown[destination.name] = destination.label
        waiting, late = [], False
        for entry in self._entries:
            outcome = outcomes.setdefault(entry.id, AlertOutcome())
            if outcome.state == "waiting" and time.time() - entry.time > LATE_S:
                outcome.state, outcome.reason, late = "late", outcome.reason or "it was a day old", True
            if outcome.state == "waiting":
                waiting.append(entry)
        if late:
            self._save()
        return waiting

    def _blocked_s(self, destination: Destination) -> float:
        """Time until the destination may get another message, in seconds."""
        times = self._recent(destination)
        return max(0.0, times[0] + WINDOW_S - time.time()) if len(times) >= BURST else 0.0

    def _recent(self, destination: Destination) -> list[float]:
        """Times of the messages sent there within :data:`WINDOW_S`, the earliest first."""
        since = time.time() - WINDOW_S
        sent = {
            outcome.message: outcome.time
            for outcome in self._sent.places[destination.name].values()
            if outcome.state == "sent"
        }
        return sorted(at for at in sent.values() if at > since)

    def _batch(self, destination: Destination, waiting: list[OutboxEntry]) -> list[OutboxEntry]:
        """Alerts of the next message: those of one whose answer is unknown; else the first, or all in the last one."""
        outcomes = self._sent.places[destination.name]
        begun = [entry for entry in waiting if outcomes[entry.id].began]
        if begun:
            message = outcomes[begun[0].id].message
            return [entry for entry in begun if outcomes[entry.id].message == message]
        room = BURST - len(self._recent(destination))
        return waiting[:1] if room > 1 else waiting[:MOST_IN_ONE]

    def _try(self, destination: Destination, waiting: list[OutboxEntry]) -> None:
        blocked_s = self._blocked_s(destination)
        if blocked_s:
            self._retry_at[destination.name] = time.monotonic() + blocked_s
            return
        batch = self._batch(destination, waiting)
        outcomes = [self._sent.places[destination.name][entry.id] for entry in batch]
        message = self._message(batch, repeat=any(outcome.began for outcome in outcomes))
        for outcome in outcomes:
            outcome.tries, outcome.time = outcome.tries + 1, time.time()
            outcome.began, outcome.message = True, message.id
        self._save()
        failpoint("alerts.send.before")
        answer = sending.send(destination, message, self._server)
        failpoint("alerts.send.after")
        for outcome in outcomes:
            outcome.reason = answer.reason
            outcome.began = answer.state == sending.UNKNOWN
            if answer.state in (sending.SENT, sending.REFUSED):
                outcome.state = "sent" if answer.state == sending.SENT else "refused"
        self._save()
        if answer.state == sending.SENT:
            self._failures.pop(destination.name, None)
        elif answer.state == sending.REFUSED:
            self._say(f"alert {message.title!r} isn't sent to {destination.label}: {answer.reason}")
        else:
            self._back_off(destination, answer)

    def _back_off(self, destination: Destination, answer: sending.SendResult) -> None:
        failures = self._failures.get(destination.name, 0)
        self._failures[destination.name] = failures + 1
        low, high = self._pause_s
        pause_s = min(high, low * 2 ** min(failures, 20)) * random.uniform(0.7, 1.0)
        self._retry_at[destination.name] = time.monotonic() + max(pause_s, answer.wait_s)
        if failures == 2:
            self._say(f"alerts wait for {destination.label}: {answer.reason}; training goes on, they are tried again")

    def _message(self, batch: list[OutboxEntry], repeat: bool) -> AlertMessage:
        info, first = self._info, batch[0]
        message = AlertMessage(
            id=first.id, title=first.title, text=first.text, level=first.level, time=first.time, step=first.step,
            project=info.project, run=info.name, run_id=info.id, host=info.host, rule=first.rule, repeat=repeat,
        )  # fmt: skip
        if len(batch) > 1:
            message.id = digest(*(entry.id for entry in batch))
            message.title, message.rule, message.step, message.count = f"{len(batch)} alerts", "", None, len(batch)
            message.text = "\n".join(f"{entry.level}: {entry.title}: {entry.text}" for entry in batch[:20])
            if len(batch) > 20:
                message.text += f"\nand {len(batch) - 20} more: trackers alerts {info.project}/{info.id}"
            message.level = max((entry.level for entry in batch), key=lambda level: LEVELS.get(level, 0))
        message.title, message.text = mask_source(message.title), mask_source(message.text)
        return message

    def _save(self) -> None:
        with contextlib.suppress(OSError):  # a full disk: what was sent may be sent again
            replace_file(sent_path(self._run), msgspec.json.encode(self._sent))


def send_all(run: RunDirectory, parent: int, say: Callable[[str], None]) -> int:
    """The process: send until nothing waits, or the parent has ended. Returns the exit code."""
    info = trust.delivered(run)[0]
    destinations, server = destinations_of(info)
    lease = Lease(run.path / "alerts.lease")
    while not lease.acquire():
        if os.getppid() != parent:
            return AGAIN
        time.sleep(0.2)
    try:
        sender = AlertSender(run, info, destinations, server, say)
        while os.getppid() == parent and lease.beat(2 * sending.DEADLINE_S * max(1, len(destinations))):
            pause_s = sender.step()
            if pause_s is None:
                return DONE
            time.sleep(min(0.2, max(0.01, pause_s)))
        return AGAIN
    finally:
        lease.release()
