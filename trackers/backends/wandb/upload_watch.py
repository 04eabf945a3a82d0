"""Sees at once when something that isn't W&B answers for it, and ends the client before it sends more.

wandb-core takes any answer with status 200 to its file stream as a success, though the answer be a login page of the
network's or cut off, and goes on behind the rows that never arrived: there they would be missing for ever, for W&B
takes no row that comes late. All that tells is a line in the client's own log. Its next request comes a second
later, so there is time to end it; what the server then says it holds decides from where rows are sent again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

NONSENSE = b"filestream: json decode error"
"""Message of wandb-core 0.31 in ``debug-internal.log`` for an answer that it can't parse."""
LOOK_S = 0.1
"""Between looks: a tenth of the pause between the client's requests (``x_file_stream_transmit_interval``)."""


class Watch:
    """Follows a client's log in a thread of its own.

    Args:
        log: the client's ``debug-internal.log``; it needn't exist yet.
        end: ends the client; called once, from the thread.
    """

    def __init__(self, log: Path, end: Callable[[], object]) -> None:
        self._log = log
        self._end = end
        self._offset = 0
        self._rest = b""
        self._over = threading.Event()
        self.seen = False
        threading.Thread(target=self._follow, name="wandb-watch", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def _follow(self) -> None:
        while not self._over.wait(LOOK_S):
            if self._nonsense():
                self.seen = True
                self._end()
                return

    def _nonsense(self) -> bool:
        try:
            if self._log.stat().st_size <= self._offset:
                return False
            with self._log.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except OSError:
            return False
        self._offset += len(new)
        found = NONSENSE in self._rest + new
        self._rest = new[-len(NONSENSE) :]
        return found
