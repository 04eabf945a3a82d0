"""Console logs: every line that the known programs print, with noise, colours, copies and cuts."""

from __future__ import annotations

import calendar
import fcntl
import gzip
import io
import itertools
import math
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trackers_console_logs import reader as stream
from trackers_console_logs.forms.fields import AVERAGE, OWN, FieldReader
from trackers_console_logs.programs import megatron as log_names
from trackers_console_logs.reader import LogReader, LogStream

import trackers
from benchmarks import log_reading
from tests import LOGS
from trackers.errors import NotFound, UsageError
from trackers.readers.reader import Reader
from trackers.records import Config, Environment, Finish, Metrics, Record, Start, merge

pytestmark = pytest.mark.usefixtures("utc")


def read(where: str | Path) -> list[Record]:
    reader = LogReader()
    (run,) = reader.runs(str(where))
    return list(reader.read(run))


def read_text(text: str | bytes, when: float = 1e9) -> list[Record]:
    content = text if isinstance(text, bytes) else text.encode()
    return list(LogStream("test.log", when, 2025).read(io.BytesIO(content)))


def rows(records: list[Record]) -> dict[int | None, dict[str, Any]]:
    """Values by step; what is said of a step twice adds up."""
    found: dict[int | None, dict[str, Any]] = {}
    for record in records:
        if isinstance(record, Metrics):
            found.setdefault(record.step, {}).update(record.values)
    return found


def config(records: list[Record]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for record in records:
        if isinstance(record, Config):
            merge(found, record.values)
    return found


def at(text: str) -> float:
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M:%S")))


def test_reader_is_one() -> None:
    """The class fulfils the contract of readers."""
    assert isinstance(LogReader(), Reader)


def test_primus_line_is_read_whole() -> None:
    """Each value of Primus' line has its number, of the interval and as running average, with units in its name."""
    found = read(LOGS / "primus.log")
    assert rows(found)[12125] == {
        "consumed_samples": 3104000,
        "perf/iter_ms": 2701.3,
        "perf/iter_ms_avg": 2712.7,
        "gpu/hip_memory_used_gib": 227.35,
        "gpu/hip_memory_free_gib": 28.63,
        "gpu/hip_memory_total_gib": 255.98,
        "gpu/hip_memory_used_percent": 88.81,
        "perf/tflops_per_gpu": 210.5,
        "perf/tflops_per_gpu_avg": 217.3,
        "perf/tokens_per_sec_per_gpu": 12130.4,
        "perf/tokens_per_sec_per_gpu_avg": 12525.5,
        "learning_rate": 1.587349e-04,
        "global_batch_size": 256,
        "train_loss": 2.352391,
        "loss_scale": 1.0,
        "grad_norm": 0.132,
        "skipped_iterations": 0,
        "nan_iterations": 0,
    }
    assert isinstance(rows(found)[12125]["consumed_samples"], int)


def test_primus_variants_are_read() -> None:
    """Colours, `mem usages`, `X (avg Y)`, `inst/harmonic mean`, NaN and infinity; two ranks' copies count once."""
    found = read(LOGS / "primus.log")
    steps = [record.step for record in found if isinstance(record, Metrics)]
    assert steps == [12125, 12126]
    row = rows(found)[12126]
    assert row["gpu/memory_used_ratio"] == 0.8881
    assert (row["perf/tflops_per_gpu"], row["perf/tflops_per_gpu_avg"]) == (615.5, 614.2)
    assert (row["perf/tokens_per_sec_per_gpu"], row["perf/tokens_per_sec_per_gpu_avg"]) == (12137.1, 12525.4)
    assert math.isnan(row["train_loss"])
    assert row["grad_norm"] == math.inf
    assert (row["num_zeros"], row["skipped_iterations"], row["nan_iterations"]) == (960902016.0, 1, 1)


def test_time_is_the_stamp_nearest_the_values() -> None:
    """A line's own stamp, with its fraction, in local time."""
    times = [record.time for record in read(LOGS / "primus.log") if isinstance(record, Metrics)]
    assert times == [at("2025-11-21 12:10:29"), at("2025-11-21 12:10:32") + 0.269468]


def test_log_says_what_it_ran_on() -> None:
    """Ranks, iterations to come, printed arguments, GPU and versions are the run's configuration and environment."""
    found = read(LOGS / "primus.log")
    known = config(found)
    assert (known["world_size"], known["train_iters"]) == (32, 36000)
    assert (known["micro_batch_size"], known["seq_length"]) == (2, 4096)
    assert known["log"]["format"] == "Primus"
    assert known["log"]["names"]["train_loss"] == "lm loss"
    (environment,) = [record for record in found if isinstance(record, Environment)]
    assert environment.values == {
        "gpu": "AMD Instinct MI355X",
        "pytorch_version": "2.8.0+rocm7.0",
        "rocm_version": "7.0",
    }


def test_rocm_and_hip_memory_are_apart() -> None:
    """What HIP and what rocm-smi say stand side by side; the run that reached its last iteration is finished."""
    found = read(LOGS / "primus-rocm.log")
    assert rows(found)[5]["gpu/rocm_memory_used_gib"] == 99.07
    assert rows(found)[5]["num_zeros"] == 3143909632.0
    last = rows(found)[6]
    assert (last["gpu/hip_memory_used_gib"], last["gpu/rocm_memory_used_gib"]) == (98.0, 99.07)
    assert (last["gpu/rocm_max_memory_used_gib"], last["gpu/rocm_max_memory_used_percent"]) == (99.5, 51.83)
    assert found[-1] == Finish(time=at("2025-08-25 13:42:36"), status="finished", step=6)


def test_wrapped_line_is_joined() -> None:
    """The document's own line, wrapped over three lines, is one row."""
    assert rows(read(LOGS / "primus-excerpt.log")) == {
        2: {
            "consumed_samples": 256,
            "perf/iter_ms": 9836.3,
            "perf/iter_ms_avg": 21761.7,
            "gpu/hip_memory_used_gib": 117.99,
            "perf/tokens_per_sec_per_gpu": 13325.3,
        },
        3: {
            "consumed_samples": 384,
            "perf/iter_ms": 9702.1,
            "perf/iter_ms_avg": 15731.9,
            "gpu/hip_memory_used_gib": 118.02,
            "perf/tokens_per_sec_per_gpu": 13510.0,
        },
    }


def test_megatron_keeps_other_losses_and_validation() -> None:
    """Losses of any name keep it; `episode`, memory and validation lines are read; timers are no values."""
    found = rows(read(LOGS / "megatron.log"))
    assert set(found) == {100, 200}
    assert found[100]["load_balancing_loss"] == 1.329517
    assert found[100]["mtp_1 loss"] == 7.925096
    assert found[100]["memory/rank_0/max_allocated_mib"] == 136133.79638671875
    assert found[200]["episode"] == 3
    assert (found[200]["val_loss"], found[200]["val_perplexity"]) == (7.001, 1097.73)


def test_log_without_stamps_goes_on_by_iteration_time(tmp_path: Path) -> None:
    """Without stamps the first row has the file's time and the next comes when its iterations had passed."""
    path = tmp_path / "plain.log"
    path.write_bytes((LOGS / "megatron.log").read_bytes())
    os.utime(path, (1e9, 1e9))
    times = {record.step: record.time for record in read(path) if isinstance(record, Metrics)}
    assert times[100] == 1e9
    assert times[200] == pytest.approx(1e9 + 100 * 3.7402)


def test_bridge_line_is_read_whole() -> None:
    """Every field of Megatron Bridge's console line, optional ones too."""
    found = rows(read(LOGS / "bridge.log"))
    assert found[2]["perf/tflops_per_gpu"] == 1255.4
    assert found[3] == {
        "consumed_samples": 384,
        "skipped_samples": 128,
        "perf/iter_ms": 6040.1,
        "perf/tflops_per_gpu": 1256.0,
        "perf/energy_per_gpu_j": 4102.7,
        "perf/power_per_gpu_w": 679.2,
        "learning_rate": 1.5e-05,
        "global_batch_size": 128,
        "train_loss": 11.7,
        "loss_scale": 1.0,
        "grad_norm": 7.12,
        "num_zeros": 12,
        "params_norm": 1234.567,
        "skipped_iterations": 1,
        "nan_iterations": 0,
    }


def test_torchtitan_line_is_read() -> None:
    """Thousands' commas, GiB with percent, `N/A`, colours, validation, two ranks."""
    found = rows(read(LOGS / "torchtitan.log"))
    assert found[1] == {
        "train_loss": 12.2721,
        "grad_norm": 1.39,
        "gpu/max_reserved_memory_gib": 47.89,
        "gpu/max_reserved_memory_percent": 60.54,
        "perf/tokens_per_sec_per_gpu": 1234,
        "perf/tflops_per_gpu": 10.22,
        "perf/mfu_percent": 1.03,
    }
    assert found[10]["perf/tflops_per_gpu"] == 1067.43
    assert "perf/mfu_percent" not in found[10]
    assert (found[10]["train_loss"], found[10]["val_loss"]) == (10.1043, 9.9001)


def test_maxtext_line_is_read() -> None:
    """Comma-separated fields, glog's stamps without a year, and the evaluation's line."""
    records = read(LOGS / "maxtext.log")
    assert rows(records)[49] == {
        "perf/iter_time_sec": 5.018,
        "perf/tflops_per_gpu": 107.127,
        "perf/tokens_per_sec_per_gpu": 6529.527,
        "total_weights": 524288,
        "train_loss": 10.172,
        "val_loss": 9.871,
        "total_weights validation": 65536.0,
    }
    first = next(record for record in records if isinstance(record, Metrics))
    assert time.strftime("%m-%d %H:%M:%S", time.gmtime(first.time)) == "03-11 17:19:21"


def line(step: int, loss: str = "2.5E+00", extra: str = "", rank: str = "[rank-7/8]", clock: str = "12:00:00") -> str:
    return f"[20251121 {clock}]{rank}[INFO ] [--t.py:1] :  iteration {step:8d}/ 100 | lm loss: {loss} |{extra}\n"


def test_restart_from_checkpoint_is_told() -> None:
    """A writer that goes back to an earlier iteration begins an attempt that supersedes what it trains again."""
    log = line(1) + line(2) + line(3, "9.0E+00") + line(2, "2.1E+00", clock="13:00:00") + line(3, clock="13:00:01")
    records = read_text(log)
    starts = [record for record in records if isinstance(record, Start)]
    assert [(start.attempt, start.from_step) for start in starts] == [(1, None), (2, 1)]
    assert [r.step for r in records if isinstance(r, Metrics)] == [1, 2, 3, 2, 3]


def test_superseded_iterations_are_left_out(tmp_path: Path) -> None:
    """Of what was trained twice the newer stays, over several restarts, also in gzipped logs and beside copies."""
    loss = itertools.count(1)
    tries = [range(1, 8), range(5, 9), range(3, 6)]
    text = "".join(
        line(step, f"{next(loss)}.0", rank=f"[rank-{rank}/8]", clock=f"1{number}:00:00")
        for number, steps in enumerate(tries)
        for step in steps
        for rank in (7, 6)
    )
    (tmp_path / "train.log").write_text(text)
    (tmp_path / "train.gz").write_bytes(gzip.compress(text.replace("iteration", "\x1b[31miteration\x1b[0m").encode()))
    for name in ("train.log", "train.gz"):
        records = read(tmp_path / name)
        points = [(r.step, r.values["train_loss"]) for r in records if isinstance(r, Metrics)]
        assert points == [(1, 1.0), (2, 3.0), (3, 23.0), (4, 25.0), (5, 27.0)]
        starts = [(r.attempt, r.from_step) for r in records if isinstance(r, Start)]
        assert starts == [(1, None), (2, 4), (3, 2)]
    assert trackers.load(f"log:{tmp_path}/train.log").attempts[1]["from_step"] == 4


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9)), max_size=6), st.integers(1, 40))
def test_quick_look_misses_no_restart(tries: list[tuple[int, int]], block: int) -> None:
    """Wherever the file is cut into blocks: a log with restarts is never taken for one without."""
    text = "".join(line(step, f"{number}.5") for number, (begin, count) in enumerate(tries)
                   for step in range(begin, begin + count)).encode()  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BLOCK_BYTES", 50 * block)
        quick = stream.may_restart(io.BytesIO(text))
    assert quick or not stream.survey(lambda: io.BytesIO(text), 2025).restarts


def test_copies_of_a_line_count_once() -> None:
    """Copies by several ranks, by two handlers, and of a whole stretch of the log are no restarts and no rows."""
    both = "".join(line(k, rank=f"[rank-{r}/8]", loss=f"{k}.{r}") for k in (1, 2, 3) for r in (7, 6))
    late = "".join(line(k, rank="[rank-5/8]", loss=f"{k}.5") for k in (1, 2, 3))
    again = "".join(line(k, rank="[rank-7/8]", loss=f"{k}.7") for k in (1, 2, 3))
    records = read_text(both + late + again + line(4))
    assert [r.step for r in records if isinstance(r, Metrics)] == [1, 2, 3, 4]
    assert rows(records)[2]["train_loss"] == 2.7
    assert len([record for record in records if isinstance(record, Start)]) == 1


def test_cut_copy_is_completed_by_another() -> None:
    """What one rank's line lost, another rank's copy of it gives."""
    full = line(2, extra=" grad norm: 0.132 |")
    cut = full[: full.index("grad norm: 0.1") + len("grad norm: 0.1")] + "\n"
    records = read_text(line(1) + cut + full.replace("rank-7", "rank-6"))
    assert rows(records)[2] == {"train_loss": 2.5, "grad_norm": 0.132}


def test_line_written_over_another_is_two_rows() -> None:
    """Where a line lost its end to another, each iteration has its own values and the broken one is left out."""
    broken = line(1, extra=" grad norm: 0.1").rstrip("\n") + line(2, loss="3.5E+00")
    assert rows(read_text(broken)) == {1: {"train_loss": 2.5}, 2: {"train_loss": 3.5}}


def original(name: str) -> str:
    """The log's key for a name, of which there must be no second; where programs spell it differently, one of these."""
    if name.startswith(OWN):
        return name.removeprefix(OWN)
    memory = re.fullmatch(r"gpu/(?:(\w+?)_)?(max_)?memory_(?:used_gib|free_gib|total_gib|used_percent)", name)
    if memory:
        label = " ".join(part.rstrip("_") for part in memory.groups() if part)
        short = f"{label} mem usage".strip()
        return f"{short}/usage_ratio" if memory[2] else f"{short}/free/total/usage_ratio"
    keys = {known: key for key, known in reversed(log_names.NAMES.items())}
    return keys.get(name) or keys.get(name.removesuffix(AVERAGE)) or name.removesuffix(AVERAGE)


def test_unknown_key_keeps_its_name_beside_ours() -> None:
    """A key that is called as another value is here doesn't take its place."""
    found = rows(read_text(line(1, extra=" train_loss: 9.0 | my metric: 4/5 | note: hello |")))
    assert found[1] == {"train_loss": 2.5, "log/train_loss": 9.0, "my metric": 4, "my metric_avg": 5}
    assert original("log/train_loss") == "train_loss"


KEYS = [key for key in log_names.NAMES if "validation" not in key and "test" not in key]


def test_name_leads_back_to_the_key() -> None:
    """From each name the log's key can be had, in one of its spellings."""
    names = {key: log_names.metric_names(key)[0] for key in KEYS}
    assert names == {key: log_names.metric_names(original(name))[0] for key, name in names.items()}


@pytest.mark.heavy
@given(st.text(st.characters(codec="utf-8", exclude_characters="|:\r\n"), min_size=1))
def test_names_of_other_keys_are_reversible(key: str) -> None:
    """A key that no program is known to print leads to a name and back."""
    key = key.strip()
    if key in log_names.NAMES or not key:
        return
    assert original(log_names.metric_names(key)[0]) == key or "mem usage" in key


NUMBERS = st.one_of(st.floats(), st.integers(0, 10**12))
PAIRS = st.lists(
    st.tuples(st.sampled_from([key for key in KEYS if key != "loss"] + ["aux loss", "z_loss"]), NUMBERS, NUMBERS),
    min_size=1,
    unique_by=lambda item: log_names.metric_names(item[0])[0],
)


@pytest.mark.slow
@given(PAIRS, st.booleans())
def test_line_is_read_as_it_was_written(fields: list[tuple[str, float, float]], pairs: bool) -> None:
    """Whatever numbers a line has, in whatever order, they are read: also by the form learnt from another line."""
    text = "|".join(f" {key}: {one!r}/{other!r} " if pairs else f" {key}: {one!r} " for key, one, other in fields)
    learnt = FieldReader(log_names.metric_names)
    learnt.read("|".join(f" {key}: 1.5/2.5 " if pairs else f" {key}: 1.5 " for key, _, _ in fields).encode())
    for found in (FieldReader(log_names.metric_names).read(text.encode()).values, learnt.read(text.encode()).values):
        for key, one, other in fields:
            names = log_names.metric_names(key)
            assert found[names[0]] == one or math.isnan(one)
            if pairs:
                assert found[names[1]] == other or math.isnan(other)


SAMPLES = sorted(LOGS.glob("*.log"))
BARS = ("keras", "lightning")
"""Logs with progress bars, of which the last state of a step counts: where they break off, it is an earlier one."""


@pytest.mark.heavy
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_cut_log_has_no_value_that_the_whole_has_not(data: st.DataObject) -> None:
    """Wherever a log breaks off, what is read of it is a part of what is read of the whole."""
    content = data.draw(st.sampled_from([log for log in SAMPLES if not log.stem.startswith(BARS)])).read_bytes()
    whole: dict[tuple[int | None, str], set[str]] = {}
    for record in read_text(content):
        if isinstance(record, Metrics):
            for name, value in record.values.items():  # an evaluation may have two at one step
                whole.setdefault((record.step, name), set()).add(str(value))
    try:
        part = rows(read_text(content[: data.draw(st.integers(0, len(content)))]))
    except NotFound:
        return
    for step, values in part.items():
        for name, value in values.items():
            assert str(value) in whole[step, name]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_noise_changes_nothing(data: st.DataObject) -> None:
    """Other lines between, of any bytes, add nothing and take nothing."""
    lines = (LOGS / "bridge.log").read_bytes().splitlines(keepends=True)
    noise = st.lists(st.binary().map(lambda text: text.replace(b"\n", b"") + b"\n"), max_size=3)
    mixed = b"".join(b"".join(data.draw(noise)) + line for line in lines)
    assert rows(read_text(mixed)) == rows(read_text(b"".join(lines)))


def test_gzipped_log_is_read_as_the_plain_one(tmp_path: Path) -> None:
    """A gzipped log gives the same records, whatever it is called; a cut one as far as it goes."""
    plain = (LOGS / "bridge.log").read_bytes()
    packed = gzip.compress(plain)
    (tmp_path / "bridge.log.gz").write_bytes(packed)
    assert rows(read(tmp_path / "bridge.log.gz")) == rows(read_text(plain))
    (tmp_path / "cut").write_bytes(packed[:-60])
    part = rows(read(tmp_path / "cut"))
    assert part
    assert set(part) < set(rows(read_text(plain))) or len(part) <= 3
    for _ in range(2):  # read, and from the cache
        assert trackers.load(f"log:{tmp_path}/cut").run.note.startswith("the packed log is cut or damaged")
        assert trackers.load(f"log:{tmp_path}/bridge.log.gz").run.note == ""
    (tmp_path / "short").write_bytes(packed[:20])
    with pytest.raises(NotFound, match="its packed content is cut or damaged"):
        read(tmp_path / "short")


def test_standard_input_is_read() -> None:
    """``log:-`` reads what is piped in."""
    code = (
        "from trackers_console_logs.reader import LogReader\n"
        "r = LogReader()\n"
        "print(len([x for x in r.read(r.runs('-')[0]) if type(x).__name__ == 'Metrics']))"
    )
    done = subprocess.run([sys.executable, "-c", code], input=(LOGS / "bridge.log").read_bytes(), capture_output=True)
    assert done.stdout.split() == [b"3"], done.stderr


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input_is_read_several_times(pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of ``log:-`` gets all lines, also one inside another; the run began at its first stamp."""
    content = (LOGS / "bridge.log").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(pack(content)))))
    reader = LogReader()
    (run,) = reader.runs("-")
    assert run.created == LogReader().runs(f"{LOGS}/bridge.log")[0].created
    expected = rows(read(LOGS / "bridge.log"))
    first = reader.read(run)
    begun = [next(first)]
    assert rows(list(reader.read(run))) == expected
    assert rows([*begun, *first]) == expected


@pytest.mark.parametrize("above", [0, 1100])
def test_live_standard_input_is_read_as_it_comes(above: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that still writes gets its first lines read before it ends, also in a process with many files."""
    lines = (LOGS / "bridge.log").read_bytes().splitlines(keepends=True)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if above:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2 * above), max(limits[1], 2 * above)))
    pipe = os.pipe()
    end, writer = (fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, above) for number in pipe)
    for number in pipe:
        os.close(number)
    with open(end, encoding="utf-8") as stream, open(writer, "wb", buffering=0) as program:
        monkeypatch.setattr(sys, "stdin", stream)
        program.write(lines[0])
        reader = LogReader()
        (run,) = reader.runs("-")
        program.write(b"".join(lines[1:]))
        found = reader.read(run)
        begun = [next(found)]
        program.close()
        assert rows([*begun, *found]) == rows(read(LOGS / "bridge.log"))


def test_log_without_training_lines_says_what_is_known(tmp_path: Path) -> None:
    """The message names the known programs and shows the first line, without control characters."""
    path = tmp_path / "other.log"
    path.write_text("\n\x1b[31mEpoch 1: accuracy 0.5\n")
    with pytest.raises(NotFound, match=r"Primus.*TorchTitan.*MaxText.*first line is: \?\[31mEpoch 1: accuracy 0.5"):
        read(path)
    path.write_text("")
    with pytest.raises(NotFound, match="it is empty"):
        read(path)


def test_missing_log_is_not_found(tmp_path: Path) -> None:
    """A path, glob or directory without a log says so, and what is there."""
    (tmp_path / "train.log").write_text(line(1))
    with pytest.raises(NotFound, match=r"no such file; there are train\.log"):
        LogReader().runs(str(tmp_path / "trian.log"))
    with pytest.raises(NotFound, match=r"is a directory.*\*\.log"):
        LogReader().runs(str(tmp_path))
    with pytest.raises(UsageError, match="name a file"):
        LogReader().runs("")


def test_glob_names_several_runs(tmp_path: Path) -> None:
    """Each file of a glob is a run with an id of its own, the newest first; equal names in two folders stay apart."""
    for place, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "train_1.log.gz"
        path.write_bytes(gzip.compress(line(place).encode()))
        os.utime(path, (place, place))
    found = LogReader().runs(str(tmp_path / "*" / "*.gz"))
    assert [run.project for run in found] == ["b", "a"]
    assert {run.name for run in found} == {"train_1"}
    assert len({run.id for run in found}) == 2


@pytest.mark.slow
def test_line_without_end_is_read_in_pieces() -> None:
    """A file of one endless line is read in bounded memory, and isn't taken for a log."""
    endless = io.BytesIO(b"iteration " * 400_000)
    with pytest.raises(NotFound, match="no line with training values"):
        list(LogStream("endless", 0.0, 2025).read(endless))


def test_log_in_utf_16_is_read(tmp_path: Path) -> None:
    """PowerShell's redirection writes UTF-16: the log is read as one in UTF-8."""
    plain = (LOGS / "bridge.log").read_bytes()
    (tmp_path / "a.log").write_bytes(plain.decode().encode("utf-16"))
    assert rows(read(tmp_path / "a.log")) == rows(read_text(plain))


@pytest.mark.heavy
def test_benchmark_reads_each_iteration_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The benchmark's log has copies and noise, and its reading is counted against what was written."""
    monkeypatch.chdir(tmp_path)
    figures = {figure.name: figure for figure in log_reading.measure(True)}
    assert figures["size"].value > 4
    assert figures["read into records"].at_least == 50


PREFIXES = {
    "torchrun --tee": "[default7]:",
    "torchrun --role": "[trainer3]:",
    "torchrun --log-line-prefix-template": "[rank7|default]: ",
    "srun -l": "7: ",
    "srun -l, padded": "  07: ",
    "mpirun --tag-output": "[1,7]<stdout>:",
    "mpirun --tag-output, stderr": "[1,7]<stderr>:",
    "mpirun 5": "[prterun-node-1-4242@1,7]<stdout>: ",
    "mpirun --timestamp-output": "Fri Nov 21 12:10:41 2025[1,7]<stdout>:",
    "mpirun --output timestamp": "Fri Nov  7 12:10:41 2025<stdout>: ",
    "SageMaker": "[1,mpirank:7,algo-1]<stdout>:",
    "mpiexec -prepend-rank": "[7] ",
    "horovodrun": "[7]<stdout>:",
    "kubectl logs --prefix": "[pod/llama-worker-7-x8zq4/pytorch] ",
    "kubectl logs --timestamps": "2025-11-21T12:10:41.123456789Z ",
    "kubectl logs --prefix --timestamps": "[pod/llama-rank-7/pytorch] 2025-11-21T12:10:41.123456789Z ",
    "kubeflow": "[llama-worker-7]: ",
    "torchx": "trainer/7 ",
    "a container's file": "2025-11-21T12:10:41.123456789+00:00 stdout F ",
    "docker logs -t": "2025-11-21T12:10:41.123456789Z ",
    "docker compose": "trainer-7  | ",
    "docker compose, coloured": "\x1b[36mtrainer-7  |\x1b[0m ",
    "docker compose -t": "trainer-7   | 2025-11-21T12:10:41.123456789Z ",
    "pdsh": "node-07: ",
    "pdsh, addresses": "10.0.0.17: ",
    "deepspeed": "worker-1: ",
    "ray": "\x1b[36m(RayTrainWorker pid=4242, ip=10.0.0.7)\x1b[0m ",
    "ray, tasks": "(train pid=4242) ",
    "journald": "Nov 21 12:10:41 gpu-host-7 python[4242]: ",
    "syslog": "Nov  7 12:10:41 gpu-host-7 torchrun[4242]: ",
    "journald -o short-iso": "2025-11-21T12:10:41+0000 gpu-host-7 python3.12[4242]: ",
    "ts": "Nov 21 12:10:41 ",
    "ts %H:%M:%S": "12:10:41 ",
    "ts %F %T": "2025-11-21 12:10:41 ",
    "a CI's": "2025-11-21T12:10:41.1234567Z ",
    "srun and torchrun": "3: [default7]:",
    "kubectl, mpirun and torchrun": "[pod/a-1/b] 2025-11-21T12:10:41Z [1,7]<stdout>:[default7]:",
}
"""What launchers and collectors of logs put before each line of a program."""


def behind(content: bytes, prefix: str) -> bytes:
    return b"".join(prefix.encode() + text for text in content.splitlines(keepends=True))


@pytest.mark.parametrize("log", SAMPLES, ids=lambda path: path.stem)
def test_log_behind_a_launchers_prefix_is_read_as_without(log: Path) -> None:
    """World size, copies, wrapped lines, arguments, machine, times of the lines' own: no prefix changes a record."""
    content = log.read_bytes()
    plain = read_text(content)
    for name, prefix in PREFIXES.items():
        found = read_text(behind(content, prefix))
        if all(record.time < 1e9 or record.time > 1.1e9 for record in plain):
            assert str(found) == str(plain), name  # NaN is equal as text
        else:  # not all of its lines have times: a prefix's count
            assert [type(record) for record in found] == [type(record) for record in plain], name
            assert str((rows(found), config(found))) == str((rows(plain), config(plain))), name


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.sampled_from(SAMPLES), st.lists(st.sampled_from(sorted(PREFIXES.values())), min_size=1, max_size=3))
def test_log_behind_several_prefixes_is_read_as_without(log: Path, prefixes: list[str]) -> None:
    """Launchers may stand behind each other in any order."""
    content = log.read_bytes()
    found, plain = read_text(behind(content, "".join(prefixes))), read_text(content)
    assert str((rows(found), config(found))) == str((rows(plain), config(plain)))


@pytest.mark.parametrize(
    ("prefix", "when"),
    [
        ("2025-11-21T14:10:41.5+02:00 ", at("2025-11-21 12:10:41") + 0.5),
        ("[1,7]<stdout>:", 1e9),
        ("Fri Nov 21 12:10:41 2025[1,7]<stdout>:", at("2025-11-21 12:10:41")),
        ("Nov 21 12:10:41 host python[1]: ", at("2025-11-21 12:10:41")),
    ],
)
def test_line_without_a_time_has_its_prefixs(prefix: str, when: float) -> None:
    """Where the program prints no times, those of the collector count, with their zone."""
    content = behind((LOGS / "megatron.log").read_bytes(), prefix)
    assert next(record.time for record in read_text(content) if isinstance(record, Metrics)) == when


def test_ranks_behind_a_prefix_are_copies_of_each_other() -> None:
    """What eight ranks print through one terminal counts once, also where they print other values and late."""
    text = "".join(
        f"[default{rank}]:step:  {step}  loss: {step}.{rank}  tps: 1{rank}\n"
        for step in range(1, 20)
        for rank in (7, 3, 5)
    )
    late = "".join(f"[default2]:step:  {step}  loss: {step}.2  tps: 12\n" for step in range(1, 20))
    found = read_text(text + late)
    assert rows(found) == {k: {"train_loss": k + 0.7, "perf/tokens_per_sec_per_gpu": 17} for k in range(1, 20)}
    assert len([record for record in found if isinstance(record, Start)]) == 1


def test_wrapped_lines_of_two_ranks_arent_mixed() -> None:
    """A line goes on with a line of the same rank only."""
    text = (
        "[default7]: iteration        1/     100 | lm loss: 2.5 |\n[default6]: grad norm: 6.0 |\n"
        "[default7]: grad norm: 7.0 |\n"
    )
    assert rows(read_text(text)) == {1: {"train_loss": 2.5, "grad_norm": 7.0}}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("[pod/llama-x8zq4/pytorch] ", "[pod/llama-9k2mn/pytorch] "),
        ("(RayTrainWorker pid=100, ip=10.0.0.7) ", "(RayTrainWorker pid=200, ip=10.0.0.7) "),
        ("", ""),
    ],
)
def test_restart_under_another_name_is_told(first: str, second: str) -> None:
    """A restarted pod or process has another name, a smaller world another last rank: what it trains again counts."""
    worlds = ("[rank-7/8]", "[rank-3/4]") if not first else ("", "")
    before = "".join(first + line(k, rank=worlds[0], clock=f"12:00:0{k}") for k in range(1, 6))
    after = "".join(second + line(k, "9.0", rank=worlds[1], clock=f"12:30:0{k}") for k in range(3, 8))
    starts = [(r.attempt, r.from_step) for r in read_text(before + after) if isinstance(r, Start)]
    assert starts == [(1, None), (2, 2)]


def test_memory_of_each_rank_is_kept() -> None:
    """Megatron's line of memory, which each rank prints, is no copy of another rank's."""
    memory = "[Rank {0}] (after 1 iterations) memory (MB) | allocated: 1{0}.5 | max allocated: 2{0}.5 |\n"
    values = rows(read_text(line(1) + memory.format(0) + memory.format(1)))[1]
    assert (values["memory/rank_0/allocated_mib"], values["memory/rank_1/allocated_mib"]) == (10.5, 11.5)
