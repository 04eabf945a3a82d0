"""A run in a store: its files are sent there as they grow, and all of them once it has ended.

No record is taken out of the journal for it: the journal itself is sent, so that who reads the store reads a run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from trackers.backends.storage.precheck import StoragePrecheck
from trackers.errors import UNDECODABLE, Fatal
from trackers.object_storage import launches, others, removal
from trackers.object_storage.place import address, is_address, is_written
from trackers.object_storage.shipping import Sender
from trackers.object_storage.store import Store
from trackers.records import ALL_KINDS, Record
from trackers.support import confined, process_info
from trackers.tracker import Cursor, RunInfo, State, Status

EVERY_S = 5.0
OTHERS_S = 10.0
"""How long the end waits for the run's other deliveries and its code, in seconds: what comes later is sent again."""
ACCOUNT = "delivery/storage.json"


class _Holder(msgspec.Struct):
    """Of the relay's lease: which process of this machine it is."""

    boot_id: str = ""
    pid: int = 0
    pid_start: float = 0.0


class StorageTracker(StoragePrecheck):
    """Sends a run to ``TRACKER_DIR/<project>/<run id>`` every ``TRACKER_STORE_EVERY`` seconds."""

    accepts: ClassVar[frozenset[type[Record]]] = ALL_KINDS

    @staticmethod
    def remove(info: RunInfo, state: State) -> str | None:
        """Delete all that was sent: see :class:`trackers.tracker.Tracker`."""
        where, run = str(info.option("TRACKER_DIR", "")), Path(info.directory)
        if not is_address(where) or not is_written(run.parent.parent, address(where)):
            return None
        here = [int(entry.get("number") or 0) for entry in info.attempts]
        size = removal.remove(Store(where), "/".join(run.parts[-2:]), here)
        return f"deleted in {address(where)}, {size:,} bytes" if size else f"nothing of it is in {address(where)}"

    @staticmethod
    def restore(info: RunInfo, state: State) -> None:
        """Let the run be sent again."""
        where, run = str(info.option("TRACKER_DIR", "")), Path(info.directory)
        if is_address(where):
            removal.allow(Store(where), "/".join(run.parts[-2:]))

    def open(self, info: RunInfo, state: State) -> Cursor | None:
        """See what the store has of the run."""
        where = str(info.option("TRACKER_DIR", ""))
        if not is_address(where):
            raise Fatal(f"TRACKER_DIR is {where!r}, no store: nothing can be sent there")
        self._run = Path(info.directory)
        self._home = "/".join(self._run.parts[-2:])
        self._names = list(info.trackers)
        self._every = float(info.option("TRACKER_STORE_EVERY", EVERY_S))
        self._store = Store(where)
        self._sender = Sender(self._store, self._run, self._home)
        self._sent = 0.0
        self._state = state
        state["url"] = f"{address(where)}/{self._home}"
        return None

    def write(self, records: Sequence[Record], cursor: Cursor) -> None:
        """Send what there is, if it is time."""
        self.tick()

    def tick(self) -> None:
        """Send what there is, if it is time."""
        if time.monotonic() - self._sent >= self._every:
            self._send(Status("running"))
            self._sent = time.monotonic()

    def close(self, status: Status) -> None:
        """Send all; of a run that has ended, see that the store has all of it, and what its other trackers have."""
        if status.name == "running":
            self._send(status)
            return
        until = time.monotonic() + OTHERS_S
        while (self._others_deliver(status) or self._code_is_kept()) and time.monotonic() < until:
            time.sleep(0.05)
        self._state[others.KEY] = others.standing(self._run)
        self._sender.finish()
        self._forget_launches()
        self._sender.put(ACCOUNT, self._account(status))

    def _forget_launches(self) -> None:
        """Remove what other nodes sent to this run, which is among its own files now."""
        run = msgspec.json.decode(confined.read(self._run / "run.json", root=self._run))
        names = [str(entry.get("launch") or "").rpartition("/")[2] for entry in run.get("attempts", [])]
        for name in filter(None, dict.fromkeys(names)):
            launches.forget(self._store, name, superseded=name != names[-1])

    def _send(self, status: Status) -> None:
        if self._sender.send().objects:
            with contextlib.suppress(OSError, ValueError):  # not written yet
                self._sender.put(ACCOUNT, self._account(status))

    def _account(self, status: Status) -> bytes:
        """This delivery's account as it will be: a copy of the run says what the store has."""
        account = msgspec.json.decode(confined.read(self._run / ACCOUNT, root=self._run))
        closed = "" if status.name == "running" else status.name
        return msgspec.json.encode({**account, "closed": closed, "state": dict(self._state)})

    def _others_deliver(self, status: Status) -> bool:
        """Whether a delivery of this run works on its end, or will; one that meets with errors isn't waited for."""
        for name in self._names:
            if name == self.name:
                continue
            path = self._run / "delivery" / f"{name}.json"
            if not path.exists():
                if self._has_relay():
                    return True
                continue
            with contextlib.suppress(OSError, ValueError):
                account = msgspec.json.decode(confined.read(path, root=self._run))
                over = account.get("closed") == status.name or account.get("error") or account.get("stopped")
                if not over:
                    return True
        return False

    def _code_is_kept(self) -> bool:
        """Whether the relay still has to keep the code that ran."""
        return self._has_relay() and others.code_is_awaited(self._run)

    def _has_relay(self) -> bool:
        """Whether a relay looks after the run: it starts all deliveries. ``trackers sync`` starts those it was told."""
        try:
            holder = msgspec.json.decode(confined.read(self._run / "relay.lease", root=self._run), type=_Holder)
        except (OSError, *UNDECODABLE):
            return False
        return holder.boot_id == process_info.boot_id() and process_info.alive(holder.pid, holder.pid_start)
