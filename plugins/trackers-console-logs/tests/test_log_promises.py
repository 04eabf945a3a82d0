"""What every source must stand, with console logs."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from trackers_console_logs.programs import ALL

import trackers
from tests import LOGS, ROOT, again
from tests.analysis.support import write_run
from tests.analysis.test_compare import losses
from tests.backends.wandb.support import server
from tests.cli.test_readers import run_cli
from tests.copying.test_wandb import one
from tests.e2e import test_docs
from tests.fakes.wandb_server import WandbServer
from tests.fuzz import plugged
from tests.readers import test_bombs, test_forms, test_tables, test_vendors
from tests.readers.test_forms import NOW
from trackers.testing import check_plugin

__all__ = ["server"]
test_page_does_what_it_shows = again.with_values(
    test_docs.test_page_does_what_it_shows, [ROOT / "docs/console-logs.md"]
)


def log(place: Path, _server: WandbServer) -> Iterable[str]:
    """All samples, with a time that is always the same."""
    for path in sorted(LOGS.glob("*.log")):
        shutil.copy(path, place)
        os.utime(place / path.name, (NOW, NOW))
    return [f"log:{path}" for path in sorted(place.glob("*.log"))]


test_forms.SOURCES["log"] = log
test_forms.FORMS["log"] = (19, "f4cbffa0803fad7d")
"""A further sample among the logs changes the second alone."""
test_output_has_its_form = pytest.mark.usefixtures("utc")(
    again.with_values(test_forms.test_output_has_its_form, ["log"])
)
test_other_files_that_a_pattern_takes_in_are_left_out = again.with_values(
    test_vendors.test_other_files_that_a_pattern_takes_in_are_left_out,
    [("one.log", "log:*.log", " iteration  1/ 9 | consumed samples: 8 | lm loss: 1.0E+00 |\n")],
)
test_tables.TEXTS["bridge.log"] = (LOGS / "bridge.log").read_text()
test_every_text_is_read_through_one_door = again.with_values(
    test_tables.test_every_text_is_read_through_one_door, ["bridge.log"], "name"
)


def test_distribution(tmp_path: Path) -> None:
    """Each thing loads, and its name is free."""
    report = check_plugin("trackers-console-logs", directory=tmp_path)
    assert {"readers log", "commands benchmark.extract", "commands benchmark.run", "flags log-format"} <= {
        *report.passed, *report.skipped
    }  # fmt: skip


@pytest.mark.slow
def test_claims_cost_neither_memory_nor_time() -> None:
    """A file of terabytes of nothing is refused in one line, and one that unpacks to gigabytes is read without them."""
    lines = b" iteration        1/      10 | consumed samples:  8 | lm loss: 1.0E+00 |\n"
    Path("a.log.gz").write_bytes(gzip.compress(lines) + gzip.compress(b"0" * (1 << 24), 1) * 500)  # 8 GB
    test_bombs.check_claims({"log:a.log.gz": ""} | test_bombs.of_nothing(log="s.log"))


@pytest.mark.slow
def test_damaged_files_end_in_one_line(tmp_path: Path) -> None:
    """Whatever is changed in a log."""
    again.fuzzed("console_logs", tmp_path / "seeds")


def test_logs_of_each_program_are_a_target() -> None:
    """Each sample is of one program's, and each program has some."""
    fuzzing = plugged.modules()["console_logs"]
    places = {name: target.files.split() for name, target in fuzzing.parts().items()}
    for sample in LOGS.glob("*.log"):
        assert len([name for name, patterns in places.items() if any(map(sample.match, patterns))]) == 1, sample
    assert len(fuzzing.PROGRAMS) == len(ALL)


def test_console_logs_are_compared_by_settings_alone() -> None:
    """What a log calls its metrics is no setting, nor is one that is null: nothing differs that isn't there."""
    warnings = trackers.compare_runs([f"log:{LOGS}/primus.log", f"log:{LOGS}/bridge.log"])["warnings"]
    assert not [line for line in warnings if "global batch size" in line]
    write_run("null", losses(1.0, 0.5, 0.2), config={"seq_length": None})
    write_run("said", losses(1.0, 0.5, 0.2), config={"seq_length": 8})
    comparison = trackers.compare_runs(["null", "said"])
    assert not [line for line in comparison["warnings"] if "sequence length" in line]


def test_keys_of_several_leave_out_what_is_none(caplog: pytest.LogCaptureFixture) -> None:
    """Of the logs that a pattern takes in, one without training lines is named, and the others are shown."""
    line = " iteration 1/ 9 | elapsed time per iteration (ms): 5.0 | lm loss: 2.0E+00 |\n"
    Path("a.log").write_text(line)
    Path("b.log").write_text("pip install\n")
    done = run_cli("keys", "log:*.log", "--json")
    assert done.exit_code == 0, done.output
    assert [run["name"] for run in json.loads(done.stdout)] == ["a"]
    assert "left out: b.log" in caplog.text


PRIMUS = (
    "[20251121 12:10:{second:02d}][rank-31/32][INFO ] [--------trainer.py:2488] :  iteration {step:8d}/   36000 | "
    "consumed samples:      3104000 | elapsed time per iteration (ms): 2701.3/2712.7 | throughput per GPU "
    "(TFLOP/s/GPU): 210.5/217.3 | learning rate: 1.587349E-04 | global batch size:   256 | lm loss: {loss:.6E} | "
    "loss scale: 1.0 | grad norm: 0.132 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


@pytest.mark.parametrize("packed", [False, True])
def test_console_log_to_wandb(packed: bool, server: WandbServer) -> None:
    """A Primus log becomes a run in W&B."""
    lines = "".join(PRIMUS.format(second=step, step=12125 + step, loss=2.3 - step / 100) for step in range(20))
    if packed:
        Path("primus.log.gz").write_bytes(gzip.compress(lines.encode()))
    else:
        Path("primus.log").write_text(lines)
    report = one(f"log:primus.log{'.gz' if packed else ''}", "wandb:team/logs")
    assert report.agrees, str(report)
    (there,) = server.runs.values()
    (name,) = [name for name in there.history[0] if "loss" in name and "scale" not in name]
    assert [row["global_step"] for row in there.history] == list(range(12125, 12145))
    assert there.history[0][name] == pytest.approx(2.3)
