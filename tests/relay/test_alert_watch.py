"""The watch over one run: what it raises, when, and once, whatever it is killed at."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import T0, Killed, begun_run, kill_at
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader, StreamWriter
from trackers.records import Alert, Finish, Metrics, Record, Start, Summary, encode
from trackers.relay.alerting import watch as module
from trackers.relay.alerting.files import outbox, read_outbox
from trackers.relay.alerting.watch import AlertWatch
from trackers.support import run_requests


class Watched:
    """A run, and the watch over it. now: what its clock says."""

    def __init__(self, path: Path, rules: str) -> None:
        self.run, self.writer = begun_run(path, options={"TRACKER_ALERTS": rules, "TRACKER_ALERT_TO": "***"})
        self.said: list[str] = []
        self.now = T0
        self.begin()

    def begin(self) -> None:
        """Anew, as after a kill."""
        self.watch = AlertWatch(self.run, self.run.read_info(), 1, self.said.append)

    def log(self, at: float, step: int | None = None, **values: float) -> None:
        """A record of training, so many seconds after the beginning."""
        self.write(Metrics(time=T0 + at, step=step, values=values))

    def write(self, record: Record) -> None:
        """A record of training."""
        self.writer.write(encode(record))
        self.now = max(self.now, record.time)

    def look(self) -> None:
        """Have it look at what is there."""
        self.watch._look_at = 0.0
        self.watch.poll()

    def end(self, status: str = "finished") -> None:
        """Training is over."""
        self.watch.ended(Finish(time=self.now, status=status))
        self.watch.close()

    @property
    def alerts(self) -> list[Alert]:
        """Those of rules, in the journal."""
        return journal(self.run)

    @property
    def texts(self) -> list[str]:
        """What they say."""
        return [alert.text for alert in self.alerts]


def journal(run: RunDirectory, attempt: int = 1) -> list[Alert]:
    """Alerts of rules."""
    found = StreamReader(run.stream(StreamName("alerts", 0, attempt))).read(100_000)
    return [record for record in found if isinstance(record, Alert)]


Make = Callable[[str], Watched]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a run that is watched by these rules, by a clock that stands still."""
    made: list[Watched] = []
    monkeypatch.setattr(module.time, "time", lambda: made[-1].now if made else T0)

    def make(rules: str) -> Watched:
        made.append(Watched(tmp_path / "runs/p/one", rules))
        return made[-1]

    return make


def test_condition_that_goes_on_raises_one_alert(watched: Make) -> None:
    """At the first value; anew when it had been over, with what was counted in between."""
    one = watched("loss > 10")
    for at, loss in enumerate([9, 11, 12, 13, 9, 11, 9, 12, 9]):
        one.log(at, step=at, loss=loss)
    one.look()
    assert [(alert.step, alert.text) for alert in one.alerts] == [(1, "loss = 11")]
    one.log(700, step=9, loss=14)
    one.look()
    assert one.texts[1:] == ["loss = 14; 2 more times since the last alert"]
    one.log(701, loss=1)
    one.log(702, step=10, loss=15)
    one.end()
    assert one.texts[2:] == ["1 more time since the last alert, the last: loss = 15"]


def test_rule_with_an_action_asks_the_run_once(watched: Make) -> None:
    """Its alert is why; a watch that begins anew, and finds the same again, asks nothing again."""
    one = watched("nan(loss) -> stop; loss > 10 every 1s -> checkpoint")
    for at, loss in enumerate([9.0, 11.0, 9.0, math.nan]):
        one.log(at, step=at, loss=loss)
    one.look()
    asked = run_requests.read(one.run.path)
    assert [(each.stop, each.checkpoint, each.reason, each.by) for each in asked] == [
        (False, True, "loss = 11", "alert loss > 10 every 1s -> checkpoint"),
        (True, False, "loss = nan", "alert nan(loss) -> stop"),
    ]
    assert all(each.attempt == 1 for each in asked)
    (one.run.path / "alerts.state.json").unlink(missing_ok=True)
    one.begin()
    one.look()
    assert run_requests.read(one.run.path) == asked


def test_windows_are_compared_once_they_are_full(watched: Make) -> None:
    """One alert while the condition holds, anew after it was over; NaN is in no window."""
    one = watched("mean(loss[2]) > 1.5 * mean(loss[4]) every 1s")
    for at, loss in enumerate([9.0, 1.0, 1.0, 1.0, math.nan, 1.0, 20.0, 20.0, 1.0, 1.0, 1.0, 90.0]):
        one.log(at, step=at, loss=loss)
    one.look()
    assert [(alert.step, alert.text) for alert in one.alerts] == [
        (6, "mean(loss[2]) = 10.5, 1.5 * mean(loss[4]) = 8.625"),
        (11, "mean(loss[2]) = 45.5, 1.5 * mean(loss[4]) = 34.875"),
    ]


def test_windows_survive_a_kill(watched: Make) -> None:
    """A watch that goes on has the values from before it."""
    one = watched("zscore(loss[4]) > 3")
    for at, loss in enumerate([1.0, 2.0, 1.0, 2.0]):
        one.log(at, step=at, loss=loss)
    one.look()
    one.watch._save()
    one.begin()
    one.log(5, step=5, loss=9.0)
    one.look()
    assert [(alert.step, alert.text) for alert in one.alerts] == [(5, "zscore(loss[4]) = 15")]


def test_quantiles_across_ranks_are_of_one_record(watched: Make) -> None:
    """Of those ranks that gave a finite value; beside a window over steps the newest ones count, after a kill, too."""
    one = watched("quantile(time/rank_*, 0.75) > 2 * median(time/rank_*) every 1s; max(time/rank_*) > mean(loss[2])")
    for at, slow in enumerate([1.0, 9.0, 1.0, math.nan, 9.0]):
        one.log(at, step=at, **{f"time/rank_{rank}": slow if rank > 1 else 1.0 for rank in range(3)})
    one.log(5, step=5, **{f"time/rank_{rank}": 1.0 + 8 * (rank > 2) for rank in range(4)})
    one.log(6, step=6, **{f"time/rank_{rank}": 1.0 + 8 * (rank > 1) for rank in range(4)})
    one.look()
    shown = "quantile(time/rank_*, 0.75) = {}, 2 * median(time/rank_*) = {}"
    assert [(alert.step, alert.text) for alert in one.alerts] == [(1, shown.format(5, 2)), (4, shown.format(5, 2))]
    one.watch._save()
    one.begin()
    for at in (7, 8):
        one.log(at, step=at, loss=4.0)
    one.look()
    assert one.texts[2:] == ["max(time/rank_*) = 9, mean(loss[2]) = 4"]


def test_counted_ones_are_said_when_the_time_is_over(watched: Make) -> None:
    """Not only with the next alert or at the end."""
    one = watched("loss > 10 every 60s")
    for at, loss in enumerate([11, 9, 12, 9, 13, 9]):
        one.log(at, loss=loss)
    one.look()
    assert len(one.texts) == 1
    one.now = T0 + 61
    one.look()
    one.look()
    assert one.texts[1:] == ["2 more times since the last alert, the last: loss = 13"]


def test_condition_must_hold_for_its_time(watched: Make) -> None:
    """A value in between that doesn't fulfil it begins anew."""
    one = watched("loss > 10 for 60s")
    for at, loss in ((0, 11), (50, 12), (55, 9), (58, 11), (100, 11), (117, 11)):
        one.log(at, loss=loss)
    one.look()
    assert one.alerts == []
    one.log(118, step=7, loss=20)
    one.look()
    assert [(alert.step, alert.text) for alert in one.alerts] == [(7, "loss = 20 for 60 s")]


def test_hysteresis_keeps_a_wavering_value_at_one_alert(watched: Make) -> None:
    """Without ``until`` the same values raise it again and again."""
    one = watched("loss > 10 until 8 every 1s; loss > 10 every 1s")
    for at, loss in enumerate([11, 9, 11, 9, 11]):
        one.log(10 * at, loss=loss)
    one.look()
    found = [alert.rule for alert in one.alerts]
    assert (found.count("loss > 10 until 8 every 1s"), found.count("loss > 10 every 1s")) == (1, 3)


def test_plateau_is_so_many_values_without_a_new_best_one(watched: Make) -> None:
    """In the direction that the name says, or that is given; once, until there is a better one."""
    one = watched("plateau(val_loss, 3 ); plateau(acc, 3); plateau(x, 3, max)")
    for at, loss in enumerate([5.0, 4.0, 4.0, math.nan, 4.5, 9.0, 3.0, 3.1, 3.1]):
        one.log(at, step=at, val_loss=loss, acc=-loss, x=-loss)
    one.look()
    assert [(alert.step, alert.text) for alert in one.alerts] == [
        (4, "val_loss: none of 3 values is below 4"),
        (4, "acc: none of 3 values is above -4"),
        (4, "x: none of 3 values is above -4"),
    ]


def test_attempts_that_crash_soon_after_each_other_are_both_said(watched: Make) -> None:
    """The time between two alerts of a rule isn't for ends: each is of another attempt."""
    one = watched("crashed")
    one.log(1, loss=1)
    one.end("crashed")
    StreamWriter(one.run.stream(StreamName("rank", 0, 2))).write(encode(Start(time=T0 + 30, attempt=2)))
    second = AlertWatch(one.run, one.run.read_info(), 2, print)
    second.ended(Finish(time=T0 + 60, status="crashed"))
    second.close()
    assert [alert.time for alert in journal(one.run) + journal(one.run, 2)] == [T0 + 1, T0 + 60]


def test_many_metrics_at_once_are_one_alert(watched: Make) -> None:
    """All layers' norms are NaN at one step."""
    one = watched("nan(*norm*)")
    one.log(1, step=3, **{f"norm_{n}": math.inf if n else math.nan for n in range(50)}, loss=math.nan)
    one.look()
    assert one.texts == ["norm_0 = nan, norm_1 = inf, norm_2 = inf, norm_3 = inf, norm_4 = inf and 45 more"]


def test_results_and_samples_of_the_machine_are_looked_at(watched: Make) -> None:
    """``final/…`` by the name that it is shown under; short names of samples."""
    one = watched("final/acc < 0.9; gpu/temp > 90; host/cpu > 99")
    one.write(Summary(time=T0 + 1, values={"acc": 0.5, "note": "x", "done": True}))
    node = StreamWriter(one.run.stream(StreamName("node", 0, 1)))
    node.write(encode(Metrics(time=T0 + 2, step=4, values={"gpu/temp_max_c": 95.0, "system.cpu": 99.5})))
    one.look()
    assert sorted(one.texts) == ["final/acc = 0.5", "gpu/temp_max_c = 95", "system.cpu = 99.5"]


def test_stall_is_raised_once_and_anew_after_training_went_on(watched: Make) -> None:
    """By the clock while nothing comes; samples of the machine are no progress."""
    one = watched("stall(60s)")
    one.log(1, step=1, loss=1)
    one.now = T0 + 60.9
    one.look()
    assert one.alerts == []
    node = StreamWriter(one.run.stream(StreamName("node", 0, 1)))
    node.write(encode(Metrics(time=T0 + 60, values={"system.cpu": 1.0})))
    one.now = T0 + 61
    one.look()
    one.now = T0 + 200
    one.look()
    one.log(210, step=2, loss=1)
    one.look()
    assert [(alert.text, alert.time) for alert in one.alerts] == [("no training record for 60 s", T0 + 61)]
    one.now = T0 + 300
    one.look()
    assert [alert.step for alert in one.alerts] == [1, 2]


def test_stall_that_nobody_saw_is_found_in_the_journal(watched: Make) -> None:
    """No relay lived while training hung: the times of its records tell."""
    one = watched("stall(60s)")
    one.log(1, loss=1)
    one.log(100, loss=1)
    one.log(101, loss=1)
    one.look()
    assert one.texts == ["no training record for 99 s; training goes on"]


def test_long_journal_that_is_not_read_yet_is_no_stall(watched: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is asked when all is read."""
    monkeypatch.setattr(module, "TURN_RECORDS", 10)
    one = watched("stall(60s)")
    for at in range(200):
        one.log(at, loss=1)
    for _ in range(30):
        one.look()
    assert one.alerts == []


@pytest.mark.parametrize("status", ["crashed", "failed", "finished", "preempted"])
def test_end_raises_its_own_rule_alone(watched: Make, status: str) -> None:
    """Said once, though a second relay says the same."""
    one = watched("crashed; failed; finished; preempted")
    one.log(1, step=5, loss=1)
    one.end(status)
    one.begin()
    one.end(status)
    assert [(alert.title, alert.rule, alert.step) for alert in one.alerts] == [(f"run {status}", status, 5)]


def test_rule_about_no_metric_is_named_at_the_end(watched: Make) -> None:
    """With the name that was meant, most likely."""
    unmet = ["val_los > 10", "nan(val_los)", "plateau(val_los, 20)", "mean(val_los[5]) > 1"]
    met = ["val_loss > 10", "nan", "nan(none, val_loss)", "plateau(val_*, 20)", "stall(10m)", "crashed"]
    one = watched("; ".join([*unmet, *met]))
    one.log(1, val_loss=1)
    one.end()
    said = "TRACKER_ALERTS: the run had no metric of rule {!r}: did you mean 'val_loss'?"
    assert one.said == [said.format(rule) for rule in unmet]


@pytest.mark.parametrize("where", ["alerts.record.before", "alerts.record.after", "alerts.outbox.after", "state"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_watch_killed_anywhere_is_followed_by_one_that_says_the_same(
    watched: Make, monkeypatch: pytest.MonkeyPatch, where: str, number: int
) -> None:
    """Each alert is in the journal and in the outbox once, and none is missing."""
    one = watched("loss > 10 every 1s; nan(loss); stall(60s); finished")

    def work() -> None:
        one.begin()
        one.look()
        one.end()

    for at, loss in ((1.0, 9.0), (2.0, 11.0), (3.0, 9.0), (10.0, 12.0), (11.0, math.nan), (90.0, 1.0)):
        one.log(at, loss=loss)
    one.write(Alert(time=T0 + 91, title="by hand"))
    survive = kill_at(monkeypatch, module, where, number, "state")
    with pytest.raises(Killed):
        work()
    survive()
    work()
    wanted = ["finished", "loss > 10 every 1s", "loss > 10 every 1s", "nan(loss)", "stall(60s)"]
    assert sorted(alert.rule for alert in one.alerts) == wanted
    assert len({alert.key for alert in one.alerts}) == len(wanted)
    entries = read_outbox(one.run)[0]
    assert sorted(entry.rule for entry in entries) == ["", *wanted]


def test_torn_line_of_the_outbox_costs_no_other(watched: Make) -> None:
    """The machine died within a write; what follows is a line of its own, and the alert is written again."""
    one = watched("loss > 10; loss > 20")
    one.log(1, loss=15)
    one.look()
    outbox(one.run).write_bytes(outbox(one.run).read_bytes()[:-9])
    one.begin()
    one.log(2, loss=25)
    one.look()
    assert sorted(entry.rule for entry in read_outbox(one.run)[0]) == ["loss > 10", "loss > 20"]


def test_full_disk_delays_the_outbox_and_loses_nothing(watched: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What couldn't be written is written at the next look, also by the watch that follows."""
    one = watched("")
    one.write(Alert(time=T0 + 1, title="by hand"))

    opening = module.confined.open_file

    def full(path: Path, mode: str = "rb", **more: Any) -> Any:
        if mode == "ab":
            raise OSError(28, "No space left on device")
        return opening(path, mode, **more)

    with monkeypatch.context() as patch:
        patch.setattr(module.confined, "open_file", full)
        one.look()
        one.watch.close()
    assert read_outbox(one.run)[0] == []
    one.begin()
    one.look()
    assert [entry.title for entry in read_outbox(one.run)[0]] == ["by hand"]


def test_stream_that_cannot_be_opened_delays_an_alert(watched: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay lives on, and writes it when it can."""
    one = watched("loss > 10")
    one.log(1, loss=11)

    def full(path: Path, **_: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "StreamWriter", full)
        one.look()
    assert one.alerts == []
    one.look()
    assert one.texts == ["loss = 11"]


def test_stream_that_cannot_be_read_now_is_read_later(watched: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file server that is away for a moment ends no relay, and isn't taken for a stall."""
    one = watched("loss > 10; stall(60s)")
    one.look()
    one.log(100, loss=11)
    with monkeypatch.context() as patch:
        patch.setattr(module.StreamReader, "read", lambda *_: (_ for _ in ()).throw(OSError(116, "Stale file handle")))
        one.look()
    assert one.alerts == []
    one.look()
    assert "loss = 11" in one.texts


def test_alerts_are_bounded(watched: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that alerts at each step fills neither the outbox nor anybody's inbox; the last one says so."""
    monkeypatch.setattr(module, "MOST_ALERTS", 5)
    one = watched("")
    for at in range(9):
        one.write(Alert(time=T0 + at, title=f"step {at}"))
    one.look()
    found = read_outbox(one.run)[0]
    assert [entry.title for entry in found] == [f"step {at}" for at in range(5)]
    assert "This is alert 5: later ones aren't sent" in found[-1].text


@pytest.mark.parametrize("value", [10**400, -(10**400), 2**70, True, math.nan, -math.inf])
def test_any_number_is_compared(watched: Make, value: float) -> None:
    """A number that no double holds ends no relay."""
    one = watched("loss > 10; loss < -10; nan(loss)")
    one.log(1, loss=value)
    one.look()
    assert len(one.alerts) <= 2


def test_journal_that_was_cut_raises_nothing_again(watched: Make) -> None:
    """Somebody removed the end of a stream: what is read anew has the same keys."""
    one = watched("loss > 10")
    one.log(1, loss=11)
    one.log(2, loss=9)
    one.look()
    path = one.run.stream(StreamName("rank", 0, 1))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    one.look()
    one.log(3, loss=9)
    one.look()
    assert len(one.alerts) == 1


def test_secret_in_a_text_is_masked(watched: Make) -> None:
    """A metric's name may hold anything."""
    one = watched("nan")
    one.log(1, **{"key hf_abcdefghijklmnopqrstuvwxyzabcdefgh": math.nan})
    one.look()
    assert one.texts == ["key *** = nan"]
