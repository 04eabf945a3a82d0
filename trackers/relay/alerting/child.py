"""The process that sends alerts, for its supervisor: started when an alert waits, restarted when it dies."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

from trackers.alerts import destinations
from trackers.alerts.destinations import Destination, MailServer
from trackers.journal import helper_process
from trackers.journal.helper_process import DONE
from trackers.journal.run_directory import RunDirectory
from trackers.relay.alerting.files import outbox
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


class Sending:
    """Starts and supervises the process.

    Args:
        say: called with one line when it can't be started. own_session, nice: see ``helper_process.start``.
        by_hand: this process's environment may name destinations for a run without any.
    """

    def __init__(self, run: RunDirectory, info: RunInfo, say: Callable[[str], None], *,
                 own_session: bool, nice: int = 0, by_hand: bool = False) -> None:  # fmt: skip
        self._run = run
        self._info = info
        self._say = say
        self._own_session = own_session
        self._nice = nice
        self._process: subprocess.Popen[bytes] | None = None
        self._started_size = self._done_size = 0
        self._start_at = 0.0
        self._deaths = 0
        self._is_enabled = bool(info.option("TRACKER_ALERT_TO")) or (
            by_hand and bool(os.environ.get("TRACKER_ALERT_TO"))
        )

    @property
    def idle(self) -> bool:
        """Whether no alert waits, as far as is known."""
        return not self._is_enabled or (self._process is None and self._length() <= self._done_size)

    def poll(self) -> None:
        """Start it when there is something to send. Takes microseconds."""
        if not self._is_enabled:
            return
        now = time.monotonic()
        if self._process is not None:
            code = self._process.poll()
            if code is not None:
                self._process = None
                self._reap(code, now)
        elif now >= self._start_at and self._length() > self._done_size:
            try:
                destinations_of(self._info)
            except ValueError as error:
                self._is_enabled = False
                self._say(f"alerts aren't sent: {error}")
            else:
                self._start(now)

    def close(self) -> None:
        """Kill the process: unsent alerts wait for the next one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _length(self) -> int:
        try:
            return os.stat(outbox(self._run)).st_size
        except OSError:
            return 0

    def _start(self, now: float) -> None:
        self._started_size = self._length()
        avoid = (self._info.cwd, os.path.dirname(self._info.program) if self._info.program else "")
        arguments = ["alerts", str(self._run.path.resolve()), str(os.getpid())]
        try:
            self._process = helper_process.start(
                self._run, arguments, avoid=avoid, new_session=self._own_session, info=self._info,
                fresh=self._deaths > 0,
                nice=self._nice,
            )  # fmt: skip
        except OSError as error:
            self._back_off(now, f"alerts can't be sent: {error}")

    def _reap(self, code: int, now: float) -> None:
        if code == DONE:
            self._done_size, self._deaths = self._started_size, 0
        else:
            self._back_off(now, f"the process that sends alerts died ({code}) and is started again")

    def _back_off(self, now: float, text: str) -> None:
        self._start_at = now + RESTART_S[min(self._deaths, len(RESTART_S) - 1)]
        self._deaths += 1
        if self._deaths > 2:
            self._say(f"{text}; see {self._run.relay_log}")
