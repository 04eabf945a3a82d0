"""The process that sends alerts, as a part of the relay: started when an alert waits, restarted when it dies."""

from __future__ import annotations

import os
import time
from typing import Any

from trackers.alerts import destinations
from trackers.alerts.destinations import Destination, MailServer
from trackers.journal import helper_process
from trackers.journal.helper_process import DONE
from trackers.relay.alerting.files import outbox
from trackers.relay.parts.helper import Helper, avoided_by
from trackers.relay.parts.part import TRAINING, Beside, RelayMoment, RelayPart
from trackers.relay.parts.plans import AlertsPlan, arguments
from trackers.support.redaction import MASK, reveal
from trackers.tracker import RunInfo

RESTART_S = (0.5, 5.0, 30.0)
"""Pauses before a process that died is started again, in seconds."""


def destinations_of(info: RunInfo) -> tuple[tuple[Destination, ...], MailServer]:
    """Destinations of a run's alerts, from its options and this process's environment.

    Raises:
        ValueError: they are unknown here, or can't be parsed; the message has no secret.
    """
    options = reveal(info.options)
    symbols = ("TRACKER_ALERT_TO", "TRACKER_ALERT_SMTP")
    text, server = (str(options.get(symbol) or os.environ.get(symbol, "")) for symbol in symbols)
    if text == MASK:
        raise ValueError("TRACKER_ALERT_TO isn't set here: where the run's alerts go is known to who started it")
    return destinations.parse(text), destinations.mail_server("" if MASK in server else server)


class Sending(RelayPart):
    """Starts and supervises the process."""

    name = "send"

    def __init__(self, beside: Beside) -> None:
        self._run, self._info, self._beside = beside.run, beside.info, beside
        self._helper = Helper(self._start, RESTART_S, self._say)
        self._started_size = self._done_size = 0
        self._is_enabled = bool(self._info.option("TRACKER_ALERT_TO")) or (
            beside.by_hand and bool(os.environ.get("TRACKER_ALERT_TO"))
        )

    @property
    def idle(self) -> bool:
        """Whether no alert waits, as far as is known."""
        return not self._is_enabled or (self._helper.process is None and self._length() <= self._done_size)

    def poll(self, moment: RelayMoment = TRAINING) -> None:
        """Start it when there is something to send."""
        if not self._is_enabled:
            return
        now = time.monotonic()
        code = self._helper.poll(now)
        if code == DONE:
            self._done_size, self._helper.deaths = self._started_size, 0
        elif code is not None:
            self._helper.died(now, f"the process that sends alerts died ({code}) and is started again")
        elif self._helper.is_due(now) and self._length() > self._done_size:
            try:
                destinations_of(self._info)
            except ValueError as error:
                self._is_enabled = False
                self._beside.say(f"alerts aren't sent: {error}", "alerts")
            else:
                self._helper.start(now, "alerts can't be sent")

    def close(self) -> None:
        """Kill the process: unsent alerts wait for the next one."""
        self._helper.kill()

    def _length(self) -> int:
        try:
            return os.stat(outbox(self._run)).st_size
        except OSError:
            return 0

    def _start(self, deaths: int) -> Any:
        self._started_size = self._length()
        return helper_process.start(
            self._run,
            arguments("alerts", self._run.path.absolute(), AlertsPlan(os.getpid())),
            avoid=avoided_by(self._info),
            new_session=self._beside.own_session,
            info=self._info,
            fresh=deaths > 0,
            nice=self._beside.nice,
        )

    def _say(self, text: str) -> None:
        self._beside.say(f"{text}; see {self._run.relay_log}", "alerts")
