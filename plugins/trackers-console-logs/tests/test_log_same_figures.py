"""Speed has one value, whichever tool is asked of a console log, and of the stores that it is copied to."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from trackers_console_logs import benchmark as primus
from trackers_console_logs.reader import LogReader

from tests.analysis.support import T0
from tests.analysis.test_same_figures import STORES, TOOLS, _differ_of_tool, by_every_tool, places_below, told, written
from trackers.analysis.compare import compare_runs
from trackers.analysis.curves import open_runs
from trackers.analysis.report import measured_results
from trackers.analysis.sql import sql
from trackers.records import Finish, Start


@pytest.mark.parametrize("first", [100, 200])
def test_megatrons_console_log_has_one_speed_in_every_tool(first: int, tmp_path: Path) -> None:
    """A log of Megatron's as it is, and the stores that it is copied to, say the same of speed, whichever tool asks."""
    head = {"global_batch_size": 32, "world_size": 8, "seq_length": 2048}
    lines = ["---- arguments ----", *(f"  {name} {'.' * 30} {value}" for name, value in head.items()),
             "---- end of arguments ----"]  # fmt: skip
    for step in range(first, 1100, 100):  # the log may begin behind the first line, which holds the first step
        took = {100: 9000.0, 200: 5000.0}.get(step, 4000.0)
        fields = (f" iteration {step:8}/    1000", f"consumed samples: {32 * step:12}",
                  f"elapsed time per iteration (ms): {took}", "learning rate: 6.000000E-05",
                  "global batch size:    32", "lm loss: 7.000000E+00 |")  # fmt: skip
        lines.append(" | ".join(fields))
    path = tmp_path / "megatron.log"
    path.write_text("\n".join([*lines, ""]))
    places = places_below(tmp_path)
    (log,) = compare_runs([f"log:{path}"]).runs
    rate = 900 / (100 * 5 + 800 * 4)
    speeds = (log["steps_per_s"], log["samples_per_s"], log["tokens_per_s"])
    assert speeds == pytest.approx((rate, 32 * rate, 32 * 2048 * rate))
    (source,) = LogReader().runs(str(path))
    read = [record for record in LogReader().read(source) if not isinstance(record, Start | Finish)]
    info = written("megatron", read, places, ("benchmark", "json", "tensorboard", *TOOLS))
    performance = json.loads(next(Path(places["BENCHMARK_DIR"]).glob("*.json")).read_text())["performance_metrics"]
    summary = json.loads(next(Path(places["JSON_DIR"]).glob("*.json")).read_text())["summary"]
    assert (
        primus.extract(["--log-file", str(path), "--output", str(tmp_path / "extracted.json"), "--num-gpus", "8"]) == 0
    )
    direct = json.loads((tmp_path / "extracted.json").read_text())["performance_metrics"]
    found = {
        "journal": compare_runs([info.id]).runs[0]["steps_per_s"],
        "json": 1000 / summary["avg_time_ms"],
        "json log": compare_runs([f"json:{places['JSON_DIR']}/*.json"]).runs[0]["steps_per_s"],
        "tensorboard": compare_runs([STORES["tensorboard"](info)]).runs[0]["steps_per_s"],
        "benchmark": performance["steps_per_second"],
        "extract": direct["steps_per_second"],
        **{what: said["steps_per_s"] for what, said in told(places).items()},
    }
    assert found == pytest.approx(dict.fromkeys(found, rate), rel=1e-6)


def test_growing_batch_has_one_throughput_in_every_tool(tmp_path: Path) -> None:
    """Of a ramp of the batch: all tokens over all seconds, the last batch, and the length that the rates prove."""
    lines, tokens, seconds, consumed = [], 0.0, 0.0, 0
    for step in range(1, 31):
        batch, took = (16 if step <= 10 else 32 if step <= 20 else 64), 20.0 if step == 1 else 4.0
        consumed += batch
        if step > 1:
            tokens, seconds = tokens + batch * 1024, seconds + took
        lines.append(
            f"[20260105 11:{step // 15:02d}:{step % 15 * 4:02d}][rank-3/4][INFO] iteration {step}/30 | "
            f"consumed samples: {consumed} | elapsed time per iteration (ms): {took * 1000} | "
            f"tokens per GPU: {batch * 1024 / took / 4} | global batch size: {batch} | lm loss: 2.0E+00 |"
        )
    path = tmp_path / "ramp.log"
    path.write_text("\n".join([*lines, ""]))
    assert primus.extract(["--log-file", str(path), "--output", str(tmp_path / "ramp.json")]) == 0
    document = json.loads((tmp_path / "ramp.json").read_text())
    config, performance = document["training_config"], document["performance_metrics"]
    assert (config["global_batch_size"], config["sequence_length"], document["contradictions"]) == (64, 1024, [])
    (log,) = compare_runs([f"log:{path}"]).runs
    (copied,) = compare_runs([f"json:{tmp_path}/ramp.json"]).runs
    for found in (performance["tokens_per_second"], log["tokens_per_s"], copied["tokens_per_s"]):
        assert found == pytest.approx(tokens / seconds, rel=1e-6)
    assert log["samples_per_s"] == pytest.approx(tokens / 1024 / seconds, rel=1e-6)


@st.composite
def megatron_logs(draw: st.DrawFn) -> str:
    """A log as Primus writes it: its batch grows, it pauses and restarts on another number of ranks, and some of its
    fields may be missing."""
    fields = {name: draw(st.booleans()) for name in ("consumed samples", "tokens per GPU", "global batch size")}
    lines: list[str] = []
    at, step, world = T0, 0, draw(st.sampled_from([1, 4]))
    for attempt in range(draw(st.integers(1, 3))):
        if attempt:
            at += draw(st.sampled_from([60, 900]))
            step -= min(step - 1, draw(st.integers(0, 4)))
            world = draw(st.sampled_from([1, 4, 8]))
            lines.append(f"  successfully loaded checkpoint from /ckpt [ t 1/1, p 1/1 ] at iteration {step}")
        for number in range(draw(st.integers(2, 12))):
            step += 1
            took = 20 if number == 0 else draw(st.sampled_from([1, 2, 4]))
            at += took + draw(st.sampled_from([0] * 9 + [300]))
            batch = 16 if step <= 5 else 32 if step <= 10 else 64
            consumed = sum(16 if each <= 5 else 32 if each <= 10 else 64 for each in range(1, step + 1))
            said = {"consumed samples": consumed, "tokens per GPU": batch * 1024 / took / world,
                    "global batch size": batch}  # fmt: skip
            stamp = datetime.fromtimestamp(at).strftime("%Y%m%d %H:%M:%S")
            lines.append(
                f"[{stamp}][rank-{world - 1}/{world}][INFO] iteration {step}/90 | elapsed time per iteration (ms): "
                f"{took * 1000:.1f} | " + "".join(f"{name}: {said[name]} | " for name in said if fields[name])
                + "lm loss: 2.0E+00 |"
            )  # fmt: skip
    return "\n".join([*lines, ""])


@pytest.mark.heavy
@hypothesis.settings(max_examples=12, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(text=megatron_logs())
def test_generated_logs_have_one_speed_in_every_tool(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is extracted of a log, and read from that, is what compare, SQL and the report say of the log, and what all
    tools, the JSON log's summary too, say of the run that it is copied to."""
    place = tmp_path_factory.mktemp("log")
    path, extracted = place / "a.log", place / "a.json"
    path.write_text(text)
    assert primus.extract(["--log-file", str(path), "--output", str(extracted)]) == 0
    document = json.loads(extracted.read_text())
    performance = document["performance_metrics"]
    (log,), (result,) = compare_runs([f"log:{path}"]).runs, compare_runs([f"json:{extracted}"]).runs
    names = ("steps_per_s", "samples_per_s", "tokens_per_s")
    table = sql(f"select {', '.join(names)} from runs", [f"log:{path}"]).to_pylist()[0]
    reported = measured_results(open_runs([f"log:{path}"]))[0]
    tools = {
        "extracted": {"steps_per_s": performance["steps_per_second"], "tokens_per_s": performance["tokens_per_second"],
                      "total_iters": performance["total_steps"], "gpus": document["training_config"]["num_gpus"]},
        "extracted, compared": {name: result[name] for name in ("steps_per_s", "tokens_per_s", "gpus")},
        "sql": table,
        "report": {"steps_per_s": 1 / reported.step_s if reported.step_s else None, "gpus": reported.gpus,
                   "samples_per_s": reported.samples_per_s, "tokens_per_s": reported.tokens_per_s},
    }  # fmt: skip
    (source,) = LogReader().runs(str(path))
    read = list(LogReader().read(source))
    ranks = next(record.world_size for record in read if isinstance(record, Start))
    copied = [record for record in read if not (isinstance(record, Start) and record.attempt == 1)]
    tools |= by_every_tool([record for record in copied if not isinstance(record, Finish)], {}, ranks, place)
    differing: dict[str, Any] = {}
    for tool, figures in tools.items():
        for figure, value in figures.items():
            expected = log["total_iters" if figure == "steps" else figure]
            _differ_of_tool(differing, tool, figure, value, expected)
    assert not differing, (differing, text)
