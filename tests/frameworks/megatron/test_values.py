"""What Megatron's logging is given: odd values cost themselves alone, wrong ones are one line before the run begins."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import trackers
from tests import forked
from trackers.errors import UsageError
from trackers.formats import megatron_line as line
from trackers.frameworks.megatron import LoggerConfig, MegatronLog, StragglerDetectionConfig, start, straggler
from trackers.frameworks.megatron import straggler as reports
from trackers.frameworks.megatron.training_log import Losses
from trackers.instruments.memory import MemoryReader
from trackers.records import Metrics
from trackers.reductions import Mean
from trackers.support import logging_setup
from trackers.training.run import Run


def logged(run: Run) -> dict[str, dict[int, float]]:
    """Values by name and step."""
    found: dict[str, dict[int, float]] = {}
    for record in run._recorder.logged():
        if isinstance(record, Metrics) and record.step is not None:
            for name, value in record.values.items():
                found.setdefault(name, {})[record.step] = value
    return found


def call(log: MegatronLog, iteration: Any, losses: Any, rate: Any = 1e-3, scale: Any = 1.0, skipped: Any = 0,
         norms: tuple[Any, Any, Any] = (None, None, None), **more: Any) -> bool:  # fmt: skip
    return log.training_log(losses, {}, rate, None, iteration, scale, False, skipped, *norms, **more)


NOT_LOSSES = [
    "high", "2.0", b"2", [1.0, 2.0], (1.0,), {}, {"a": 1.0}, object(), 1j, torch.zeros(4), torch.zeros(2, 2),
    torch.zeros(0), torch.zeros(1, dtype=torch.complex64), torch.zeros((), device="meta"), np.zeros(3), np.str_("x"),
    np.array(["a"]), int, math.inf.__add__,
]  # fmt: skip
LOSSES = [
    1, 2.5, True, np.float32(2.5), np.int64(3), np.array(2.5), np.array([2.5]), torch.tensor(2.5), torch.tensor([2.5]),
    torch.tensor([[2.5]]), torch.tensor(3), torch.tensor(2.5, dtype=torch.bfloat16),
    torch.tensor(2.5, requires_grad=True), torch.tensor(True),
]  # fmt: skip


@pytest.mark.parametrize("bad", NOT_LOSSES, ids=lambda value: f"{type(value).__name__}"[:20])
def test_loss_that_is_no_scalar_costs_itself_alone(bad: Any, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The other losses, names and lines of its interval and of all later ones are there; it is named, once."""
    printed: list[str] = []
    log = MegatronLog(run, LoggerConfig(log_interval=2), train_iters=6, global_batch_size=2, write=printed.append)
    for iteration in range(1, 7):
        call(log, iteration, {"bad loss": bad if iteration == 2 else 4.0, "lm loss": float(iteration)})
    found = logged(run)
    assert found["lm loss"] == {n: float(n) for n in range(1, 7)}
    assert found["bad loss"] == dict.fromkeys((1, 3, 4, 5, 6), 4.0)
    assert found["learning-rate"] == dict.fromkeys(range(1, 7), 1e-3)
    means = [text.split("lm loss: ")[1].split(" ")[0] for text in printed]
    assert means == ["1.500000E+00", "3.500000E+00", "5.500000E+00"]
    assert ["bad loss: 4.000000E+00" in text for text in printed] == [True] * 3
    assert capsys.readouterr().err.count("loss 'bad loss' is left out, all else is logged: ") == 1


@pytest.mark.slow
@given(st.lists(st.tuples(st.dictionaries(st.sampled_from("abc"), st.sampled_from([*LOSSES, None, *NOT_LOSSES])),
                          st.booleans()), max_size=12))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_sums_are_those_of_the_scalars(iterations: list[tuple[dict[str, Any], bool]]) -> None:
    """Whatever else comes, in whatever order: a sum is that of its own scalars, in iterations that advanced."""
    losses, expected = Losses(lambda text: None), dict[str, list[float]]()
    for values, advanced in iterations:
        good = {name: value for name, value in values.items() if any(value is one for one in LOSSES)}
        assert losses.add(values, advanced).keys() == good.keys()
        for name, value in good.items() if advanced else ():
            expected.setdefault(name, []).append(float(np.asarray(torch.as_tensor(value).detach().float()).reshape(())))
    sums, nans = losses.take()
    assert {name: (pytest.approx(float(total)), count) for name, (total, count) in sums.items()} == {
        name: (sum(values), len(values)) for name, values in expected.items()
    }
    assert int(nans) == 0
    assert losses.take() == ({}, 0)


ODD = [None, "x", [], [0.1, 0.2], {}, math.nan, math.inf, -math.inf, torch.zeros(3), torch.tensor(math.nan),
       np.zeros(2), object(), 1j, -1, 2.5, True, torch.tensor([0.5]), b"1", 10**400]  # fmt: skip


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_training_log_takes_whatever_it_is_given(data: st.DataObject) -> None:
    """No argument, however odd, raises, stops a later line or costs a neighbour."""
    rows: list[tuple[dict[str, Any], Any]] = []
    said: list[str] = []
    run = SimpleNamespace(
        log=lambda values, step: rows.append((values, step)), timers=trackers.instruments.timers.Timers(-1),
        inspect_if_asked=lambda *given: None, inspection=None, define_metric=lambda *given, **more: None,
    )  # fmt: skip
    printed: list[str] = []
    log = MegatronLog(run, LoggerConfig(log_interval=1, log_max_attention_logit=True), train_iters=4,
                      global_batch_size=2, write=printed.append)  # fmt: skip
    log.say = said.append
    odd = st.sampled_from(ODD)
    losses = data.draw(st.one_of(odd, st.dictionaries(st.sampled_from(["a", 3, None, "b c"]), odd, max_size=3)))
    assert call(
        log, data.draw(odd), losses, data.draw(odd), data.draw(odd), data.draw(odd),
        (data.draw(odd), data.draw(odd), data.draw(odd)), max_attention_logit=data.draw(odd),
        batch_size=data.draw(odd), skipped_samples=data.draw(odd),
    ) is False  # fmt: skip
    log.validation_log(losses, data.draw(odd))
    rows.clear()
    printed.clear()
    call(log, 2, {"lm loss": 2.0})
    assert [(values["lm loss"], step) for values, step in rows] == [(2.0, 2)]
    assert ["lm loss: 2.000000E+00 | loss scale: 1.0" in text for text in printed] == [True]
    assert not [text for text in said if text.startswith(("training_log: TypeError", "report:", "validation_log: "))]


def test_loss_of_all_ranks_goes_to_the_trackers(run: Run) -> None:
    """A ``trackers.Mean`` among the losses is logged as such; a line of one rank's losses leaves it out."""
    printed: list[str] = []
    log = MegatronLog(run, LoggerConfig(log_interval=1), train_iters=1, global_batch_size=2, write=printed.append)
    call(log, 1, {"lm loss": 2.0, "aux": Mean(6.0, 2)})
    assert logged(run)["aux"] == {1: 3.0}
    assert "aux" not in printed[0]


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ({"lm loss": 2.0}, "lm loss value: 2.000000E+00 | lm loss PPL: 7.389056E+00 |"),
        ({"lm loss": torch.tensor([25.0])}, "lm loss value: 2.500000E+01 | lm loss PPL: 4.851652E+08 |"),
        ({"lm loss": math.nan}, "lm loss value: NAN | lm loss PPL: NAN |"),
        ({"lm loss": torch.zeros(2), "mtp": 0.0}, "iteration 4 | mtp value: 0.000000E+00 | mtp PPL: 1.000000E+00 |"),
    ],
)
@pytest.mark.parametrize("ppl", [False, True])
def test_evaluation_line_has_the_perplexity(ppl: bool, losses: dict[str, Any], expected: str, run: Run) -> None:
    """As Megatron's: always on the line, whether or not trackers get it; of 20 at most; NaN is no large number."""
    printed: list[str] = []
    config = LoggerConfig(log_validation_ppl_to_tensorboard=ppl)
    log = MegatronLog(run, config, train_iters=4, global_batch_size=1, write=printed.append)
    log.validation_log(losses, 4)
    assert [text.endswith(expected) for text in printed] == [True]
    name = next(name for name, loss in losses.items() if not isinstance(loss, torch.Tensor) or loss.numel() == 1)
    found = logged(run)
    assert (f"{name} validation ppl" in found) == ppl
    if ppl and losses[name] is math.nan:
        assert math.isnan(found[f"{name} validation ppl"][4])


def test_evaluation_line_of_the_console_tracker_has_the_perplexity() -> None:
    """It follows from the loss where it wasn't logged; where it was, that one is shown, and once."""
    assert line.validation(3, {"lm loss validation": 0.0}).endswith(
        "lm loss value: 0.000000E+00 | lm loss PPL: 1.000000E+00 |"
    )
    told = line.validation(3, {"a validation ppl": 5.0, "a validation": 0.0, "b validation ppl": 6.0, "val_loss": 1.0})
    assert told == ("validation loss at iteration 3 | a value: 0.000000E+00 | a PPL: 5.000000E+00 | "
                    "b PPL: 6.000000E+00 | val_loss: 1.000000E+00 |")  # fmt: skip


WRONG = ["x", -1, 0, 2.5, [], {}, object(), None, True, math.nan, ["a", 3], {"a": 3}, {3: "a"}, b"x", float("inf")]


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(LoggerConfig)])
def test_field_of_a_wrong_kind_is_one_line_that_names_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field with every odd value: it is taken, or it is one line that names the field; no run is begun."""
    monkeypatch.setattr(trackers, "init", lambda *given, **more: pytest.fail("a run was begun"))
    for value in WRONG:
        config = LoggerConfig(**{name: value})
        try:
            config.check()
        except UsageError:
            with pytest.raises(UsageError, match=f"^{name}[=:].*$"):
                start(config, trackers="json", train_iters=1, global_batch_size=1)
        else:
            config.remarks()
            config.options()
            config.logging_options()
            config.measure()
            config.trackers()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"global_batch_size": -8}, "global_batch_size=-8: give a number, 0 or more"),
        ({"seq_length": -2048}, "seq_length=-2048"),
        ({"micro_batch_size": "4"}, "micro_batch_size='4'"),
        ({"train_iters": None}, "train_iters=None"),
        ({"train_iters": math.nan}, "train_iters=nan"),
        ({"train_iters": 10.5}, "train_iters=10.5: give a whole number"),
        ({"start_iteration": -1}, "start_iteration=-1"),
        ({"consumed_samples": math.inf}, "consumed_samples=inf"),
        ({"flops_per_token": -1e9}, "flops_per_token"),
        ({"precision": "bf17"}, "precision 'bf17': known are"),
        ({"precision": ["bf16"]}, "precision="),
        ({"straggler": True}, "StragglerDetectionConfig"),
        ({"straggler": StragglerDetectionConfig(straggler_minmax_count=0)}, "straggler_minmax_count=0"),
    ],
)
def test_argument_that_makes_no_sense_begins_no_run(arguments: dict[str, Any], message: str) -> None:
    """What run.loop checks, start checks, and before a run is begun."""
    with pytest.raises(UsageError, match=message):
        start(LoggerConfig(), trackers="json", **{"train_iters": 4, "global_batch_size": 2, **arguments})
    assert not Path("runs").exists()


def test_argument_that_is_unknown_or_missing_begins_no_run(tmp_path: Path) -> None:
    """A TypeError as of any function; a file that can't be written, or another object than a configuration, is said."""
    with pytest.raises(TypeError, match="train_iter"):
        start(LoggerConfig(), trackers="json", train_iter=4, global_batch_size=2)
    with pytest.raises(TypeError, match="global_batch_size"):
        start(LoggerConfig(), trackers="json", train_iters=4)
    with pytest.raises(UsageError, match="config of type dict"):
        start({"log_interval": 3}, trackers="json", train_iters=4, global_batch_size=2)  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    config = LoggerConfig(save_config_filepath=tmp_path / "file" / "config.yaml")
    with pytest.raises(UsageError, match=r"save_config_filepath='.*' can't be written"):
        start(config, trackers="json", train_iters=4, global_batch_size=2)
    assert not Path("runs").exists()


def test_run_that_could_not_be_measured_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails once the run was begun ends it, as failed: none is left open."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    monkeypatch.setattr("trackers.frameworks.megatron.training_log.Loop", lambda *given, **more: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        start(LoggerConfig(), trackers="json", init={"mode": "offline"}, train_iters=4, global_batch_size=2)
    assert trackers.current() is None if hasattr(trackers, "current") else True
    (stream,) = Path("runs").glob("*/*/streams/rank-0.1.jsonl")
    last = json.loads(stream.read_text().splitlines()[-1])
    assert (last["kind"], last["status"]) == ("finish", "failed")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"wandb_project": "p"}, "wandb_project is set, but wandb_exp_name isn't: W&B is off"),
        ({"wandb_project": "p", "wandb_exp_name": ""}, "W&B is off"),
        ({"wandb_entity": "team"}, "wandb_entity without wandb_project"),
        ({"mlflow_tags": {"a": "b"}}, "mlflow_tags without mlflow_experiment"),
        ({"comet_workspace": "w", "comet_tags": ["a"]}, "comet_workspace, comet_tags without comet_project"),
        ({"comet_project": "p", "comet_workspace": "w"}, "comet_workspace has no effect: what uploads the archive"),
        (
            {"mlflow_experiment": "p", "mlflow_run_name": "a", "comet_project": "p", "comet_experiment_name": "b"},
            "comet_experiment_name='b' has no effect",
        ),
        ({"log_params_norm": True}, "norms and zeros that training_log isn't given aren't measured: give start model="),
        ({"log_num_zeros_in_grad": True}, "give start model="),
        ({"log_throughput": True}, "TFLOP/s isn't known: give start flops_per_step="),
        ({"moe_routing_trace_path": "x"}, "moe_routing_trace_path has no effect"),
        ({"log_device_memory_used": True}, "log_device_memory_used has no effect"),
    ],
)
def test_field_that_does_nothing_is_said(
    fields: dict[str, Any], said: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is asked for and can't be done is one line at the start, never silence."""
    MegatronLog(run, LoggerConfig(**fields), train_iters=4, global_batch_size=2, write=lambda text: None)
    assert capsys.readouterr().err.count(said) == 1


def test_nothing_is_logged_where_training_metrics_are_skipped(run: Run) -> None:
    """``skip_train_metrics_log``: neither trackers nor the console; iterations and evaluations count on."""
    printed: list[str] = []
    config = LoggerConfig(log_interval=1, skip_train_metrics_log=True)
    log = MegatronLog(run, config, train_iters=4, global_batch_size=2, write=printed.append)
    for iteration in range(1, 4):
        call(log, iteration, {"lm loss": 2.0})
    assert "lm loss" not in logged(run)
    assert printed == []
    log.validation_log({"lm loss": 2.0}, 3)
    assert logged(run)["samples vs steps"] == {3: 6}


def test_names_of_loggers_may_be_one_text(caplog: pytest.LogCaptureFixture) -> None:
    """ "noisy" filters that logger, not those whose names begin with one of its letters."""
    caplog.set_level(logging.INFO)
    for modules in ("noisy", " noisy , other.part", ["noisy", "other.part"], ("noisy", "other.part"), {"noisy"}):
        config = LoggerConfig(modules_to_filter=modules)  # type: ignore[arg-type]
        config.check()
        logging_setup.apply(config.logging_options())
        caplog.clear()
        for name in ("noisy", "noisy.deep", "nothing", "own", "important", "system", "yes"):
            logging.getLogger(name).info("hello")
        assert [record.name for record in caplog.records] == ["nothing", "own", "important", "system", "yes"]
    caplog.clear()
    logging_setup.configure("INFO", modules_to_filter="noisy", environ={})
    logging.getLogger("own").info("hello")
    assert [record.name for record in caplog.records] == ["own"]


def test_memory_under_a_name_of_ones_own_is_in_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistic says what the unit is, not the name; what torch doesn't have is named once."""
    books = {
        "allocated_bytes.all.current": 3e9,
        "num_ooms": 2,
        "requested_bytes.all.peak": 5e9,
        "reserved_bytes.all.peak": 7e9,
    }
    monkeypatch.setattr("trackers.instruments.memory.cuda_in_use", lambda: SimpleNamespace(memory_stats=lambda: books))
    said: list[str] = []
    keys = {"allocated_bytes.all.current": "weights", "num_ooms": "bytes_lost",
            "requested_bytes.all.peak": "asked-bytes",
            "reserved_bytes.all.peak": "held-gigabytes", "nothing.like.it": "x"}  # fmt: skip
    assert MemoryReader(keys, said.append).values() == {
        "memory/weights": 3.0, "memory/bytes_lost": 2, "memory/asked-gigabytes": 5.0, "memory/held-gigabytes": 7.0,
    }  # fmt: skip
    assert len(said) == 1
    assert "has no nothing.like.it" in said[0]


def test_log_memory_logs_memory(run: Run) -> None:
    """The documented field does what ``log_memory_to_tensorboard`` does."""
    log = MegatronLog(run, LoggerConfig(log_memory=True), train_iters=4, global_batch_size=2, write=lambda text: None)
    for iteration in range(1, 4):
        call(log, iteration, {"lm loss": 2.0})
    assert "memory/process-gigabytes" in logged(run)


class Ranks:
    """Other ranks, who post what a function makes of this rank's words, as soon as they are let."""

    def __init__(self, make: Any) -> None:
        self.make = make
        self.let = True

    def post(self, way: Any, value: Any) -> Any:
        ranks = self

        class Posted(straggler.Posted):
            @property
            def ready(self) -> bool:
                return ranks.let

        return Posted(self.make(value))


def test_energy_on_the_line_is_the_mean_of_all_ranks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line waits for the other ranks' energy, without holding up training; later lines keep their order; a rank
    that can't tell is left out, and where nobody's words come the line comes without."""
    for name, value in {"RANK": "2", "WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    values = [{"iter-energy/gpu": 100.0, "power/gpu": 300.0}, None, {"iter-energy/gpu": 400.0, "power/gpu": 500.0}]
    others = Ranks(lambda value: [{**value, "energy": one} for one in values])
    monkeypatch.setattr(reports.TextGather, "post", lambda self, value: others.post(self, value))
    monkeypatch.setattr(reports.TextGather, "alone", property(lambda self: False))
    monkeypatch.setattr(
        "trackers.frameworks.megatron.training_log.own_gpu", lambda say: SimpleNamespace(read=list, close=lambda: None)
    )
    printed: list[str] = []
    log = MegatronLog(run, LoggerConfig(log_interval=2, log_energy=True), train_iters=8, global_batch_size=2,
                      straggler=StragglerDetectionConfig(log_straggler=False), write=printed.append)  # fmt: skip
    for iteration in range(1, 9):
        others.let = iteration not in (4, 5, 7, 8)
        call(log, iteration, {"lm loss": 2.0})
        if iteration == 4:
            log.validation_log({"lm loss": 2.0}, 4)
            assert len(printed) == 1, "a line waits for the one before it"
    assert ["energy per GPU (J/iter/GPU): 250.0 | power per GPU (W/GPU): 400.0" in text for text in printed] == [
        True, True, False, True,
    ]  # fmt: skip
    assert "validation loss at iteration 4" in printed[2]
    log._reports.finish(seconds=0.01)
    assert "iteration        8/" in printed[-1]
    assert "energy" not in printed[-1]


SECTIONS = [
    ({"straggler": 1.0, "forward-compute": 5.0}, 1.0, True),
    ({"forward-compute": 5.0, "forward-backward": 20.0, "batch-generator": 1.0}, 5.0, True),
    ({"Forward": 5.0, "backward": 9.0, "optimizer": 1.0}, 5.0, True),
    ({"forward-backward": 20.0, "all-grads-sync": 9.0, "optimizer": 1.0}, 20.0, False),
    ({"work": 4.0, "dist-barrier": 9.0, "all-reduce": 3.0, "forward-recv": 2.0}, 4.0, False),
    ({"iteration": 30.0, "all-grads-sync": 9.0}, None, False),
    ({}, None, False),
]


@pytest.mark.parametrize(("times", "ms", "forward"), SECTIONS)
def test_ranks_are_compared_by_the_sections_they_work_in(
    times: dict[str, float], ms: float | None, forward: bool
) -> None:
    """Traced sections first, then the forward pass, then both passes, then all that doesn't name a wait."""
    assert line.traced([times, times]) == ([ms, ms], forward)
    assert line.traced([times, None]) == ([ms, None], forward)


SLOW_MS, QUICK_MS = 30.0, 10.0


@pytest.mark.parametrize("how", ["straggler_timer", "forward-compute", "forward-backward", "work"])
@pytest.mark.parametrize("level", [0, 2])
def test_slow_rank_is_named_in_each_report(how: str, level: int, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 ms of work against 10 ms, on ranks whose iterations take equally long since they wait for each other: 20 of
    20 reports name the slow rank, whatever is traced and at whatever level the timers are."""
    now = [100.0]
    monkeypatch.setattr("trackers.instruments.timers.time", SimpleNamespace(perf_counter=lambda: now[0]))
    for name, value in {"RANK": "2", "WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    posted: list[Any] = []

    def post(way: Any, value: Any) -> Any:
        slow = {kind: {name: ms * 3 for name, ms in value[kind].items()} for kind in ("timers", "traced")}
        posted.append(value)
        return straggler.Posted([value, {**value, **slow}, value])

    monkeypatch.setattr(reports.TextGather, "post", post)
    printed: list[str] = []
    log = MegatronLog(run, LoggerConfig(log_interval=1, timing_log_level=level), train_iters=21, global_batch_size=2,
                      straggler=StragglerDetectionConfig(straggler_minmax_count=2), flops_per_step=6e12,
                      write=printed.append)  # fmt: skip
    for iteration in range(1, 22):
        with log.straggler_timer(bdata=True):
            now[0] += 0.002
        with log.straggler_timer if how == "straggler_timer" else log.timers(how, log_level=2):
            now[0] += QUICK_MS / 1000
        now[0] += 0.020  # waiting for the slow one
        call(log, iteration, {"lm loss": 2.0})
    found = [text for text in printed if "MnRtt/Rnk" in text]
    assert len(found) == 20
    quick = 12 if how == "work" else 10  # with the data's, since no timer names the forward pass
    rtt = f"MnRtt/Rnk: {quick:.2f}ms/0 | MxRtt/Rnk: {3 * quick:.2f}ms/1"
    assert all(rtt in text for text in found)
    assert all("MnDRtt/Rnk: 2.00ms/0" in text for text in found)
    part = 3 if how in ("straggler_timer", "forward-compute") else 1
    assert [text for text in printed if text.startswith("Bottom")] == [
        f"Bottom 2 ranks by Etpt (TF): rank 1: {6000 / quick / 9 / part:.2f}, rank 0: {6000 / quick / 3 / part:.2f}"
    ] * 20


def test_report_of_stragglers_can_be_switched_off(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the configuration, or by an option; nothing is traced then, and a disabled detector's calls do nothing."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    for off in ("log_straggler", "enable_straggler_on_startup"):
        log = MegatronLog(run, LoggerConfig(), train_iters=4, global_batch_size=2, write=lambda text: None,
                          straggler=StragglerDetectionConfig(**{off: False}))  # fmt: skip
        assert not log.straggler_timer.enabled
        with log.straggler_timer, log.straggler_timer(bdata=True):
            pass
        assert log.straggler_timer.elapsed() == (0.0, 0.0, 0, 0, 0, 0)
        assert list(log._traced) == []
    monkeypatch.setattr(run._recorder.info, "options", {**run._recorder.info.options, "TRACKER_LOG_STRAGGLER": False})
    log = MegatronLog(run, LoggerConfig(), train_iters=4, global_batch_size=2, write=lambda text: None)
    assert not log.straggler_timer.enabled


def test_calls_of_megatrons_timers_are_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """start(barrier=…), elapsed, reset, active_time, set_elapsed; resetting one leaves what is logged alone."""
    now = [100.0]
    monkeypatch.setattr("trackers.instruments.timers.time", SimpleNamespace(perf_counter=lambda: now[0]))
    waited: list[Any] = []
    distributed = SimpleNamespace(barrier=lambda group=None: waited.append(group))
    monkeypatch.setattr("trackers.instruments.timers.torch_distributed", lambda: distributed)
    log = MegatronLog(run, LoggerConfig(timing_log_level=1, log_timers_to_tensorboard=True), train_iters=4,
                      global_batch_size=2, write=lambda text: None)  # fmt: skip
    monkeypatch.setattr(run.timers, "level", 1)
    timer = log.timers("forward-backward", log_level=1)
    timer.set_barrier_group("group")
    timer.start(barrier=True)
    now[0] += 2.0
    assert timer.elapsed(reset=False) == 2.0
    now[0] += 1.0
    timer.stop(barrier=True)
    assert waited == ["group", "group"]
    assert (timer.elapsed(reset=False), timer.elapsed(barrier=True), timer.elapsed()) == (3.0, 3.0, 0.0)
    timer.start()
    now[0] += 4.0
    assert (timer.elapsed(), timer.running) == (4.0, True)
    now[0] += 1.0
    timer.reset()
    assert (timer.elapsed(), timer.running, timer.active_time()) == (0.0, False, 7.0)
    timer.set_elapsed(9.0)
    assert timer.elapsed() == 9.0
    call(log, 1, {"lm loss": 2.0})
    assert logged(run)["forward-backward-time"] == {1: 7.0}
    above = log.timers("batch-generator")
    above.start(barrier=True)
    above.stop(barrier=True)
    above.reset()
    above.set_elapsed(3.0)
    above.set_barrier_group(None)
    assert (above.elapsed(), above.active_time()) == (0.0, 0.0)
    assert len(waited) == 3


def test_timers_are_logged_and_printed_by_hand(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """timers.log prints Megatron's report, timers.write logs seconds, each of what elapsed counts from its reset."""
    now = [100.0]
    monkeypatch.setattr("trackers.instruments.timers.time", SimpleNamespace(perf_counter=lambda: now[0]))
    printed: list[str] = []
    log = MegatronLog(run, LoggerConfig(), train_iters=4, global_batch_size=2, write=printed.append)
    monkeypatch.setattr(run.timers, "level", 2)
    for name, seconds in (("forward", 4.0), ("backward", 8.0)):
        with log.timers(name):
            now[0] += seconds
    assert log.timers.get_all_timers_string(["forward"], reset=False) == (
        f"(min, max) time across ranks (ms):\n    {'forward ':.<48}: (4000.00, 4000.00)"
    )
    log.timers.log(["forward", "no such timer"], normalizer=2, reset=False, barrier=True)
    log.timers.write(["forward", "backward"], None, 3, normalizer=4.0)
    log.timers.log()
    log.timers.log("forward", rank=1)
    assert printed == [f"(min, max) time across ranks (ms):\n    {'forward ':.<48}: (2000.00, 2000.00)"]
    found = logged(run)
    assert (found["forward-time"], found["backward-time"]) == ({3: 1.0}, {3: 2.0})


@pytest.mark.parametrize("level", [3, -2, "1", 1.5, True, [], None])
def test_level_of_a_timer_that_is_unknown_is_said(level: Any, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and the timer is a frequent one's; no level at all means that, as in Megatron."""
    log = MegatronLog(run, LoggerConfig(), train_iters=4, global_batch_size=2, write=lambda text: None)
    with log.timers("x", log_level=level):
        pass
    log.timers.log(["x"], normalizer=0)
    err = capsys.readouterr().err
    assert err.count("log_level=") == (0 if level is None else 1)
    assert err.count("normalizer=0: give a number above 0") == 1


RANKS = """
import sys, time
import torch
import torch.distributed as dist
from trackers.frameworks.megatron import LoggerConfig, start

dist.init_process_group("gloo")
for how in ("straggler_timer", "forward-backward"):
    log = start(LoggerConfig(log_interval=1), trackers="json", train_iters=21, global_batch_size=3,
                init={"mode": "offline", "options": {"TRACKER_RELAY": False}}, write=lambda text: print(how, text))
    for iteration in range(1, 22):
        with log.straggler_timer if how == "straggler_timer" else log.timers(how, log_level=1):
            time.sleep(0.1 if dist.get_rank() == 1 else 0.01)
        dist.all_reduce(torch.ones(1))
        log.training_log({"lm loss": 2.0}, {}, 1e-3, None, iteration, 1.0, False, 0, None, None, None)
    log.run.finish()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_slow_rank_of_a_real_job_is_named_in_each_report(tmp_path: Path) -> None:
    """Three processes that wait for each other, one of which works for 100 ms instead of 10: 20 of 20 reports name it.

    Takes some seconds: three processes import torch. A busy machine delays a process by tens of milliseconds.
    """
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    done = forked.run([sys.executable, str(script)], preload=forked.TORCH, ranks=3, timeout=120)
    assert done.returncode == 0, done.stderr
    for how in ("straggler_timer", "forward-backward"):
        found = [text for text in done.stdout.splitlines() if text.startswith(f"{how} MnRtt/Rnk: ")]
        assert len(found) == 20
        assert [text for text in found if re.search(r"MxRtt/Rnk: [0-9.]+ms/1$", text)] == found
