"""The TensorBoard tracker, read back by TensorBoard's own loaders."""

from __future__ import annotations

import copy
import json
import math
import shutil
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import trackers
from tests import ROOT
from tests.fakes.servers import tensorboard_server
from tests.helpers import T0, Driver, run_info, stream, training
from tests.stores import read_tensorboard
from trackers.backends.tensorboard.tracker import TensorboardTracker
from trackers.errors import Rejected, UsageError
from trackers.formats.tensorboard_event import TFRecordFramer, crc32c, unframe
from trackers.readers import registry
from trackers.records import (
    Alert,
    ArtifactFile,
    ArtifactRecord,
    Config,
    Environment,
    Finish,
    Info,
    Media,
    MediaFile,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
    on_axis,
)
from trackers.tracker import RunInfo, State, Status


def events(directory: Path) -> list[Any]:
    """All events below a directory, by TensorBoard's directory loader, and so checked against their checksums."""
    from tensorboard.backend.event_processing import directory_loader, event_file_loader, io_wrapper

    loader = directory_loader.DirectoryLoader(
        str(directory),
        event_file_loader.TimestampedEventFileLoader,
        path_filter=io_wrapper.IsTensorFlowEventsFile,
    )
    return list(loader.Load())


def accumulator(directory: Path) -> Any:
    """TensorBoard's own accumulator, which keeps every point."""
    from tensorboard.backend.event_processing import event_accumulator

    found = event_accumulator.EventAccumulator(str(directory), size_guidance={"scalars": 0, "tensors": 0, "images": 0})
    found.Reload()
    return found


def scalars(directory: Path) -> dict[str, list[tuple[int, float, float]]]:
    found = accumulator(directory)
    return {tag: [(e.step, e.value, e.wall_time) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def points(directory: Path, tag: str) -> list[tuple[int, float]]:
    """All points of a metric that the files hold, also those that TensorBoard forgets at a later session's start."""
    found = [event for event in events(directory) if any(value.tag == tag for value in event.summary.value)]
    return sorted((event.step, event.wall_time) for event in found)


def strings(directory: Path, tag: str) -> list[str]:
    """What the text plugin would show under a tag, oldest first."""
    return [e.tensor_proto.string_val[0].decode() for e in accumulator(directory).Tensors(tag)]


def about(directory: Path) -> dict[str, str]:
    """What the run's card says last under each heading."""
    found: dict[str, str] = {}
    for event in accumulator(directory).Tensors("trackers/run"):
        for text in event.tensor_proto.string_val:
            heading, _, content = text.decode().partition("\n\n")
            found[heading.removeprefix("#### ")] = content
    return found


def single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def driver(tmp_path: Path, **fields: Any) -> Driver:
    return Driver(TensorboardTracker, run_info(tmp_path / "run", **fields))


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.mark.slow
def test_run_of_a_thousand_steps_reads_back_whole(tmp_path: Path) -> None:
    """A thousand steps of ten values come back from TensorBoard's loader with their steps and times, as float32."""
    run = driver(tmp_path)
    run.deliver(training(1000))
    found = scalars(tmp_path / "run/tensorboard/baseline")
    assert set(found) == {f"metric_{k}" for k in range(10)}
    for k in range(10):
        assert found[f"metric_{k}"] == [(step, single(step + k / 10), T0 + step / 10) for step in range(1000)]


def test_rust_loader_reads_the_same(tmp_path: Path) -> None:
    """The data server that TensorBoard starts by default serves every point, text and histogram."""
    import grpc
    import tensorboard_data_server
    from tensorboard.data.proto import data_provider_pb2, data_provider_pb2_grpc

    histogram = MediaFile(format="json", data={"counts": [1, 2], "edges": [0.0, 0.5, 1.0]})
    more = [
        Text(step=3, time=T0, values={"note": "hello"}),
        Media(step=3, time=T0, name="weights", type="histogram", items=[histogram]),
    ]
    records = training(100, finish=False)
    run = driver(tmp_path)
    run.deliver([*records, *stream(more, first_seq=len(records) + 1)])
    port_file = tmp_path / "port"
    server = subprocess.Popen(
        [
            *(tensorboard_data_server.server_binary(), "--logdir", str(tmp_path / "run/tensorboard/baseline")),
            *(
                "--host",
                "127.0.0.1",
                "--port",
                "0",
                "--port-file",
                str(port_file),
                "--die-after-stdin",
                "--reload",
                "once",
                "-v",
            ),
            *("--samples-per-plugin", "scalars=all"),
        ],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert server.stderr is not None
        for line in server.stderr:
            if b"Finished load cycle" in line:
                break
        with grpc.insecure_channel(f"127.0.0.1:{port_file.read_text().strip()}") as channel:
            stub = data_provider_pb2_grpc.TensorBoardDataProviderStub(channel)
            request = data_provider_pb2.ReadScalarsRequest(
                plugin_filter=data_provider_pb2.PluginFilter(plugin_name="scalars"),
                downsample=data_provider_pb2.Downsample(num_points=1000),
            )
            (entry,) = stub.ReadScalars(request).runs
            tags = {tag.tag_name: list(tag.data.value) for tag in entry.tags}
            assert tags["metric_3"] == [single(step + 0.3) for step in range(100)]
            listing = stub.ListTensors(
                data_provider_pb2.ListTensorsRequest(plugin_filter=data_provider_pb2.PluginFilter(plugin_name="text"))
            )
            assert "note" in {tag.tag_name for entry in listing.runs for tag in entry.tags}
            listing = stub.ListTensors(
                data_provider_pb2.ListTensorsRequest(
                    plugin_filter=data_provider_pb2.PluginFilter(plugin_name="histograms")
                )
            )
            assert "weights" in {tag.tag_name for entry in listing.runs for tag in entry.tags}
    finally:
        server.communicate()


@pytest.mark.heavy
def test_odd_values_become_what_float32_holds(tmp_path: Path) -> None:
    """NaN and infinities stay, bools are 0 and 1, what float32 can't hold is infinite."""
    odd = {
        "nan": math.nan,
        "inf": math.inf,
        "low": -math.inf,
        "big": 2**70,
        "huge": 10**400,
        "wide": 1e300,
        "yes": True,
    }
    run = driver(tmp_path)
    run.deliver(stream([Start(time=T0), Metrics(step=1, time=T0, values=odd)]))
    found = {tag: points[0][1] for tag, points in scalars(tmp_path / "run/tensorboard/baseline").items()}
    assert math.isnan(found.pop("nan"))
    expected = {"inf": math.inf, "low": -math.inf, "big": float(2**70), "huge": math.inf, "wide": math.inf, "yes": 1.0}
    assert found == expected


def test_names_with_every_printable_character_are_kept(tmp_path: Path) -> None:
    """TensorBoard takes any name, and none is changed."""
    names = [f"a{chr(c)}b" for c in range(32, 127)] + ["Verlust/größe", "损失", "🙂", "x" * 5000, " lead", "/lead"]
    run = driver(tmp_path)
    run.deliver(stream([Metrics(step=0, time=T0, values=dict.fromkeys(names, 1.0))]))
    assert set(scalars(tmp_path / "run/tensorboard/baseline")) == set(names)


def test_repeated_and_backward_steps_stay(tmp_path: Path) -> None:
    """Points that repeat a step or go back are kept beside the others by TensorBoard's Python loader."""
    steps = [5, 5, 3, 9, 1, 9]
    records = [Start(time=T0), *(Metrics(step=s, time=T0 + k, values={"a": k}) for k, s in enumerate(steps))]
    run = driver(tmp_path)
    run.deliver(stream(records))
    assert [(s, v) for s, v, _ in scalars(tmp_path / "run/tensorboard/baseline")["a"]] == [
        (s, k) for k, s in enumerate(steps)
    ]


def test_metric_without_step_gets_the_last_one(tmp_path: Path) -> None:
    """A sample that has no step lies beside the step before it."""
    run = driver(tmp_path)
    run.deliver(stream([Metrics(step=7, time=T0, values={"a": 1}), Metrics(time=T0 + 1, values={"gpu": 2})]))
    assert scalars(tmp_path / "run/tensorboard/baseline")["gpu"] == [(7, 2.0, T0 + 1)]


def test_rewind_purges_what_was_superseded(tmp_path: Path) -> None:
    """An attempt that starts again from a checkpoint replaces the later points, and only those."""
    first = [Start(time=T0), *(Metrics(step=s, time=T0 + s, values={"a": s}) for s in range(10))]
    second = [
        Start(time=T0 + 20, attempt=2, from_step=4),
        Metrics(step=5, time=T0 + 21, values={"a": 50}),
        Start(time=T0 + 22, attempt=2, from_step=4, node=1),
        Metrics(step=6, time=T0 + 23, values={"a": 60}),
    ]
    run = driver(tmp_path)
    run.deliver(stream([*first, *second]))
    points = [(s, v) for s, v, _ in scalars(tmp_path / "run/tensorboard/baseline")["a"]]
    assert points == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 50), (6, 60)]


STRETCHES = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 5), st.integers(0, 900)), min_size=1, max_size=4)
"""Attempts: the step that it goes back to, if it is there, how many follow, and how far its axis moves at each; 0: all
lie at one place of it."""


@settings(max_examples=40, deadline=None)
@example(stretches=[(0, 5, 0), (2, 2, 0)], cut=40)
@given(stretches=STRETCHES, cut=st.integers(1, 40))
def test_rewind_leaves_what_counts_on_each_axis(
    stretches: list[tuple[int, int, int]], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Metrics at the step and metrics over a step metric, which is ahead of it or behind, however often training goes
    back, and though a delivery was killed before it committed."""
    records: list[Record] = [Start(time=T0)]
    valid: list[tuple[int, int, float]] = []  # step, axis, value
    for attempt, (back, count, stride) in enumerate(stretches, 1):
        last = min(back, valid[-1][0] if valid else -1)
        valid = [point for point in valid if point[0] <= last]
        axis = valid[-1][1] if valid else None
        if attempt > 1:
            records.append(Start(time=T0 + len(records), attempt=attempt, from_step=last, axis=axis))
        for step in range(last + 1, last + 1 + count):
            axis, value = 0 if axis is None else axis + stride, float(len(records))
            own = {"over": value, "tokens": axis}
            records += [
                Metrics(step=step, time=T0 + len(records), values=own, axis=axis, over=("tokens",)),
                Metrics(step=step, time=T0 + len(records), values={"plain": value}),
            ]
            valid.append((step, axis, value))
    place = tmp_path_factory.mktemp("axes")
    numbered = list(stream(records))
    parts = [part for record in numbered for part in on_axis(record)]
    run = driver(place)
    run.open()
    run.write([part for part in parts if part.seq <= cut])
    run.write(parts, commit=False)
    again = driver(place)
    again.state, again.cursor = run.state, run.cursor
    again.deliver(parts)
    found = {
        name: [point[:2] for point in points] for name, points in scalars(place / "run/tensorboard/baseline").items()
    }
    assert found == {
        "over": [(axis, value) for _, axis, value in valid],
        "tokens": [(step, axis) for step, axis, _ in valid],
        "plain": [(step, value) for step, _, value in valid],
    }


EPOCHS = [{"loss": step, "tokens": step * 100} | ({"epoch": step // 5, "val/loss": step, "val/said": f"at {step}"}
          if step % 5 == 0 else {}) for step in range(1, 16)]  # fmt: skip


@pytest.mark.parametrize("back", [0, 3, 5, 8, 12])
@pytest.mark.parametrize("tokens", [False, True])
def test_rewind_leaves_what_counts_of_each_of_several_axes(
    tokens: bool, back: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validation over epochs beside training over its step, or over tokens, also before the first validation: values
    that a run went back behind stayed, because an epoch is less than the step and the tokens."""
    monkeypatch.setenv("TRACKER_INLINE", "y")
    for attempt, sign in ((1, 1), (2, -1)):
        more: dict[str, Any] = {"resume": "must", "step": back} if attempt == 2 else {}
        run = trackers.init("tensorboard", project="p", id="r", name="r", **more)
        run.define_metric("val/*", step_metric="epoch")
        if tokens:
            run.define_metric("loss", step_metric="tokens")
        for step, row in enumerate(EPOCHS, 1):
            if attempt == 1 or step > back:
                run.log(
                    {**row, "loss": sign * step, **({"val/loss": sign * step} if "val/loss" in row else {})}, step=step
                )
        run.finish()
    found = {name: [point[:2] for point in made] for name, made in scalars(Path(run.path, "tensorboard/r")).items()}
    signs = {step: 1 if step <= back else -1 for step in range(1, 16)}
    assert found["loss"] == [(step * 100 if tokens else step, signs[step] * step) for step in signs]
    assert found["val/loss"] == [(epoch, signs[epoch * 5] * epoch * 5) for epoch in (1, 2, 3)]
    assert found["tokens"] == [(step, step * 100) for step in signs]
    assert found["epoch"] == [(epoch * 5, epoch) for epoch in (1, 2, 3)]


def test_results_and_config_make_one_row_of_hparams(tmp_path: Path) -> None:
    """Results are columns beside the settings and no scalars, which would be charts of one point; nor are those columns
    that nobody asked for. All stand in the run's card."""
    from tensorboard.plugins.hparams import metadata

    records = [
        Config(time=T0, values={"lr": 1e-3, "model": {"depth": 4, "act": "relu"}, "bad": math.nan, "tied": True}),
        Metrics(step=3, time=T0, values={"a": 1.0, "final/accuracy": 0.5}),
        Summary(time=T0, values={"best": 9.0, "final/note": "good", "lost": math.nan, "energy/total_kwh": 0.5}),
        Summary(time=T0, values={"final/best": 2.0}),
        Config(time=T0, values={"lr": 2e-3}),
    ]
    run = driver(tmp_path)
    run.deliver(stream(records), status=Status("failed", 3, T0 + 9))
    directory = tmp_path / "run/tensorboard/baseline"
    assert set(scalars(directory)) == {"a"}
    tensors = accumulator(directory)
    assert about(directory)["status"] == "failed (exit code 3)"
    assert read_tensorboard(run.info).summary == {
        "final/accuracy": 0.5, "final/best": 2.0, "final/note": "good",
        "final/lost": pytest.approx(math.nan, nan_ok=True),
        "final/energy/total_kwh": 0.5,
    }  # fmt: skip

    def plugin(tag: str) -> bytes:
        return bytes(tensors.SummaryMetadata(tag).plugin_data.content)

    start = metadata.parse_session_start_info_plugin_data(plugin(metadata.SESSION_START_INFO_TAG))
    assert start.hparams["lr"].number_value == 2e-3
    assert start.hparams["model/depth"].number_value == 4
    assert start.hparams["model/act"].string_value == "relu"
    assert start.hparams["bad"].string_value == "NaN"
    assert start.hparams["tied"].bool_value is True
    results = {name: value for name, value in start.hparams.items() if name.startswith(" final/")}
    assert set(results) == {" final/accuracy", " final/best", " final/note", " final/lost"}
    assert (results[" final/best"].number_value, results[" final/lost"].string_value) == (2.0, "NaN")
    end = metadata.parse_session_end_info_plugin_data(plugin(metadata.SESSION_END_INFO_TAG))
    assert (end.status, end.end_time_secs) == (2, T0 + 9)  # STATUS_FAILURE


def test_hparams_page_of_tensorboard_lists_the_run(tmp_path: Path) -> None:
    """TensorBoard's hparams backend finds one session group with the config and the results."""
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

    logdir = tmp_path / "tb"
    run = driver(tmp_path, options={"TENSORBOARD_DIR": str(logdir)})
    run.deliver(stream([Config(time=T0, values={"lr": 0.5}), Summary(time=T0, values={"best": 2.0})]))
    multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(logdir))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(logdir))
    context = backend_context.Context(TBContext(data_provider=provider))
    request = RequestContext()
    wanted = api_pb2.ListSessionGroupsRequest(slice_size=10, allowed_statuses=[1], include_metrics=True)
    wanted.col_params.add(hparam=" final/best", order=api_pb2.ORDER_ASC)
    groups = list_session_groups.Handler(request, context, "", wanted).run().session_groups
    assert len(groups) == 1
    assert groups[0].hparams["lr"].number_value == 0.5
    assert groups[0].hparams[" final/best"].number_value == 2.0


SWEEP = ["größe 🙂", "a/b:c", "same", "same", *(f"lr-{k}" for k in range(4, 12))]
NAMES = ["größe 🙂", "a_b_c", "same", "same-id3", *SWEEP[4:]]
"""Where TensorBoard finds them."""


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A project of twelve runs of one group, the first of which failed without a result, served by TensorBoard."""
    home = tmp_path_factory.mktemp("board")
    project = home / "runs/digits"
    for number, name in enumerate(SWEEP):
        values: dict[str, Any] = {"augment": 0.5, "lr": 10.0**-number}
        if number % 2:
            values["momentum"] = 0.9
        records: list[Record] = [Config(time=T0, values=values), Metrics(step=1, time=T0, values={"loss": number})]
        if number:
            records.append(Summary(time=T0, values={"final/best": float(number)}))
        run = Driver(TensorboardTracker, run_info(project / f"id{number}", id=f"id{number}", name=name, group="ratio"))
        run.deliver(stream(records), status=Status("finished" if number else "failed", 0, T0 + 1))
        assert run.state["url"] == f"tensorboard --logdir {project / '.tensorboard'}"
    server = tensorboard_server(project / ".tensorboard", home / "tensorboard.log")
    server.start()
    try:
        yield home, server.url
    finally:
        server.stop()


def asked(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_tensorboard_lists_the_runs_of_a_project_by_name(board: tuple[Path, str]) -> None:
    """Each run is listed under its own name alone; where another has it too, with its id."""
    assert sorted(asked(f"{board[1]}/data/runs")) == sorted(NAMES)


def test_results_are_the_first_columns(tmp_path: Path) -> None:
    """However many settings differ, or don't, whose names come before: HPARAMS ticks the first five columns."""
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.hparams import backend_context

    for differ in (False, True):
        logdir = tmp_path / f"tb{differ}"
        for number in range(2):
            settings = {f"aug_{k}": k * number if differ else k for k in range(25)}
            results = Summary(time=T0, values={"accuracy": 0.5 + number / 4 if differ else 0.5})
            info = run_info(tmp_path / f"{differ}{number}", name=f"n{number}", options={"TENSORBOARD_DIR": str(logdir)})
            Driver(TensorboardTracker, info).deliver(stream([Config(time=T0, values=settings), results]))
        multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(logdir))
        multiplexer.Reload()
        context = backend_context.Context(
            TBContext(data_provider=data_provider.MultiplexerDataProvider(multiplexer, str(logdir)))
        )
        request = RequestContext()
        shown = context.experiment_from_metadata(
            request, "", False, context.hparams_metadata(request, ""), [], hparams_limit=5
        )
        assert next(info.name for info in shown.hparam_infos) == " final/accuracy"


def test_each_run_of_a_sweep_is_a_row_of_its_own(board: tuple[Path, str]) -> None:
    """Runs of one group aren't averaged; every run's settings and results are columns, those first that differ, and the
    group is one of them."""
    experiment = asked(f"{board[1]}/data/plugin/hparams/experiment", {"includeMetrics": True})
    columns = [info["name"] for info in experiment["hparamInfos"]]
    assert columns == [" final/best", "lr", "augment", "group", "momentum"]
    assert [info["name"]["tag"] for info in experiment["metricInfos"]] == ["loss"]
    wanted = {"startIndex": 0, "sliceSize": 100, "allowedStatuses": ["STATUS_SUCCESS", "STATUS_FAILURE"],
              "includeMetrics": True}  # fmt: skip
    groups = asked(f"{board[1]}/data/plugin/hparams/session_groups", wanted)["sessionGroups"]
    rows = {}
    for row in groups:
        (session,) = row["sessions"]
        settings = row["hparams"]
        rows[session["name"]] = (
            row["name"], settings["lr"], settings["group"], settings.get("momentum"), settings.get(" final/best")
        )  # fmt: skip
    shown = [*SWEEP[:1], "a_b_c", *SWEEP[2:3], NAMES[3], *SWEEP[4:]]
    names = {NAMES[number]: SWEEP[1] if number == 1 else shown[number] for number in range(12)}
    assert rows == {
        NAMES[number]: (names[NAMES[number]], 10.0**-number, "ratio", 0.9 if number % 2 else None, number or None)
        for number in range(12)
    }


def test_folders_have_names_alone_and_ids_where_names_are_equal(tmp_path: Path) -> None:
    """In a shared directory two runs of one name have a folder each, and keep it without their state; the command shows
    the project's folder. Removing one leaves the other's."""
    options = {"TENSORBOARD_DIR": str(tmp_path / "tb")}
    runs = [Driver(TensorboardTracker, run_info(tmp_path / run_id, id=run_id, options=options)) for run_id in "ab"]
    for _ in range(2):
        for number, run in enumerate(runs):
            run = Driver(TensorboardTracker, run.info)
            run.deliver(stream([Metrics(step=1, time=T0, values={"loss": float(number)})]))
            assert run.state["url"] == f"tensorboard --logdir {tmp_path / 'tb/digits'}"
    folders = {path.name: path for path in (tmp_path / "tb/digits").iterdir()}
    assert set(folders) == {"baseline", "baseline-b"}
    assert [scalars(folders[name])["loss"][0][1] for name in ("baseline", "baseline-b")] == [0.0, 1.0]
    owned = [TensorboardTracker.own_files(run.info, State()) for run in runs]
    assert owned == [[folders["baseline"]], [folders["baseline-b"]]]
    other = run_info(tmp_path / "c", id="c", options=options)
    assert TensorboardTracker.own_files(other, State()) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [({"id": "a"}, {"id": "0000"}), ({"id": "a"}, {"id": "trackers"}), ({"id": "a.b"}, {"id": "b"}),
     ({"name": "baseline-b", "id": "a"}, {"id": "b", "beside": True})],
)  # fmt: skip
def test_no_run_takes_anothers_files(tmp_path: Path, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Whatever runs are called, none writes over the events of another, nor are those removed with it."""
    options = {"TENSORBOARD_DIR": str(tmp_path / "tb")}
    records = stream([Metrics(step=1, time=T0, values={"loss": 1.0})])
    if second.pop("beside", False):
        (tmp_path / "tb/digits/baseline").mkdir(parents=True)
    runs = [Driver(TensorboardTracker, run_info(tmp_path / str(number), options=options, **about))
            for number, about in enumerate((first, second))]  # fmt: skip
    runs[0].deliver(records)
    before = {path: path.read_bytes() for path in (tmp_path / "tb").rglob("*.trackers")}
    assert len(before) == 1
    assert TensorboardTracker.own_files(runs[1].info, State()) == []
    runs[1].deliver(records)
    after = {path: path.read_bytes() for path in (tmp_path / "tb").rglob("*.trackers")}
    assert len(after) == 2
    assert before.items() <= after.items()


def test_links_to_removed_runs_go(tmp_path: Path) -> None:
    """A project's folder of links has none to a run that is gone; where it can't be made, the project's is named."""
    for run_id in ("a", "b"):
        run = Driver(TensorboardTracker, run_info(tmp_path / "runs/digits" / run_id, id=run_id, name=f"run-{run_id}"))
        run.deliver(stream([Metrics(step=1, time=T0, values={"loss": 1.0})]))
        links = tmp_path / "runs/digits/.tensorboard"
        assert [path.name for path in links.iterdir()] == [f"run-{run_id}"]
        assert scalars(links / f"run-{run_id}")["loss"]
        shutil.rmtree(tmp_path / "runs/digits" / run_id)
    shutil.rmtree(links)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "dangling").symlink_to(tmp_path / "gone")
    links.symlink_to(elsewhere)
    run = Driver(TensorboardTracker, run.info)
    run.deliver(stream([Metrics(step=1, time=T0, values={"loss": 1.0})]))
    assert run.state["url"] == f"tensorboard --logdir {links.parent}"
    assert [path.name for path in elsewhere.iterdir()] == ["dangling"]


def test_what_is_known_of_a_run_is_one_card(tmp_path: Path) -> None:
    """Configuration, environment, alerts, artifacts, status: one tag of the text plugin. As the run ends, one text has
    all of it, which a page with few samples of a tag shows."""
    file = ArtifactFile(path="ckpt.pt", size=3, uri="s3://b/ckpt.pt", digest="d")
    records = [
        Config(time=T0, values={"lr": 0.5}), Environment(time=T0, values={"packages": {"torch": "2.13"}}),
        Info(time=T0, notes="careful", tags=["a"]), Alert(step=2, time=T0, title="low", text="#### status\n\nfinished"),
        ArtifactRecord(step=3, time=T0, name="ckpt", type="model", files=[file]), Summary(time=T0, values={"best": 1}),
    ]  # fmt: skip
    run = driver(tmp_path)
    run.deliver(stream(records))
    found = accumulator(tmp_path / "run/tensorboard/baseline")
    assert [tag for tag in found.Tags()["tensors"] if not tag.startswith("_hparams_")] == ["trackers/run"]
    last = [text.decode() for text in found.Tensors("trackers/run")[-1].tensor_proto.string_val]
    assert [text.split("\n")[0].removeprefix("#### ") for text in last] == [
        "status", "results", "info", "configuration", "environment",
    ]  # fmt: skip
    reader, (source,) = registry.open_source(f"tb:{tmp_path / 'run/tensorboard'}")
    read = list(reader.read(source))
    assert [record.text for record in read if isinstance(record, Alert)] == ["#### status\n\nfinished"]
    assert {record.status for record in read if isinstance(record, Finish)} == {"finished"}
    assert Environment(time=T0, values={"packages": {"torch": "2.13"}}) in read


def test_run_stays_in_the_folder_that_it_began_in(tmp_path: Path) -> None:
    """Renamed, resumed or without its state: a run has one folder, and every point once."""
    for number, options in enumerate(({}, {"TENSORBOARD_DIR": str(tmp_path / "tb")})):
        home = tmp_path / f"run{number}"
        parent = tmp_path / "tb/digits" if options else home / "tensorboard"
        records = training(10, finish=False)
        run = Driver(TensorboardTracker, run_info(home, options=options))
        run.deliver(records, status=Status("running"))
        (folder,) = parent.iterdir()
        more = [*records, *stream([Metrics(step=10, time=T0 + 9, values={"metric_0": 10.0})], first_seq=13)]
        for state, cursor in ((run.state, run.cursor), ({}, 0)):
            run = Driver(TensorboardTracker, run_info(home, options=options, name="another"), state, cursor)
            run.deliver(more)
            assert list(parent.iterdir()) == [folder]
            assert [point[0] for point in scalars(folder)["metric_0"]] == list(range(11))


def test_media_are_what_their_plugins_read(tmp_path: Path) -> None:
    """Images, sounds, histograms and tables arrive under their plugins; what can't be shown names its file."""
    import numpy
    from PIL import Image

    info = run_info(tmp_path / "run")
    media = tmp_path / "run/media"
    media.mkdir()
    Image.new("RGB", (4, 3), "red").save(media / "a.png")
    numpy.save(media / "b.npy", numpy.zeros((3, 4, 3), "uint8"))
    numpy.save(media / "c.npy", numpy.zeros(100, "float32"))
    (media / "d.mp4").write_bytes(b"movie")
    png = MediaFile(format="png", file="media/a.png", caption="a <b>")
    npy = MediaFile(format="npy", file="media/b.npy", width=4, height=3)
    table = MediaFile(format="json", data={"columns": ["<i>", "b|c"], "rows": [["<script>", 1], ["x\ny", None]]})
    histogram = MediaFile(format="json", data={"counts": [3, 4], "edges": [0, 1, 2]})
    sound = MediaFile(format="npy", file="media/c.npy", sample_rate=8000)
    movie = MediaFile(format="mp4", file="media/d.mp4")
    records = [
        Media(step=1, time=T0, name="pictures", type="image", items=[png, npy]),
        Media(step=1, time=T0, name="sound", type="audio", items=[sound]),
        Media(step=1, time=T0, name="weights", type="histogram", items=[histogram]),
        Media(step=1, time=T0, name="samples", type="table", items=[table]),
        Media(step=1, time=T0, name="movie", type="video", items=[movie]),
        ArtifactRecord(step=1, time=T0, name="ckpt", type="model", files=[ArtifactFile(path="ckpt.pt", size=3)]),
    ]
    Driver(TensorboardTracker, info).deliver(stream(records))
    directory = tmp_path / "run/tensorboard/baseline"
    found = accumulator(directory)
    pictures = found.Tensors("pictures")[0].tensor_proto.string_val
    assert [pictures[0], pictures[1]] == [b"4", b"3"]
    assert all(picture.startswith(b"\x89PNG") for picture in pictures[2:4])
    assert len(pictures) == 4
    assert found.Tensors("sound")[0].tensor_proto.string_val[0].startswith(b"RIFF")
    assert list(found.Tensors("weights")[0].tensor_proto.double_val) == [0, 1, 3, 1, 2, 4]
    shown = strings(directory, "samples")[0]
    assert "&lt;script&gt;" in shown
    assert "&#124;" in shown
    assert "media/d.mp4" in strings(directory, "movie")[0]
    assert "ckpt.pt" in about(directory)["artifact"]
    plugins = {tag: found.SummaryMetadata(tag).plugin_data.plugin_name for tag in ("pictures", "sound", "weights")}
    assert plugins == {"pictures": "images", "sound": "audio", "weights": "histograms"}


def test_record_with_a_lost_file_is_rejected_and_leaves_no_trace(tmp_path: Path) -> None:
    """A medium whose file is gone rejects its batch, and the others of that batch can come again."""
    run = driver(tmp_path)
    good = Metrics(step=1, time=T0, values={"a": 1.0})
    lost = Media(step=1, time=T0, name="p", type="image", items=[MediaFile(format="png", file="media/no.png")])
    records = stream([good, lost])
    run.open()
    with pytest.raises(Rejected, match=r"no\.png"):
        run.write(records)
    run.write(records[:1])
    run.close()
    assert len(scalars(tmp_path / "run/tensorboard/baseline")["a"]) == 1


def test_one_name_for_two_kinds_of_data_stays_visible(tmp_path: Path) -> None:
    """TensorBoard shows one kind under a tag, so the second kind of a name gets a tag of its own."""
    run = driver(tmp_path)
    run.deliver(stream([Metrics(step=1, time=T0, values={"a": 1}), Text(step=1, time=T0, values={"a": "words"})]))
    assert strings(tmp_path / "run/tensorboard/baseline", "a/text") == ["words"]
    assert scalars(tmp_path / "run/tensorboard/baseline")["a"] == [(1, 1.0, T0)]


@pytest.mark.parametrize("turn", [(0, 1, 0, 1), (1, 0, 1, 0), (0, 1, 1, 0)], ids=["scalar", "text", "mixed"])
def test_two_kinds_of_a_name_keep_their_tags_in_a_new_process(turn: tuple[int, ...], tmp_path: Path) -> None:
    """The kind that a new process met first took the name's own tag: half of the curve lay in a text's tag."""
    records = stream([
        Text(step=step, time=T0, values={"a": f"{step}"}) if kind else Metrics(step=step, time=T0, values={"a": step})
        for step, kind in enumerate(turn)
    ])  # fmt: skip
    run = driver(tmp_path)
    for end in range(1, len(records) + 1):
        run.open()
        run.write(records[:end])
    run.close()
    place = tmp_path / "run/tensorboard/baseline"
    scalar, text = ("a", "a/text") if not turn[0] else ("a/scalar", "a")
    assert [point[0] for point in scalars(place)[scalar]] == [step for step, kind in enumerate(turn) if not kind]
    assert strings(place, text) == [str(step) for step, kind in enumerate(turn) if kind]


def test_repeated_batch_changes_nothing(tmp_path: Path) -> None:
    """A batch that comes again, whole or overlapping, is ignored within a process."""
    records = training(50)
    run, plain = driver(tmp_path / "a"), driver(tmp_path / "b")
    plain.deliver(records)
    run.open()
    run.write(records[:30], commit=False)
    run.write(records[:20], commit=False)
    run.write(records)
    run.close()
    assert content(tmp_path / "a/run/tensorboard/baseline") == content(tmp_path / "b/run/tensorboard/baseline")


def test_kill_before_the_commit_leaves_no_double(tmp_path: Path) -> None:
    """What was written behind the committed length is cut off, and the file ends byte for byte as without a kill."""
    records = training(50)
    run, plain = driver(tmp_path / "a"), driver(tmp_path / "b")
    plain.deliver(records)
    for stop in (10, 11, 30, len(records)):
        run.open()
        run.write(records[:stop], batch=7)
        run.write(records[: stop + 15], commit=False)
        torn = next((tmp_path / "a/run/tensorboard/baseline").iterdir())
        torn.write_bytes(torn.read_bytes()[:-3])
    run.deliver(records)
    assert content(tmp_path / "a/run/tensorboard/baseline") == content(tmp_path / "b/run/tensorboard/baseline")


def test_run_that_goes_on_after_its_end_has_one_end(tmp_path: Path) -> None:
    """A resumed run gets a second file, one status and one set of results; ending twice alike writes nothing."""
    records = [*training(10, finish=False), *stream([Summary(time=T0, values={"best": 1.0})], first_seq=13)]
    run = driver(tmp_path)
    run.deliver(records, status=Status("crashed", None, T0 + 5))
    directory = tmp_path / "run/tensorboard/baseline"
    before = content(directory)
    run.deliver(records, status=Status("crashed", None, T0 + 5))
    assert content(directory) == before
    more = stream([Start(time=T0 + 6, attempt=2), Metrics(step=10, time=T0 + 7, values={"metric_0": 10})], first_seq=14)
    run.deliver([*records, *more])
    assert len(content(directory)) == 2
    texts = [
        text.decode()
        for event in accumulator(directory).Tensors("trackers/run")
        for text in event.tensor_proto.string_val
    ]
    assert [text for text in texts if "status" in text.split("\n")[0]] == ["#### status\n\nfinished (exit code 0)"]
    found = scalars(directory)
    assert read_tensorboard(run.info).summary == {"final/best": 1.0}
    assert [step for step, _, _ in found["metric_0"]] == list(range(11))


@pytest.mark.slow
def test_older_state_leaves_nothing_double(tmp_path: Path) -> None:
    """Whichever committed state comes back, of before an end or behind it, the files are those that it leads to."""
    first = training(10, finish=False)
    seq = first[-1].seq
    parts, ends = (
        [first],
        [Status("crashed", None, T0 + 5), Status("failed", 1, T0 + 9), Status("finished", 0, T0 + 14)],
    )
    for attempt in (2, 3):
        start = Start(time=T0 + 4 * attempt, attempt=attempt)
        values = [Metrics(step=10 * attempt + n, time=start.time + n / 10, values={"metric_0": n}) for n in range(8)]
        parts.append(stream([start, *values], first_seq=seq + 1))
        seq = parts[-1][-1].seq
    run, states, records = driver(tmp_path), [], []
    for part, end in zip(parts, ends, strict=True):
        records += part
        run.open()
        for stop in range(5, len(records) + 5, 5):
            run.write(records[:stop])
            states.append((run.cursor, copy.deepcopy(dict(run.state))))
        run.close(end)
        states.append((run.cursor, copy.deepcopy(dict(run.state))))
    directory = tmp_path / "run/tensorboard/baseline"
    expected = points(directory, "metric_0")
    assert len(content(directory)) == 3
    for cursor, state in states:
        run.cursor = cursor
        run.state.clear()
        run.state.update(copy.deepcopy(state))
        run.deliver(records)
        assert points(directory, "metric_0") == expected, cursor


def test_pause_writes_no_end(tmp_path: Path) -> None:
    """A delivery that ends while the run goes on writes neither results nor a status, and goes on in its file."""
    records = training(10)
    run = driver(tmp_path)
    run.open()
    run.write(records[:5])
    run.close(Status("running"))
    assert "status" not in about(tmp_path / "run/tensorboard/baseline")
    run.deliver(records)
    assert len(content(tmp_path / "run/tensorboard/baseline")) == 1


@pytest.mark.parametrize("damage", ["gone", "short"])
def test_damaged_file_is_written_anew(tmp_path: Path, damage: str) -> None:
    """A file that someone deleted or shortened is rebuilt from the first record."""
    records = training(50)
    run = driver(tmp_path)
    run.deliver(records)
    directory = tmp_path / "run/tensorboard/baseline"
    before = content(directory)
    (path,) = directory.iterdir()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:100])
    run.deliver(records)
    assert content(directory) == before


def test_log_directory_holds_runs_apart(tmp_path: Path) -> None:
    """With TENSORBOARD_DIR two runs of one name lie side by side, under names that people know."""
    logdir = tmp_path / "tb dir"
    for run_id in ("one", "two"):
        info = run_info(tmp_path / run_id, id=run_id, name="a/b", options={"TENSORBOARD_DIR": str(logdir)})
        run = Driver(TensorboardTracker, info)
        run.deliver(training(3))
        assert run.state["url"] == f"tensorboard --logdir '{logdir}/digits'"
    assert sorted(p.name for p in (logdir / "digits").iterdir()) == ["a_b", "a_b-two"]
    assert len(scalars(logdir / "digits/a_b-two")["metric_0"]) == 3


def test_check_refuses_a_file_as_directory(tmp_path: Path) -> None:
    """A log directory that can't be made is said before the first step."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="not a directory"):
        TensorboardTracker.check({"TENSORBOARD_DIR": str(tmp_path / "file/below")})


@pytest.mark.slow
def test_neither_tensorflow_nor_torch_is_imported(tmp_path: Path) -> None:
    """A whole delivery in a fresh process loads neither TensorFlow nor torch, not even indirectly."""
    code = (
        "import sys; from pathlib import Path; from tests.helpers import *\n"
        "from trackers.backends.tensorboard.tracker import TensorboardTracker\n"
        "assert not any(m.split('.')[0] in ('tensorboard', 'numpy', 'google') for m in sys.modules)\n"
        f"Driver(TensorboardTracker, run_info(Path({str(tmp_path / 'run')!r}))).deliver(training(3))\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'tensorflow', 'torch', 'numpy', 'tensorboardX'}))"
    )
    root = ROOT
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(0, 20))
@settings(deadline=None, max_examples=100)
def test_frames_come_back_up_to_a_torn_tail(records: list[bytes], torn: int) -> None:
    """Framed records read back as they were; a torn tail costs the last ones only, and never raises."""
    framer = TFRecordFramer()
    data = b"".join(framer.frame(record) for record in records)
    assert list(unframe(data)) == records
    kept = list(unframe(data[: max(0, len(data) - torn)]))
    assert kept == records[: len(kept)]


@pytest.mark.slow
@given(st.binary(max_size=200))
@settings(deadline=None)
def test_checksum_is_tensorboards(data: bytes) -> None:
    """Our CRC-32C equals the one in TensorBoard's own reader."""
    from tensorboard.compat.tensorflow_stub import pywrap_tensorflow

    assert crc32c(data) == pywrap_tensorflow.crc32c(data)


def test_frame_with_a_flipped_bit_is_noticed() -> None:
    """A changed byte in a complete record is an error, not data."""
    data = bytearray(TFRecordFramer().frame(b"hello"))
    data[14] ^= 1
    with pytest.raises(ValueError, match="corrupt"):
        list(unframe(bytes(data)))


def test_status_of_a_run_that_never_logged(tmp_path: Path) -> None:
    """An empty run still gets a file that loads, with its status."""
    info: RunInfo = run_info(tmp_path / "run")
    Driver(TensorboardTracker, info).deliver(stream([Finish(time=T0, status="crashed")]), status=Status("crashed"))
    assert about(tmp_path / "run/tensorboard/baseline")["status"] == "crashed"
    assert isinstance(events(tmp_path / "run/tensorboard/baseline")[0].wall_time, float)


def test_every_event_is_framed_soundly(tmp_path: Path) -> None:
    """TensorBoard's directory loader reads as many events as our own reader, the version first."""
    run = driver(tmp_path)
    run.deliver(training(20))
    (path,) = (tmp_path / "run/tensorboard/baseline").iterdir()
    found = events(tmp_path / "run/tensorboard/baseline")
    assert len(found) == len(list(unframe(path.read_bytes())))
    assert found[0].file_version == "brain.Event:2"
    records: list[Record] = training(20)
    assert len(found) == len(records) + 1  # version and tail come, the Finish record has no event


def test_configuration_keeps_what_unicode_calls_the_end_of_a_line(tmp_path: Path) -> None:
    """The block of JSON was broken there, and the whole configuration couldn't be read any more."""
    info = run_info(tmp_path / "run")
    values = {"text": "a\u2028b\u2029c\x85d\x0be\x1cf\r\ng", "\u2028": {"n": [1]}}
    Driver(TensorboardTracker, info).deliver(stream([Start(time=T0, rank=0), Config(time=T0, values=values)]))
    assert read_tensorboard(info).config == values


def test_streams_beside_training_begin_no_session(tmp_path: Path) -> None:
    """One START for each attempt, at its first step: a loader may forget what lies at and above a later one's."""
    info = run_info(tmp_path / "run")
    records = [
        Start(time=T0, rank=0),
        Config(time=T0, values={"lr": 0.5}),
        Start(time=T0 + 0.1),
        Metrics(time=T0 + 1, step=0, values={"loss": 1.0}),
        Start(time=T0 + 1.5),
        Metrics(time=T0 + 2, step=1, values={"loss": 0.5}),
        Start(time=T0 + 3, rank=0, attempt=2),
        Start(time=T0 + 3.1, attempt=2),
        Metrics(time=T0 + 4, step=2, values={"loss": 0.25}),
    ]
    Driver(TensorboardTracker, info).deliver(stream(records))
    stored = read_tensorboard(info)
    assert stored.config == {"lr": 0.5}
    assert [point.step for point in stored.metrics["loss"]] == [0, 1, 2]
    found = events(info.path("tensorboard/baseline"))
    assert [event.step for event in found if event.session_log.status == event.session_log.START] == [0, 2]
