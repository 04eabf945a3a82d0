"""Several trackers inside the training process, isolated from each other: ``inline=True``, and ``console``."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable

from trackers.journal.lease import Lease
from trackers.journal.run_directory import RunDirectory
from trackers.relay.aggregation.worker import InlineReducer
from trackers.relay.delivery.delivery import Delivery, Stop
from trackers.support.interruption import interrupts, pass_on
from trackers.training import vendors


class InlineDelivery:
    """Pumps the journal into trackers, in the caller's thread. One that fails never keeps another from its records.

    In a forked child nothing is delivered: its parent, which has the same files and connections open, does so.

    Args:
        say: called with one line when something must be known by the user.
        reducing: reduces values across ranks, where no relay does.
    """

    def __init__(
        self, run: RunDirectory, names: list[str], say: Callable[[str], None], reducing: InlineReducer | None = None
    ) -> None:
        self._tell_user = say
        self._reducing = reducing
        self._shown_messages: set[str] = set()
        self._pumping = False
        self._run = run
        self._interrupted: set[str] = set()
        self._begin(names)

    def _begin(self, names: Iterable[str]) -> None:
        self._pid = os.getpid()
        self._entries: list[tuple[Delivery, Lease]] = []
        for name in names:
            lease = Lease(self._run.delivery / f"{name}.lease")
            if not lease.acquire():
                self._show_once(f"{name}: {lease.holder()} delivers this run already; it goes on doing so")
                continue
            self._entries.append((self._delivery(name, lease), lease))

    def _delivery(self, name: str, lease: Lease) -> Delivery:
        beat = functools.partial(_beat, lease)
        return Delivery(self._run, name, say=self._show_once, tell=self._show_once, beat=beat, alone=False)

    def _show_once(self, text: str) -> None:
        if text not in self._shown_messages:
            self._shown_messages.add(text)
            self._tell_user(text)

    def inherit(self) -> None:
        """The process that delivered is gone, and the run is this forked child's: go on from what it had committed."""
        self._pumping = False
        self._interrupted.clear()
        self._begin([delivery.name for delivery, _ in self._entries])

    def pump(self) -> None:
        """Give each tracker what is new in the journal. Never raises."""
        if self._pumping:  # a tracker that logs, or a signal handler: the outer call takes it along
            return
        if os.getpid() != self._pid:  # a fork's rows are its parent's to deliver
            return
        self._pumping = True
        try:
            if self._reducing is not None:
                self._reducing.poll()
            with vendors.own():
                for entry in list(self._entries):
                    self._pump_one(entry)
        finally:
            self._pumping = False

    def end(self) -> None:
        """Training ends: have the rest of the values across ranks reduced. Never raises."""
        if self._reducing is not None:
            self._reducing.finish()

    def close(self) -> None:
        """Deliver what is left and close every tracker with the run's status. Never raises."""
        with vendors.own():
            self._close()

    def _close(self) -> None:
        for entry in list(self._entries):
            self._pump_one(entry)
        for delivery, lease in self._entries:
            if delivery.account.failures:  # the last try failed, and there is no time left for another
                why = f" ({delivery.account.error})" if delivery.account.error else ""
                self._show_once(
                    f"{delivery.name}: not delivered{why}; deliver with: trackers sync {delivery.run.quoted}"
                )
            try:
                delivery.close()
            except Exception as error:
                pass_on(error)
                delivery.note_traceback(error)
                where = delivery.run.quoted
                self._show_once(f"{delivery.name}: {error}; its records are in the journal: trackers sync {where}")
            lease.release()
        self._entries.clear()

    def _pump_one(self, entry: tuple[Delivery, Lease]) -> None:
        delivery, lease = entry
        try:
            if delivery.name in self._interrupted:  # as after a kill: another one goes on from the cursor
                place = self._entries.index(entry)
                entry = self._entries[place] = (self._delivery(delivery.name, lease), lease)
                self._interrupted.discard(delivery.name)
            entry[0].pump()
        except Stop:
            self._entries.remove(entry)  # it has said why
            lease.release()
        except BaseException as error:
            if interrupts(error):
                self._interrupted.add(delivery.name)
                raise
            delivery.note_traceback(error)
            self._show_once(f"{delivery.name}: {type(error).__name__}: {error}; training and the other trackers go on")
            self._entries.remove(entry)
            lease.release()


def _beat(lease: Lease, allow_s: float) -> None:
    if not lease.beat(allow_s):
        raise Stop("the lease was taken over", restart=False)
