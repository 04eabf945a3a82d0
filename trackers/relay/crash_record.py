"""Says in the journal how an attempt ended, where none of its own processes is left to say it."""

from __future__ import annotations

import os
import time

from trackers.journal.lease import Lease
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.status import last_word, observe
from trackers.journal.stream import StreamWriter, last_record
from trackers.records import Finish, Start, encode
from trackers.support import process_info
from trackers.support.failpoints import failpoint
from trackers.tracker import Status


def record_crash(run: RunDirectory, lease: Lease) -> bool:
    """Write the finish record that a run lacks, if its processes are gone. True if nothing is lacking now.

    Args:
        lease: the relay's; it is held for the moment only, so that a relay that starts waits for nobody.
    """
    if last_word(run) is not None:
        return True
    if observe(run).name == "running" or not lease.acquire():
        return False
    try:
        status = observe(run)
        if status.name != "running" and last_word(run) is None:
            _write(run, status)
    finally:
        lease.release()
    return last_word(run) is not None


def _write(run: RunDirectory, status: Status) -> None:
    attempt = run.attempt()
    ends = [last_record(run.stream(name)) for name in run.stream_names() if name.attempt == attempt]
    # The last sign of life: a record that comes later shows that the run went on.
    moment = max((record.time for record in ends if record is not None), default=time.time())
    path = run.stream(StreamName("node", 0, attempt))
    writer = StreamWriter(path)
    try:
        if last_record(path) is None:
            writer.write(encode(Start(time=moment, attempt=attempt, host=process_info.host(), pid=os.getpid())))
        failpoint("relay.finish.before")
        writer.write(encode(Finish(time=moment, status=status.name, exit_code=status.exit_code, reason=status.reason)))
        failpoint("relay.finish.after")
    finally:
        writer.release()
