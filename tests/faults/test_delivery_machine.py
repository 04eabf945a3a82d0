"""Any interleaving of logging, deliveries, failures, lost cursors and crashes ends with every record there once."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.chaos import mutants
from tests.faults.models import MODELS, Model
from tests.helpers import T0, run_info
from trackers import errors
from trackers.backends import registry
from trackers.journal import run_directory
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader, StreamWriter
from trackers.records import Finish, Metrics, Record, Start, encode, offset_of
from trackers.relay.delivery import delivery, merge_order
from trackers.relay.delivery.delivery import Delivery

STEPS_TO_END = 500


class Crash(BaseException):
    """The delivering process died here."""


class DeliveryMachine(RuleBasedStateMachine):
    """A run with two streams and up to three attempts, and three destinations."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.directory = Path(tempfile.mkdtemp(prefix="trackers-machine-"))
        self.left: int | str | None = None
        self.failures = 0
        for module in (delivery, merge_order, run_directory):
            self.patch.setattr(module, "failpoint", self.pass_point)
        self.patch.setattr(Model, "point", staticmethod(self.pass_point))
        self.patch.setattr(delivery, "RETRY_S", (0.0, 0.0))
        for name, model in MODELS.items():
            model.reset()
            self.patch.setitem(registry.BUILT_IN, name, f"tests.faults.models:{model.__name__}")
        self.run = RunDirectory(self.directory / "run")
        self.run.make()
        self.run.write_info(run_info(self.run.path, trackers=list(MODELS)))
        self.time = T0
        self.attempt = 0
        self.writers: dict[str, StreamWriter] = {}
        self.begin_attempt()

    def pass_point(self, name: str) -> None:
        """Die at the point that the rule chose, by its number over all points or by name; or fail as servers do."""
        if isinstance(self.left, str):
            if name.endswith(self.left):
                raise Crash(name)
        elif self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Crash(name)
        if self.failures and name.endswith("write.before"):
            self.failures -= 1
            raise errors.Unavailable("no answer")

    def now(self) -> float:
        self.time += 1.0
        return self.time

    def begin_attempt(self) -> None:
        for writer in self.writers.values():
            writer.release()
        self.attempt += 1
        for name in ("rank", "node"):
            self.writers[name] = StreamWriter(self.run.stream(StreamName(name, 0, self.attempt)))
            self.append(name, Start(time=self.now(), attempt=self.attempt))

    def append(self, writer: str, record: Record) -> None:
        self.writers[writer].write(encode(record))

    @rule(
        writer=st.sampled_from(["rank", "rank", "node"]),
        count=st.integers(1, 6),
        late_s=st.sampled_from([0.0, 0.0, 3.5, 20.5]),
    )
    def log(self, writer: str, count: int, late_s: float) -> None:
        """Training or the relay writes records; some come late, as reductions over ranks do."""
        for _ in range(count):
            self.append(writer, Metrics(step=int(self.time), time=self.now() - late_s, values={"x": 1.0}))

    @rule(length=st.integers(1, 30))
    def tear(self, length: int) -> None:
        """Training dies within a write; whoever opens the stream next cuts that off."""
        line = encode(Metrics(step=0, time=self.time, values={"torn": 1.0}))[:-1]
        os.write(self.writers["rank"].fd, line[:length])
        self.writers["rank"].release()
        self.deliver("idempotent", 3, 5, None)
        self.writers["rank"] = StreamWriter(self.run.stream(StreamName("rank", 0, self.attempt)))

    @precondition(lambda self: self.attempt < 3)
    @rule()
    def resume(self) -> None:
        """The run goes on as a new attempt."""
        self.begin_attempt()

    @rule(
        name=st.sampled_from(sorted(MODELS)),
        limit=st.integers(1, 5),
        steps=st.integers(1, 8),
        dies=st.none() | st.integers(0, 40) | st.just("write.after"),
        failures=st.integers(0, 2),
    )
    def deliver_for_a_while(self, name: str, limit: int, steps: int, dies: int | str | None, failures: int) -> None:
        """A delivery process lives, for some steps or until it dies."""
        self.failures = failures
        self.deliver(name, limit, steps, dies)
        self.failures = 0

    def deliver(self, name: str, limit: int, steps: int, dies: int | str | None) -> bool:
        """True if the delivery says that it is done."""
        self.left = dies
        work: Delivery | None = None
        try:
            with contextlib.suppress(Crash):
                work = Delivery(self.run, name, say=lambda text: None, alone=False)
                work._limit = limit
                for _ in range(steps):
                    if work.step() is None:
                        return True
        finally:
            self.left = None
            if work is not None:
                work._order.close()
        return False

    @rule(name=st.sampled_from(sorted(MODELS)), content=st.sampled_from([None, b"", b"{", b"[]"]))
    def lose_cursor(self, name: str, content: bytes | None) -> None:
        """The cursor's file is gone, or damaged."""
        path = self.run.delivery_state(name)
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(content)

    @invariant()
    def nothing_is_doubled(self) -> None:
        """No destination ever holds a record twice, nor one that nobody logged."""
        logged = {record.id for records in self.logged() for record in records}
        for name, model in MODELS.items():
            assert len(model.held) == len(set(model.held)), name
            assert logged.issuperset(model.held), name

    def logged(self) -> list[list[Record]]:
        """Each stream's records."""
        return [StreamReader(self.run.stream(name)).read(10_000) for name in self.run.stream_names()]

    def teardown(self) -> None:
        """The run ends, and each delivery gets the time to do its work: every record is there once, in order."""
        try:
            for writer in self.writers:
                self.append(writer, Finish(time=self.now(), status="failed", exit_code=3))
            for name, model in MODELS.items():
                assert self.deliver(name, 4, STEPS_TO_END, None), f"{name} doesn't come to an end"
                for records in self.logged():
                    ids = [record.id for record in records]
                    assert [id for id in model.held if id in set(ids)] == ids, name
                assert len(model.held) == sum(map(len, self.logged())), name
                assert model.status == "failed"
        finally:
            for open_writer in self.writers.values():
                open_writer.release()
            self.patch.undo()
            shutil.rmtree(self.directory)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "cursor before the write": lambda patch: mutants.cursor_first(delivery),
    "change of stream not written": lambda patch: patch.setattr(merge_order.Order, "_switch", _only_in_memory),
    "order not settled": lambda patch: patch.setattr(merge_order.Order, "_settle", lambda self, seq, latest: None),
    "records skipped": lambda patch: patch.setattr(merge_order, "offset_of", lambda record: offset_of(record) + 1),
}

SEED = 2
"""Where the machine begins to look: it comes upon all faults soon. By chance some take half a minute."""


def _only_in_memory(self: merge_order.Order, switch: merge_order.Switch) -> None:
    self._switches.append(switch)


@pytest.mark.soak
@pytest.mark.parametrize("fault", FAULTS)
def test_machine_finds(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery with this fault loses or doubles records in some interleaving, and the machine comes upon it."""
    monkeypatch.setattr(delivery.Delivery, "_deliver", delivery.Delivery._deliver)
    FAULTS[fault](monkeypatch)
    quick = settings(
        max_examples=2000,  # it stops at the first find, mostly within two hundred
        stateful_step_count=25,
        deadline=None,
        phases=[Phase.generate],
        database=None,
        report_multiple_bugs=False,
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(seed(SEED)(type("Seeded", (DeliveryMachine,), {})), settings=quick)


TestDeliveryMachine = DeliveryMachine.TestCase
TestDeliveryMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@pytest.mark.soak
class TestDeliveryMachineForLong(DeliveryMachine.TestCase):  # type: ignore[name-defined]
    """The same with ten times as many interleavings."""

    settings = settings(max_examples=400, stateful_step_count=25, deadline=None)
