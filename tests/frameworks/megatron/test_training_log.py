"""Megatron's logging: configuration, names one by one, lines to the letter, on one process and on four."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import trackers
from tests import ROOT, forked
from tests.fakes.gpu_drivers.standin import Drivers
from trackers.errors import UsageError
from trackers.formats import megatron_line as line
from trackers.frameworks.megatron import LoggerConfig, MegatronLog, start
from trackers.frameworks.megatron import straggler as gather
from trackers.frameworks.megatron import straggler as reports
from trackers.frameworks.megatron.config import OPTIONS, UPLOAD, WITHOUT_EFFECT
from trackers.hardware.gpus.base import Gpu, Reading
from trackers.records import Define, Metrics
from trackers.support import logging_setup
from trackers.training.run import Run

EXAMPLE = ROOT / "examples/gpt2/megatron_log.py"
GPT2 = ["--n-layer", "1", "--n-head", "2", "--n-embd", "32", "--block-size", "32", "--batch-size", "8", "--eval-iters",
        "2", "--warmup-iters", "5", "--device", "cpu", "--tracker", "json", "--log-interval", "4", "--max-iters", "10",
        "--eval-interval", "5", "--tracker-run-name", "gpt"]  # fmt: skip

DEFAULTS = {
    "log_interval": 100, "log_params_norm": False, "log_throughput": False, "log_throughput_to_tensorboard": False,
    "throughput_window_size": 100, "log_progress": False, "timing_log_level": 0, "timing_log_option": "minmax",
    "tensorboard_dir": None, "tensorboard_log_interval": 1, "tensorboard_queue_size": 1000,
    "log_timers_to_tensorboard": False, "log_loss_scale_to_tensorboard": True,
    "log_validation_ppl_to_tensorboard": False, "log_memory_to_tensorboard": False, "log_memory": False,
    "memory_keys": None,
    "log_l2_norm_grad_to_tensorboard": False, "log_runtime_to_tensorboard": False, "runtime_time_unit": "hours",
    "log_world_size_to_tensorboard": False, "wandb_project": None, "wandb_exp_name": None, "wandb_save_dir": None,
    "wandb_entity": None, "logging_level": logging.INFO, "filter_warnings": True, "modules_to_filter": None,
    "set_level_for_all_loggers": False, "log_energy": False, "save_config_filepath": None,
}  # fmt: skip

TIMERS = ("batch-generator", "forward-backward", "forward-compute", "backward-compute", "optimizer")
BOTH = ("learning-rate", "batch-size", "lm loss", "loss-scale", "world-size", "grad-norm", "num-zeros", "params-norm")
NAMES = [
    *BOTH,
    *(f"{name} vs samples" for name in BOTH),
    "iteration-time",
    *(f"{name}-time" for name in TIMERS),
    *(f"throughput/{kind}_per_sec" for kind in ("batches", "samples", "tokens")),
    *(f"throughput/device/{kind}_per_sec" for kind in ("batches", "samples", "tokens")),
    "throughput/micro_batch_size",
    "throughput/global_batch_size",
    "throughput/tflops",
    "throughput/tflops/device",
    *(f"time/{name}" for name in ("remaining_estimate", "tokens", "samples", "batches", "total")),
    "l2_norm/grad/global",
    "l2_norm/grad/blocks.0.query_key_value.weight",
    "memory/process-gigabytes",
    "iter-energy/gpu",
    "power/gpu",
    "lm loss validation",
    "lm loss validation ppl",
    "lm loss validation vs samples",
    "lm loss validation ppl vs samples",
]


def logged(run: Run) -> dict[str, dict[int, float]]:
    """Values by name and step."""
    found: dict[str, dict[int, float]] = {}
    for record in run._recorder.logged():
        if isinstance(record, Metrics):
            for name, value in record.values.items():
                assert record.step is not None
                found.setdefault(name, {})[record.step] = value
    return found


def call(log: MegatronLog, iteration: int, loss: Any = 2.0, rate: float | None = 1e-3, **more: Any) -> bool:
    skipped, decoupled = more.pop("skipped", 0), more.pop("decoupled", None)
    norms = [more.pop(name, None) for name in ("grad_norm", "params_norm", "zeros")]
    return log.training_log({"lm loss": loss}, {}, rate, decoupled, iteration, 1.0, False, skipped, *norms, **more)


def test_config_has_the_documents_fields_and_defaults() -> None:
    """Every field of Megatron Bridge's ``LoggerConfig`` is there with its default; the later ones are off."""
    fields = {field.name: field.default for field in dataclasses.fields(LoggerConfig)}
    assert {name: fields.pop(name) for name in DEFAULTS} == DEFAULTS
    on = {"mlflow_log_artifacts", "barrier_with_L1_time"}
    assert set(fields) - on == {
        "mlflow_experiment", "mlflow_run_name", "mlflow_tracking_uri", "mlflow_tags", "mlflow_description",
        "comet_project", "comet_experiment_name", "comet_workspace", "comet_api_key", "comet_tags",
        "log_num_zeros_in_grad", "log_max_attention_logit", "log_memory_interval", "log_device_memory_used",
        "skip_train_metrics_log", "moe_routing_trace_path", "moe_routing_trace_max_training_iters",
        "moe_routing_trace_capture_logits", "moe_routing_trace_capture_hidden_states",
        "moe_routing_trace_dump_weights",
    }  # fmt: skip
    assert all(getattr(LoggerConfig(), name) in (None, False) for name in fields.keys() - on)


def test_config_chooses_trackers_as_the_document_says() -> None:
    """TensorBoard with a directory; W&B with a project and a name that isn't empty; MLflow with an experiment."""
    assert LoggerConfig().trackers() == []
    assert LoggerConfig(tensorboard_dir="tb").trackers() == ["tensorboard"]
    assert LoggerConfig(wandb_project="p").trackers() == []
    assert LoggerConfig(wandb_project="p", wandb_exp_name="e").trackers() == ["wandb"]
    assert LoggerConfig(tensorboard_dir="tb", mlflow_experiment="x").trackers() == ["tensorboard", "mlflow"]


def test_config_becomes_options_of_the_run() -> None:
    """Projects, names, directories and the last rank's values reach the run; nothing is made up."""
    config = LoggerConfig(
        tensorboard_dir="tb", wandb_project="p", wandb_exp_name="e", wandb_entity="team", timing_log_level=2,
        timing_log_option="all", log_interval=7, mlflow_tags={"team": "nlp"},
    )  # fmt: skip
    assert config.options() == {
        "TRACKER_RANK": "last", "TRACKER_LOG_INTERVAL": 7, "TRACKER_TIMING_LEVEL": 2, "TRACKER_TIMING_OPTION": "all",
        "TRACKER_LOG_TIMERS": False, "TRACKER_PROJECT": "p", "TRACKER_RUN_NAME": "e",
        "MLFLOW_TAGS": '{"team": "nlp"}', "TENSORBOARD_DIR": "tb", "WANDB_ENTITY": "team", "WANDB_PROJECT": "p",
    }  # fmt: skip


def test_config_can_come_from_the_runs_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags, environment and defconfig fill the fields; what is given as a field is stronger."""
    monkeypatch.setenv("TRACKER_LOG_VALIDATION_PPL", "y")
    monkeypatch.setenv("TRACKER_MEMORY_STATISTICS", "num_ooms,reserved_bytes.all.peak")
    flags = {"TRACKER_TIMING_LEVEL": 2, "TRACKER_LOG_NORMS": True, "TRACKER_LOG_INTERVAL": 50, "WANDB_PROJECT": "p"}
    config = LoggerConfig.from_options(flags, wandb_exp_name="e", log_interval=25)
    assert (config.timing_log_level, config.log_params_norm, config.log_interval) == (2, True, 25)
    assert config.log_validation_ppl_to_tensorboard
    assert config.log_loss_scale_to_tensorboard
    assert not config.log_world_size_to_tensorboard
    assert config.trackers() == ["wandb"]
    assert config.memory_keys == {"num_ooms": "num_ooms", "reserved_bytes.all.peak": "mem-max-reserved-bytes"}
    config.check()
    chosen = LoggerConfig.from_options({**flags, "TRACKER": "json"}, wandb_exp_name="e")
    assert chosen.trackers() == []


def test_whatever_is_measured_is_an_option() -> None:
    """Each field that switches something on can be set by an option; progress.txt is a tracker to choose."""
    switches = {field.name for field in dataclasses.fields(LoggerConfig) if field.name.startswith("log_")}
    assert switches - set(OPTIONS) == {"log_progress", "log_device_memory_used"}
    assert LoggerConfig.from_options({"TRACKER_LOG_MAX_ATTENTION_LOGIT": True}).log_max_attention_logit
    placed = LoggerConfig.from_options({"TRACKER_SAVE_CONFIG_FILEPATH": "c.yaml", "WANDB_DIR": "w"})
    assert (placed.save_config_filepath, placed.wandb_save_dir) == ("c.yaml", "w")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"timing_log_level": 3}, "timing_log_level=3: known are -1"),
        ({"timing_log_option": "mean"}, "timing option 'mean'"),
        ({"runtime_time_unit": "weeks"}, "runtime_time_unit='weeks'"),
        ({"log_interval": 0}, "log_interval=0: give 1 or more"),
        ({"logging_level": "LOUD"}, "logging level 'LOUD'"),
    ],
)
def test_wrong_values_are_errors_before_the_first_step(wrong: dict[str, Any], message: str) -> None:
    """What makes no sense is an error where training starts, with what is known."""
    with pytest.raises(UsageError, match=message):
        start(LoggerConfig(**wrong), trackers="json", train_iters=1, global_batch_size=1)


def test_run_has_the_documented_values(run: Run) -> None:
    """Each documented name has the value it was given, at its iteration, and against consumed samples."""
    log = MegatronLog(
        run, LoggerConfig(tensorboard_log_interval=2, log_world_size_to_tensorboard=True, log_max_attention_logit=True),
        train_iters=4, global_batch_size=16, write=lambda text: None,
    )  # fmt: skip
    for iteration in range(1, 5):
        norms = {"grad_norm": 0.5, "params_norm": torch.tensor(9.0), "zeros": 3, "max_attention_logit": 20.0}
        sizes = {"skipped_samples": 5, "batch_size": 8 * iteration}
        call(log, iteration, loss=torch.tensor([1.0 / iteration]), decoupled=1e-4, **norms, **sizes)
    log.validation_log({"lm loss": torch.tensor(25.0)}, 4)
    found = logged(run)
    expected = {
        "learning-rate": {2: 1e-3, 4: 1e-3}, "decoupled-learning-rate": {2: 1e-4, 4: 1e-4},
        "batch-size": {2: 16, 4: 32}, "lm loss": {2: 0.5, 4: 0.25}, "loss-scale": {2: 1.0, 4: 1.0},
        "world-size": {2: 1, 4: 1}, "grad-norm": {2: 0.5, 4: 0.5}, "params-norm": {2: 9.0, 4: 9.0},
        "num-zeros": {2: 3, 4: 3}, "max-attention-logit": {2: 20.0, 4: 20.0}, "lm loss validation": {4: 25.0},
    }  # fmt: skip
    for name, values in expected.items():
        assert found[name] == values, name
        assert found[f"{name} vs samples"] == values, name
    assert found["skipped-train-samples"] == {2: 5, 4: 5}
    assert found["samples vs steps"] == {2: 8 + 16, 4: 8 + 16 + 24 + 32}
    assert "lm loss validation ppl" not in found
    defined = [record for record in run._recorder.logged() if isinstance(record, Define)]
    assert [(record.name, record.step_metric) for record in defined] == [("* vs samples", "samples vs steps")]


def test_page_has_a_row_for_each_field() -> None:
    """Name and default are the class's, in its order; what has no effect is called so, and nothing else is."""
    text = (ROOT / "docs/megatron.md").read_text("utf-8")
    rows = re.findall(
        r"^\| `(\w+)` \| `(.+?)` \| (.+) \|$", text[text.index("## Fields of LoggerConfig") :], re.MULTILINE
    )
    fields = dataclasses.fields(LoggerConfig)
    assert [(name, default) for name, default, _ in rows] == [(field.name, repr(field.default)) for field in fields]
    without = {name for name, _, effect in rows if effect.startswith("no effect")}
    said = {name for name, _, effect in rows if effect.startswith("no effect, which is said")}
    assert said == {*WITHOUT_EFFECT, *UPLOAD}
    assert without - said == {"tensorboard_queue_size", "barrier_with_L1_time", "mlflow_log_artifacts"}


def test_memory_is_logged_at_its_own_interval(run: Run) -> None:
    """``log_memory_interval`` counts iterations, whatever else is logged at them."""
    config = LoggerConfig(tensorboard_log_interval=4, log_memory_to_tensorboard=True, log_memory_interval=3)
    log = MegatronLog(run, config, train_iters=10, global_batch_size=1, write=lambda text: None)
    for iteration in range(1, 11):
        call(log, iteration)
    found = logged(run)
    assert list(found["memory/process-gigabytes"]) == [3, 6, 9, 10]
    assert list(found["lm loss"]) == [4, 8, 10]


def test_perplexity_is_cut(run: Run) -> None:
    """``{key} validation ppl`` is exp of the loss, at most of 20."""
    config = LoggerConfig(log_validation_ppl_to_tensorboard=True)
    log = MegatronLog(run, config, train_iters=4, global_batch_size=1, write=lambda text: None)
    log.validation_log({"lm loss": 2.0, "aux": torch.tensor(31.0)}, 4)
    found = logged(run)
    assert found["lm loss validation ppl"][4] == pytest.approx(math.exp(2.0))
    assert found["aux validation ppl"][4] == pytest.approx(math.exp(20.0))


def test_line_has_means_of_the_interval_and_counts(run: Run) -> None:
    """Losses are means over the iterations that advanced; skipped and NaN ones are counted; negatives shown."""
    printed: list[str] = []
    log = MegatronLog(run, LoggerConfig(log_interval=4), train_iters=8, global_batch_size=2, write=printed.append)
    for iteration, loss in enumerate((1.0, -4.0, torch.tensor(100.0), -6.0), 1):
        call(log, iteration, loss, rate=None, skipped=int(iteration == 3), grad_norm=torch.tensor(2.0))
    for iteration, loss in enumerate((1.0, math.nan, torch.tensor(math.inf), 2.0), 5):
        call(log, iteration, loss)
    assert (
        "iteration        4/       8 | consumed samples:            8 | elapsed time per iteration (ms): " in printed[0]
    )
    assert (
        "learning rate: None | global batch size:     2 | lm loss: -3.000000E+00 | loss scale: 1.0 | grad norm: 2.000"
        in printed[0]
    )
    assert printed[0].endswith("number of skipped iterations:   1 | number of nan iterations:   0 |")
    assert "lm loss: NAN" in printed[1]
    assert printed[1].endswith("number of skipped iterations:   0 | number of nan iterations:   2 |")


def test_line_leaves_out_what_a_rank_could_not_tell(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros that a rank couldn't count, and the energy of a GPU that can't tell, are no 0 and break no line."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    printed: list[str] = []
    config = LoggerConfig(log_interval=2, log_energy=True)
    log = MegatronLog(run, config, train_iters=8, global_batch_size=2, write=printed.append)
    for iteration in range(1, 5):
        call(log, iteration, grad_norm=math.nan, zeros=torch.tensor(math.nan))
    assert len([line for line in printed if "grad norm: nan | number of skipped" in line]) == 2
    assert not any("energy" in line or "num zeros" in line for line in printed)


def test_console_trackers_and_user_have_intervals_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The console's report each fourth iteration, the trackers' values each second one and a user's reading have each
    all of their own interval, whoever reads first: the original's trackers reset the console's."""
    now = [100.0]
    monkeypatch.setattr("trackers.instruments.timers.time", SimpleNamespace(perf_counter=lambda: now[0]))
    options = {"TRACKER_LOG_TIMERS": False, "TRACKER_TIMING_LEVEL": 1, "TRACKER_RELAY": False}
    run = trackers.init("json", project="p", mode="offline", options=options)
    assert isinstance(run, Run)
    printed: list[str] = []
    config = LoggerConfig(log_interval=4, tensorboard_log_interval=2, log_timers_to_tensorboard=True,
                          timing_log_level=1, timing_log_option="max")  # fmt: skip
    log = MegatronLog(run, config, train_iters=8, global_batch_size=2, write=printed.append)
    mine = run.timers.interval()
    for iteration in range(1, 9):
        with log.timers("forward", log_level=1):
            now[0] += iteration
        call(log, iteration)
    assert mine.take()["forward"].elapsed_s == sum(range(1, 9))
    assert logged(run)["forward-time"] == {1: 1.0, 2: 2.0, 4: 3.5, 6: 5.5, 8: 7.5}
    times = [float(line.split(": ")[1]) for text in printed for line in text.splitlines() if "forward ..." in line]
    assert times == [1000 * (2 + 3 + 4) / 3, 1000 * (5 + 6 + 7 + 8) / 4]
    run.finish()


@pytest.mark.parametrize("start", [0, 40], ids=["begun", "resumed"])
@pytest.mark.parametrize(("interval", "elapsed_ms"), [(4, [2000, 3000, 3000]), (1, [None, *[2000] * 3, *[3000] * 8])])
def test_time_of_the_first_interval_is_that_of_its_iterations_but_the_first(
    start: int, interval: int, elapsed_ms: list[float | None], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An iteration takes 50 s at first, which compiles, 2 s to the fourth and 3 s later; an evaluation of 7 s and a
    checkpoint of 9 s between count for none. After a resume the first interval is that of the start again."""
    now = [100.0]
    monkeypatch.setattr("trackers.instruments.timers.time", SimpleNamespace(perf_counter=lambda: now[0]))
    printed: list[str] = []
    config = LoggerConfig(log_interval=interval)
    log = MegatronLog(run, config, train_iters=start + 12, global_batch_size=2, write=printed.append)
    for iteration in range(1, 13):
        now[0] += 50 if iteration == 1 else 2 if iteration <= 4 else 3
        call(log, start + iteration)
        if iteration in (2, 6):
            with log.pause("evaluation"):
                now[0] += 7
            with log.checkpoint():
                now[0] += 9
    parts = [re.search(r"elapsed time per iteration \(ms\): ([0-9.]+) \|", text) for text in printed]
    lines = [part for part, text in zip(parts, printed, strict=True) if "consumed samples" in text]
    assert [part and float(part[1]) for part in lines] == elapsed_ms


def test_rank_that_left_an_interval_out_is_not_taken_for_this_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a rank tells of another interval than this is in no report: it is left out, as one that tells nothing."""
    monkeypatch.setattr(
        reports.TextGather, "post",
        lambda self, value: gather.Posted([value, {**value, "timers": {"forward": 9e9}},
                                           {**value, "iteration": 2, "timers": {"forward": 1e9}}]),
    )  # fmt: skip
    printed: list[str] = []
    log = MegatronLog(run, LoggerConfig(log_interval=4, timing_log_option="all"), train_iters=4, global_batch_size=2,
                      write=printed.append)  # fmt: skip
    for iteration in range(1, 5):
        with log.timers("forward", log_level=0):
            call(log, iteration)
    told = "\n".join(printed)
    assert "rank  1: 9000000000.00" in told
    assert "rank  2" not in told


def test_faults_do_not_reach_training(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A loss that is no number is said once; training, and what else was logged, goes on."""
    log = MegatronLog(run, LoggerConfig(log_interval=1), train_iters=3, global_batch_size=2, write=lambda text: None)
    for iteration in range(1, 4):
        assert log.training_log({"lm loss": "high"}, {}, 0.1, None, iteration, 1.0, True, 0, None, None, None) is False
    assert capsys.readouterr().err.count("training_log: loss 'lm loss' is left out, all else is logged") == 1


def test_summary_line_is_the_documents() -> None:
    """Fields, their order and their widths, with everything there and with the least."""
    full = line.summary(
        time=1_763_688_000.0, iteration=12125, iterations=36000, consumed_samples=3_104_000, batch_size=256,
        skipped_samples=12, elapsed_ms=2701.34, tflops=210.52, energy_j=1234.56, power_w=456.78,
        rates={"learning rate": 1.587349e-4}, losses={"lm loss": 2.352391, "mtp_1 loss": 7.9}, loss_scale=1.0,
        grad_norm=0.1321, zeros=314.0, params_norm=99.5, max_attention_logit=8.25, skipped=2, nans=1,
    )  # fmt: skip
    stamp, rest = full.split("] ", 1)
    assert re.fullmatch(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", stamp)
    assert rest == (
        "iteration    12125/   36000 | consumed samples:      3104000 | skipped samples:           12 | "
        "elapsed time per iteration (ms): 2701.3 | throughput per GPU (TFLOP/s/GPU): 210.5 | "
        "energy per GPU (J/iter/GPU): 1234.6 | power per GPU (W/GPU): 456.8 | learning rate: 1.587349E-04 | "
        "global batch size:   256 | lm loss: 2.352391E+00 | mtp_1 loss: 7.900000E+00 | loss scale: 1.0 | "
        "grad norm: 0.132 | num zeros: 314 | params norm: 99.500 | max attention logit: 8.250 | "
        "number of skipped iterations:   2 | number of nan iterations:   1 |"
    )
    least = line.summary(
        time=0.0, iteration=1, iterations=2, consumed_samples=0, batch_size=1, rates={"learning rate": None}
    )
    assert least.split("] ", 1)[1] == (
        "iteration        1/       2 | consumed samples:            0 | learning rate: None | "
        "global batch size:     1 |"
    )


def test_straggler_report_names_ranks() -> None:
    """Each field's ends with their ranks, fields that a rank lacks left out, then the slowest and quickest ranks."""
    ranks: list[dict[str, float] | None] = [
        {"rtt_ms": 100.0, "tflops": 50.0, "power_w": 300.0},
        {"rtt_ms": 250.0, "tflops": 20.0},
        None,
        {"rtt_ms": 100.0, "tflops": 50.5, "power_w": 280.0, "temp_c": 61.0},
    ]
    assert line.stragglers(ranks, ends=2) == [
        "MnRtt/Rnk: 100.00ms/0 | MxRtt/Rnk: 250.00ms/1 | MnPwr/Rnk: 280.00W/3 | MxPwr/Rnk: 300.00W/0 | "
        "MnTmp/Rnk: 61.00C/3 | MxTmp/Rnk: 61.00C/3 | MnEtpt/Rnk: 20.00TF/1 | MxEtpt/Rnk: 50.50TF/3",
        "Bottom 2 ranks by Etpt (TF): rank 1: 20.00, rank 0: 50.00",
        "Top 2 ranks by Etpt (TF): rank 3: 50.50, rank 0: 50.00",
    ]
    whole = {"rtt_ms": 1.0, "power_w": 2.0, "temp_c": 3.0, "util_pct": 4.0, "clock_mhz": 5.0, "drtt_ms": 6.0,
             "tflops": 7.0}  # fmt: skip
    assert set(whole) == set(line.STRAGGLER_FIELDS)
    assert line.stragglers([whole]) == [
        "MnRtt/Rnk: 1.00ms/0 | MxRtt/Rnk: 1.00ms/0 | MnPwr/Rnk: 2.00W/0 | MxPwr/Rnk: 2.00W/0 | MnTmp/Rnk: 3.00C/0 | "
        "MxTmp/Rnk: 3.00C/0 | MnUtl/Rnk: 4.00%/0 | MxUtl/Rnk: 4.00%/0 | MnClk/Rnk: 5.00MHz/0 | MxClk/Rnk: 5.00MHz/0 | "
        "MnDRtt/Rnk: 6.00ms/0 | MxDRtt/Rnk: 6.00ms/0 | MnEtpt/Rnk: 7.00TF/0 | MxEtpt/Rnk: 7.00TF/0"
    ]
    assert line.stragglers([None, {}]) == []
    assert line.stragglers([{"rtt_ms": math.nan}, None]) == []
    two = [{"rtt_ms": 10.0}, {"rtt_ms": 30.0}]
    assert len(line.stragglers(two)) == 1, "all of them are named already"
    assert len(line.stragglers([*two, {"rtt_ms": 20.0}], ends=1)) == 1
    assert line.stragglers([*two, {"rtt_ms": 20.0}], ends=2)[1:] == [
        "Bottom 2 ranks by Rtt (ms): rank 1: 30.00, rank 2: 20.00",
        "Top 2 ranks by Rtt (ms): rank 0: 10.00, rank 2: 20.00",
    ]


def test_rank_tells_of_its_own_gpu(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Round-trip by the host's clock and by the GPU's, the GPU's readings, and its part of the operations."""
    gpu = Gpu(vendor="nvidia", index=0, label="0")
    reading = Reading(gpu=gpu, power_w=300.0, temp_c=61.0, compute_frac=0.9, sm_clock_hz=1.5e9)
    source = SimpleNamespace(read=lambda: [reading], close=lambda: None)
    monkeypatch.setattr("trackers.frameworks.megatron.training_log.own_gpu", lambda say: source)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    log = MegatronLog(run, LoggerConfig(), train_iters=4, global_batch_size=2, write=lambda text: None)
    told = {"rtt_ms": 500.0, "power_w": 300.0, "temp_c": 61.0, "util_pct": 90.0, "clock_mhz": 1500.0, "tflops": 6.0}
    assert log._own(0.5, 0.25, 3e12) == told
    monkeypatch.setattr("trackers.frameworks.megatron.training_log.cuda_in_use", lambda: object())
    assert log._own(0.5, 0.25, 3e12) == {**told, "drtt_ms": 250.0}
    monkeypatch.setattr(source, "read", list)
    assert log._own(None, None, None) == {}


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_that_nothing_connects_are_said(
    ranks: int, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Reports of one rank of several aren't those of all: where no process group is there yet, that is said."""
    for name, value in {"RANK": str(ranks - 1), "WORLD_SIZE": str(ranks)}.items():
        monkeypatch.setenv(name, value)
    MegatronLog(run, LoggerConfig(), train_iters=4, global_batch_size=2, write=lambda text: None)
    said = "timers and stragglers on the console are this rank's own: call init_process_group before"
    assert (said in capsys.readouterr().err) == (ranks > 1)


def test_text_that_is_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks post the same size whatever they have to say: another one would end the process with gloo."""
    sent: list[Any] = []

    def all_gather(rows: list[Any], own: Any, group: Any, async_op: bool) -> Any:
        sent.append(own)
        for row in rows:
            row.copy_(own)
        return SimpleNamespace(is_completed=lambda: True)

    way = gather.TextGather()
    monkeypatch.setattr(way, "_distributed", SimpleNamespace(all_gather=all_gather, get_world_size=lambda: 2))
    for value, expected in (({"iteration": 4}, {"iteration": 4}), ({"timers": "x" * gather.SIZE_BYTES}, None)):
        assert way.post(value).rows() == [expected] * 2
    assert {own.numel() for own in sent} == {gather.SIZE_BYTES}


class Awaited:
    ready = False


def test_reports_keep_their_order_and_wait_for_nothing() -> None:
    """A line whose numbers a GPU hasn't yet delivered is printed later, before its successors, and training goes on."""
    said: list[str] = []
    printed: list[str] = []
    waiting = reports.StragglerReports(said.append)
    first, second = Awaited(), Awaited()
    second.ready = True

    def fail() -> None:
        raise RuntimeError("no")

    waiting.add(
        reports.StragglerLines(
            [first], lambda: printed.append("first"), lambda: 1, lambda rows: printed.append(f"{rows}")
        )
    )
    waiting.add(reports.StragglerLines([second], lambda: printed.append("second")))
    waiting.add(reports.StragglerLines([second], fail))
    assert printed == []
    first.ready = True
    waiting.advance()
    assert printed == ["first", "second", "[1]"]
    assert said == ["report: RuntimeError: no"]
    waiting.add(reports.StragglerLines([Awaited()], lambda: printed.append("never")))
    waiting.finish(seconds=0.01)
    assert "never" not in printed


@pytest.mark.parametrize(("given", "number"), [("DEBUG", 10), ("debug", 10), (15, 15), ("15", 15), (" Warning ", 30)])
def test_level_is_a_name_or_a_number(given: int | str, number: int) -> None:
    """Level names in any case and numbers, also as text, are levels."""
    assert logging_setup.level(given) == number


def test_logging_is_filtered_as_configured(caplog: pytest.LogCaptureFixture) -> None:
    """The environment beats the level; warnings and names with the prefix are left out; a second call replaces."""
    assert logging_setup.configure("INFO", environ={"MEGATRON_BRIDGE_LOGGING_LEVEL": "DEBUG"}) == 10
    logging_setup.configure("INFO", filter_warnings=True, modules_to_filter=["noisy.part", ""], environ={})
    for name in ("own", "noisy.part", "noisy.part.deep", "noisy.party", "noisy", "own.noisy.part"):
        logging.getLogger(name).info("hello")
    logging.getLogger("own").warning("careful")
    logging.getLogger("own").error("wrong")
    kept = [(record.name, record.levelname) for record in caplog.records]
    assert kept == [("own", "INFO"), ("noisy", "INFO"), ("own.noisy.part", "INFO"), ("own", "ERROR")]
    logging_setup.configure(20, filter_warnings=False, environ={})
    logging.getLogger("noisy.part").warning("careful")
    assert caplog.records[-1].message == "careful"
    quiet = logging.getLogger("some.module")
    quiet.setLevel(logging.CRITICAL)
    logging_setup.configure(20, set_level_for_all_loggers=True, environ={})
    assert quiet.level == 20


def test_config_is_saved(tmp_path: Path, run: Run) -> None:
    """``save_config_filepath`` gets the training's whole configuration."""
    config = LoggerConfig(save_config_filepath=str(tmp_path / "sub/config.yaml"))
    config.save({"model": {"depth": 4}})
    assert json.loads((tmp_path / "sub/config.yaml").read_text()) == {"model": {"depth": 4}}
    LoggerConfig().save({"a": 1})


@pytest.mark.parametrize("rank", [0, 1])
def test_first_rank_saves_the_configuration(rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of several ranks writes it, though the last one's run is the run."""
    for name, value in {"RANK": str(rank), "WORLD_SIZE": "2", "TRACKER_RUN_ID": "mine", "TRACKER_RELAY": "n"}.items():
        monkeypatch.setenv(name, value)
    config = LoggerConfig(save_config_filepath=str(tmp_path / "config.yaml"))
    log = start(config, trackers="json", run_config={"depth": 4}, train_iters=1, global_batch_size=1)
    log.run.finish()
    assert (tmp_path / "config.yaml").exists() == (rank == 0)
    if rank == 0:
        assert json.loads((tmp_path / "config.yaml").read_text()) == {"depth": 4}


def test_throughput_is_on_the_line_where_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations of an iteration ÷ its time ÷ ranks, where ``log_throughput`` is on."""
    now = [100.0]
    monkeypatch.setattr("trackers.instruments.timers.time", SimpleNamespace(perf_counter=lambda: now[0]))
    for wanted in (True, False):
        printed: list[str] = []
        config = LoggerConfig(log_interval=2, log_throughput=wanted)
        log = MegatronLog(run, config, train_iters=4, global_batch_size=2, flops_per_step=3e12, write=printed.append)
        for iteration in range(1, 5):
            now[0] += 0.5
            call(log, iteration)
        assert ["throughput per GPU (TFLOP/s/GPU): 6.0" in line for line in printed] == [wanted, wanted]
        assert all("elapsed time per iteration (ms): 500.0" in line for line in printed)


def test_memory_is_reported_once_where_asked_for(run: Run) -> None:
    """Megatron's ``report_memory_flag``: a line of this rank's memory, and the flag is down afterwards."""
    printed: list[str] = []
    log = MegatronLog(run, LoggerConfig(), train_iters=4, global_batch_size=2, write=printed.append)
    flag = True
    for iteration in range(1, 4):
        flag = log.training_log({"lm loss": 2.0}, {}, 1e-3, None, iteration, 1.0, flag, 0, None, None, None)
    (line,) = printed
    said = re.match(r"\[Rank 0\] \(after 1 iterations\) memory \(GB\) \| process-gigabytes: (\d+\.\d+)", line)
    assert said is not None
    assert 0.01 < float(said[1]) < 100


def example(ranks: int, environ: dict[str, str], *flags: str) -> tuple[str, dict[str, dict[int, float]]]:
    """What the example printed, and its values by name and step, from the journal's records."""
    words, env = [sys.executable, str(EXAMPLE), *GPT2, *flags], {**os.environ, **environ}
    done = forked.run(words, preload=forked.TORCH, ranks=ranks if ranks > 1 else 0, env=env, timeout=150)
    assert done.returncode == 0, done.stderr
    (place,) = Path("runs").glob("*/*/run.json")
    found: dict[str, dict[int, float]] = {}
    for stream in (place.parent / "streams").glob("*.jsonl"):
        for text in stream.read_text().splitlines():
            record = json.loads(text)
            if record["kind"] == "metrics":
                for name, value in record["values"].items():
                    found.setdefault(name, {})[record["step"]] = value
    return done.stdout, found


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_gpt2_logs_every_documented_name(ranks: int, drivers: Drivers) -> None:
    """One process and four: each of Megatron's names that a CPU can give, with the true values, and its lines;
    energy and power of GPUs whose driver is a stand-in, asked for by the flag or by the environment."""
    drivers.set(count=ranks)
    environ, flags = ({}, ("--tracker-log-energy",)) if ranks == 1 else ({"TRACKER_LOG_ENERGY": "y"}, ())
    printed, found = example(ranks, {**environ, **drivers.environment("new")}, *flags)
    missing = [name for name in NAMES if name not in found]
    assert missing == []
    last = {name: values[max(values)] for name, values in found.items()}
    samples = ranks * 8
    assert sorted(found["lm loss"]) == [2, 4, 6, 8, 10]
    assert (last["batch-size"], last["world-size"], last["samples vs steps"]) == (samples, ranks, 10 * samples)
    assert (last["throughput/micro_batch_size"], last["throughput/global_batch_size"]) == (8, samples)
    assert last["throughput/tokens_per_sec"] == pytest.approx(samples * 32 * last["throughput/batches_per_sec"])
    assert last["throughput/device/tokens_per_sec"] == pytest.approx(last["throughput/tokens_per_sec"] / ranks)
    assert last["throughput/tflops/device"] == pytest.approx(last["throughput/tflops"] / ranks)
    assert (last["time/batches"], last["time/samples"], last["time/tokens"]) == (10, 10 * samples, 320 * samples)
    assert last["time/remaining_estimate"] == 0.0
    assert last["lm loss validation ppl"] == pytest.approx(math.exp(last["lm loss validation"]))
    for step, norm in found["l2_norm/grad/global"].items():  # after clipping to 1; grad-norm before it
        layers = [found[name][step] for name in found if name.startswith("l2_norm/grad/") and "global" not in name]
        assert norm == pytest.approx(math.sqrt(sum(value**2 for value in layers)), rel=1e-5)
        assert norm == pytest.approx(min(1.0, found["grad-norm"][step]), rel=1e-4)
    assert sorted(found["iter-energy/gpu"]) == sorted(found["power/gpu"]) == [4, 8]
    for timer in TIMERS:
        assert sorted(found[f"{timer}-time"])[1:] == [2, 4, 6, 8, 10]
        if ranks > 1:
            assert all(value <= found[f"{timer}-time"][step] for step, value in found[f"{timer}-time-min"].items())
    assert all(
        value < found["iteration-time"][step] for step, value in found["forward-compute-time"].items() if step > 1
    )

    lines = printed.splitlines()
    summaries = [text for text in lines if "consumed samples" in text]
    assert [int(text.split("iteration ")[1].split("/")[0]) for text in summaries] == [4, 8]
    assert all("energy per GPU (J/iter/GPU): " in text and "power per GPU (W/GPU): " in text for text in summaries)
    assert lines.count("(min, max) time across ranks (ms):") == 2
    for timer in TIMERS:
        rows = [text for text in lines if text.startswith(f"    {timer} ..")]
        assert len(rows) == 2
        assert all(
            re.fullmatch(r"    [a-z-]+ \.+: \(\d+\.\d\d, \d+\.\d\d\)", row) and row.index(":") == 52 for row in rows
        )
    assert len([text for text in lines if text.startswith("MnRtt/Rnk: ")]) == (2 if ranks > 1 else 0)
    assert [text for text in lines if text.startswith("validation loss at iteration 5 | lm loss value: ")]
