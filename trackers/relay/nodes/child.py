"""Processes of the carrier and the fetcher, for what starts them: a node's first rank, the main node's supervisor."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec

from trackers.journal import helper_process
from trackers.journal.run_directory import RunDirectory
from trackers.ranks import nodes
from trackers.ranks.launch import folder_of
from trackers.relay.nodes.carrier import SENDING_AGAIN, CarryTask
from trackers.relay.nodes.fetcher import PATIENCE, PATIENCE_S, FetchTask
from trackers.relay.parts.helper import Helper, avoided_by
from trackers.relay.parts.part import TRAINING, Beside, RelayMoment, RelayPart
from trackers.relay.parts.plans import arguments
from trackers.support import confined
from trackers.support.terminal import one_line

END_S = 10.0
"""How long the end waits for other nodes, in seconds, beyond the deadline for late ranks and the time after which a
silent node counts as gone."""
RESTART_S = (0.5, 2.0, 10.0, 30.0)
MOST_DEATHS = 20
"""Maximum restarts of a carrier that dies."""
LOG_BYTES = 1 << 20
"""Maximum size of a carrier's log that is read."""
CARRIER_S = 20.0
"""Maximum wait of a node's first rank, at its end, for the carrier, in seconds."""


class Carrying:
    """A node's carrier, which its first rank starts.

    Args:
        folder: the launch's.

    Raises:
        OSError: it can't be started.
    """

    def __init__(self, folder: Path, task: CarryTask) -> None:
        confined.make_own(folder)
        self._folder, self._task = folder, task
        self._target = "in the store" if task.store else "on the main node"
        self._bell = -1
        self._deaths = 0
        self._process: Any = None
        self._start()

    def _start(self) -> None:
        read_end, self._bell = os.pipe()
        os.set_blocking(read_end, False)
        task = msgspec.structs.replace(self._task, bell=read_end)
        words = arguments("carry", self._folder, task)
        try:
            self._process = helper_process.start(
                RunDirectory(self._folder), words, pass_fds=(read_end,), nice=task.nice, detached=True
            )
        finally:
            os.close(read_end)

    def poll(self) -> None:
        """Restart the carrier if it was killed: the new one sends what is missing.

        Raises:
            OSError: it can't be started.
        """
        if self._process.poll() in (None, 0) or self._deaths >= MOST_DEATHS:
            return
        self._deaths += 1
        if self._bell >= 0:
            os.close(self._bell)
            self._bell = -1
        self._start()

    def end(self, timeout_s: float) -> str:
        """The first rank has ended: have the rest sent, and wait for it. Returns a message for the user, or ""."""
        try:
            self.poll()
        except OSError as error:
            return f"what node {self._task.plan.node} logged isn't all {self._target}: its carrier can't start: {error}"
        with contextlib.suppress(OSError):
            os.write(self._bell, b".")
        if self._bell >= 0:
            os.close(self._bell)
            self._bell = -1
        try:
            code = self._process.wait(min(timeout_s, CARRIER_S))
        except subprocess.TimeoutExpired:
            problem = self._last_problem()
            return (
                f"what node {self._task.plan.node} has isn't all {self._target} yet{problem and f' ({problem})'}; "
                f"its carrier goes on: {self._folder}/relay.log"
            )
        if code:
            return f"what node {self._task.plan.node} has isn't all {self._target}; {self._folder}/relay.log says why"
        return ""

    def _last_problem(self) -> str:
        """Problem that the carrier logged last; "" if it logged none, or sends again since."""
        with contextlib.suppress(OSError):
            log = confined.read(self._folder / "relay.log", most=LOG_BYTES).decode("utf-8", "replace")
            problems = re.findall(rf"^\S+ node {self._task.plan.node}: (.*)$", log, re.MULTILINE)
            if problems and problems[-1] != SENDING_AGAIN:
                return one_line(problems[-1], 300)
        return ""


class Fetching(RelayPart):
    """The main node's fetcher: started, and started again when it dies. ``over``: nothing more is fetched."""

    name = "fetch"

    def __init__(self, beside: Beside) -> None:
        self._beside, self._run, self._info = beside, beside.run, beside.info
        self._ended = beside.ended
        self._every_s = beside.seconds("TRACKER_STORE_EVERY", 5)
        self._wait_s = beside.seconds("TRACKER_REDUCE_WAIT", 10) + max(PATIENCE_S, PATIENCE * self._every_s) + END_S
        self._helper = Helper(self._start, RESTART_S, self._say)
        self._ended_at = 0.0
        folder = folder_of(beside.run, beside.info, beside.attempt)
        has_others = int(beside.entry().get("nodes", 1)) > 1 and folder is not None
        self._store = nodes.store_of(beside.info, folder)
        self.over = not (has_others and self._store is not None)

    @property
    def pid(self) -> int:
        return self._helper.pid

    def poll(self, moment: RelayMoment = TRAINING) -> None:
        """Start it when it is due."""
        if self.over:
            return
        now = time.monotonic()
        code = self._helper.poll(now)
        if code == 0:
            self.over = True
        elif code is not None:
            self._helper.died(now, "the fetcher died")
        elif self._helper.is_due(now):
            self._helper.start(now)

    def end(self) -> bool:
        """Fetch the rest. True once that is done, or not waited for any longer."""
        now = time.monotonic()
        if not self._ended_at:
            self._ended_at, self._ended = now, True
            self._helper.due_at = 0.0
            self._helper.ask()  # one that is started from now on knows
        self.poll()
        if not self.over and now - self._ended_at > self._wait_s:
            self._beside.say(
                f"what other nodes logged hasn't all come yet; later: trackers sync {self._run.quoted}", ""
            )
            self.close()
        return self.over

    def close(self) -> None:
        """Kill the process: another fetcher can continue at any time."""
        self.over = True
        self._helper.kill()

    def _start(self, deaths: int) -> Any:
        task = FetchTask(
            store=self._store or "", every_s=self._every_s,
            attempt=self._beside.attempt, parent=os.getpid(), ended=self._ended,
        )  # fmt: skip
        return helper_process.start(
            self._run,
            arguments("fetch", self._run.path.absolute(), task),
            avoid=avoided_by(self._info),
            new_session=self._beside.own_session,
            info=self._info,
            nice=0 if self._ended else self._beside.nice,
        )

    def _say(self, text: str) -> None:
        self._beside.say(f"what other nodes log isn't fetched: {text}; see {self._run.relay_log}", "")
