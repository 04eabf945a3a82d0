"""Copies a run's files to an object store: as they grow, and all of them once the run has ended.

The records that are delivered aren't used: the journal itself is sent, so that a reader of the store finds a whole run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from trackers.backends.storage.precheck import StoragePrecheck
from trackers.errors import UNDECODABLE, Fatal, NotFound, Refused
from trackers.object_storage import launches, layout, others, removal
from trackers.object_storage.addresses import is_address, is_local_directory, normalize
from trackers.object_storage.shipping import Sender
from trackers.object_storage.store import Store
from trackers.records import ALL_KINDS, Record
from trackers.support import confined, machines, processes, run_requests
from trackers.tracker import Cursor, RunInfo, State, Status

INTERVAL_S = 5.0
OTHERS_S = 10.0
"""How long the end waits for the run's other deliveries and its code, in seconds: what comes later is sent again."""
ASK_S = 10.0
"""Minimum time between two looks for requests to the run, in seconds: each is a request to the store."""
STATE_FILE = "delivery/storage.json"


class _LeaseHolder(msgspec.Struct):
    """The relay's process, as its lease names it."""

    host: str = ""
    boot_id: str = ""
    pid_namespace: str = ""
    pid: int = 0
    pid_start: float = 0.0


class StorageTracker(StoragePrecheck):
    """Sends a run to ``TRACKER_DIR/<project>/<run id>`` every ``TRACKER_STORE_EVERY`` seconds."""

    accepts = ALL_KINDS

    @staticmethod
    def remove(info: RunInfo, state: State) -> str | None:
        """Delete all that was sent: see :class:`trackers.tracker.Tracker`."""
        root, run = str(info.option("TRACKER_DIR", "")), Path(info.directory)
        if not is_address(root) or not is_local_directory(run.parent.parent, normalize(root)):
            return None
        attempt_numbers = [int(entry.get("number") or 0) for entry in info.attempts]
        size = removal.remove(Store(root), "/".join(run.parts[-2:]), attempt_numbers)
        return f"deleted in {normalize(root)}, {size:,} bytes" if size else f"nothing of it is in {normalize(root)}"

    @staticmethod
    def restore(info: RunInfo, state: State) -> None:
        """Allow the run to be sent again after it was removed."""
        root, run = str(info.option("TRACKER_DIR", "")), Path(info.directory)
        if is_address(root):
            store, home = Store(root), "/".join(run.parts[-2:])
            # A catalogue may have it as gone: with this in its place, who sends it knows that it isn't new there.
            store.put(f"{home}/{STATE_FILE}", b'{"closed": ""}')
            removal.allow(store, home)

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """Open the store and find out which of the run's files it has."""
        root = str(info.option("TRACKER_DIR", ""))
        if not is_address(root):
            raise Fatal(f"TRACKER_DIR is {root!r}, no store: nothing can be sent there")
        self._run_directory = Path(info.directory)
        self._prefix = "/".join(self._run_directory.parts[-2:])
        self._tracker_names = list(info.trackers)
        self._interval_s = float(info.option("TRACKER_STORE_EVERY", INTERVAL_S))
        self._store = Store(root)
        self._sender = Sender(self._store, self._run_directory, self._prefix)
        self._sent_at = self._ask_at = 0.0
        self._is_announced = False
        self._state = state
        state["url"] = f"{normalize(root)}/{self._prefix}"
        return None

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Send what is new if the interval has passed."""
        self.tick()

    def tick(self) -> None:
        """Send what is new if the interval has passed."""
        if time.monotonic() - self._sent_at >= self._interval_s:
            self._fetch_requests()
            self._send(Status("running"))
            self._sent_at = time.monotonic()

    def _fetch_requests(self) -> None:
        """Hand what was asked of the run through the store on to training."""
        if time.monotonic() < self._ask_at:
            return
        self._ask_at = time.monotonic() + max(self._interval_s, ASK_S)
        with contextlib.suppress(NotFound):
            content = self._store.get(f"{self._prefix}/{layout.REQUESTS}", run_requests.MOST_BYTES)
            for asked in run_requests.parse(content):
                run_requests.ask(self._run_directory, asked)

    def close(self, status: Status) -> None:
        """Send everything. Once the run has ended, verify that the store has it, and note what other deliveries did."""
        if status.name == "running":
            self._send(status)
            return
        deadline = time.monotonic() + OTHERS_S
        while time.monotonic() < deadline and (
            self._others_unfinished(status) or (self._has_relay() and others.code_is_awaited(self._run_directory))
        ):
            time.sleep(0.05)
        self._announce()
        self._state[others.KEY] = others.standing(self._run_directory)
        self._sender.finish()
        self._forget_launches()
        self._store.put(f"{self._prefix}/{STATE_FILE}", self._state_json(status))

    def _forget_launches(self) -> None:
        """Remove what other nodes sent for this run: it is among the run's own files now."""
        run = msgspec.json.decode(confined.read(self._run_directory / "run.json", root=self._run_directory))
        launch_names = [str(entry.get("launch") or "").rpartition("/")[2] for entry in run.get("attempts", [])]
        for name in filter(None, dict.fromkeys(launch_names)):
            launches.forget(self._store, name, superseded=name != launch_names[-1])

    def _announce(self) -> None:
        """Before what may be long: a backlog, a checkpoint. From here on the store says that the run isn't closed."""
        if not self._is_announced:
            self._sender.announce()
            self._put_state(Status("running"))
            if not self._sender.is_new:
                with contextlib.suppress(Refused):  # who may not has no catalogue
                    self._store.put(layout.mark(self._prefix), b"\n")
            self._is_announced = True

    def _send(self, status: Status) -> None:
        self._announce()
        if self._sender.send():
            self._put_state(status)

    def _put_state(self, status: Status) -> None:
        with contextlib.suppress(OSError, ValueError):  # not written yet
            self._store.put(f"{self._prefix}/{STATE_FILE}", self._state_json(status))

    def _state_json(self, status: Status) -> bytes:
        """Content of this delivery's state file as it will be, for the copy of the run in the store."""
        delivery = msgspec.json.decode(confined.read(self._run_directory / STATE_FILE, root=self._run_directory))
        closed = "" if status.name == "running" else status.name
        return msgspec.json.encode({**delivery, "closed": closed, "state": dict(self._state)})

    def _others_unfinished(self, status: Status) -> bool:
        """Whether another delivery of this run still has to finish; one that has failed isn't waited for."""
        for name in set(self._tracker_names) - {self.name}:
            path = self._run_directory / "delivery" / f"{name}.json"
            if not path.exists() and self._has_relay():
                return True
            with contextlib.suppress(OSError, ValueError):
                delivery = msgspec.json.decode(confined.read(path, root=self._run_directory))
                ended = delivery.get("closed") == status.name or delivery.get("error") or delivery.get("stopped")
                if not ended:
                    return True
        return False

    def _has_relay(self) -> bool:
        """Whether a relay serves the run: it starts all deliveries, where ``trackers sync`` starts those asked for."""
        try:
            holder = msgspec.json.decode(
                confined.read(self._run_directory / "relay.lease", root=self._run_directory), type=_LeaseHolder
            )
        except (OSError, *UNDECODABLE):
            return False
        return machines.is_here(holder) and processes.alive(holder.pid, holder.pid_start)
