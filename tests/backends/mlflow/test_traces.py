"""Spans as MLflow's traces, in its own SQLite store, read back with its client: once, whatever is killed."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import trackers
from tests.chaos import prepared
from tests.chaos.prepared import Journal, deliver
from tests.fakes import servers
from tests.stores import mlflow_tables
from trackers.backends.mlflow import traces
from trackers.backends.mlflow.traces import Traces
from trackers.readers.mlflow import reader
from trackers.readers.mlflow.traces import traces as read_traces
from trackers.records import Span
from trackers.training.run import Run

__all__ = ["mlflow_tables"]


@pytest.fixture(params=["sqlite", pytest.param("server on PostgreSQL", marks=pytest.mark.slow)])
def uri(
    request: pytest.FixtureRequest, tmp_path: Path, mlflow_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A database, or a server over HTTP."""
    from mlflow.store.tracking.abstract_store import AbstractStore

    if not hasattr(AbstractStore, "log_spans"):
        pytest.skip("needs MLflow's spans: this release has no log_spans")
    with contextlib.ExitStack() as stack:
        if request.param == "sqlite":
            shutil.copyfile(mlflow_tables, tmp_path / "mlflow.db")
            found = f"sqlite:///{tmp_path / 'mlflow.db'}"
        else:
            if servers.postgresql_programs() is None:
                pytest.skip("needs PostgreSQL: no server programs in /usr/lib/postgresql or on PATH")
            server = servers.mlflow_server(tmp_path, stack.enter_context(servers.postgresql()))
            stack.callback(server.stop)
            server.start()
            found = server.url
        monkeypatch.setenv("MLFLOW_TRACKING_URI", found)
        yield found


def stored(uri: str, run_id: str) -> list[Any]:
    """The traces of a run."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiments = [one.experiment_id for one in client.search_experiments()]
    found = list(client.search_traces(locations=experiments, run_id=run_id))
    assert len(list(client.search_traces(locations=experiments))) == len(found)  # no other is there
    assert not [name for trace in found for name in trace.info.tags if name.startswith("service.")]  # OpenTelemetry's
    return sorted(found, key=lambda trace: min(span.start_time_ns for span in trace.data.spans))


@pytest.mark.processes
def test_spans_are_traces_once_though_deliveries_are_killed(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind what was sent and before it is linked to the run, and between sending and commit."""
    from mlflow import MlflowClient

    monkeypatch.setenv("TRACKER_RELAY", "n")
    run = trackers.init(
        "mlflow", project="chaos", id=prepared.ID, mode="offline", dir=str(tmp_path / "train/runs")
    )  # fmt: skip
    assert isinstance(run, Run)
    for number in range(3):
        with run.span("answer", inputs={"question": f"q{number}"}, kind="agent") as answer:
            with run.span("model", kind="llm") as model:
                model.set({"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": number})
                model.outputs = float("nan")
            if number == 2:
                with pytest.raises(ValueError, match="no"), run.span("boom"):
                    raise ValueError("no")
            answer.outputs = "a"
        run.log({"score": number}, step=number)
    said = [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]
    run.log_samples("rollouts", [{"messages": said, "reward": 0.5}, {"messages": None, "reward": 0.0}])
    run.finish()
    journal = Journal(tmp_path / "train")
    for point in ("mlflow.spans.after", "mlflow.write.after", "mlflow.commit.before"):
        assert deliver(journal, "mlflow", failpoint=f"{point}=kill") == -signal.SIGKILL, f"{point} isn't passed"
    assert deliver(journal, "mlflow") == 0, (tmp_path / "train/output.txt").read_text()[-2000:]
    client = MlflowClient(tracking_uri=uri)
    (experiment,) = [one for one in client.search_experiments() if one.name == "chaos"]
    (there,) = client.search_runs([experiment.experiment_id])
    found = stored(uri, there.info.run_id)
    (sample,) = found.pop().data.spans
    assert (sample.name, sample.inputs, sample.outputs) == ("rollouts", {"messages": said[:1]}, said[1:])
    assert (sample.span_type, sample.attributes["reward"]) == ("LLM", 0.5)
    assert [len(trace.data.spans) for trace in found] == [2, 2, 3]
    first, last = found[0], found[2]
    names = {span.name: span for span in last.data.spans}
    assert names["model"].parent_id == names["answer"].span_id
    assert (names["answer"].inputs, names["answer"].outputs) == ({"question": "q2"}, "a")
    assert (names["model"].span_type, names["model"].outputs) == ("LLM", "NaN")
    assert names["boom"].status.status_code.name == "ERROR"
    assert names["boom"].events[0].attributes["exception.message"] == "no"
    assert [trace.info.state.name for trace in found] == ["OK"] * 3
    assert client.load_table(experiment.experiment_id, "tables/rollouts.json")["reward"].tolist() == [0.5, 0.0]
    assert first.info.token_usage == {"input_tokens": 10, "output_tokens": 0, "total_tokens": 10}
    read, written = (trackers.load(source).spans().to_pandas().sort_values("span").reset_index(drop=True)
                     for source in (f"mlflow:{uri}#chaos", str(tmp_path / "train/runs")))  # fmt: skip
    exact = ["trace", "span", "parent", "name", "kind", "step", "status", "error", "inputs", "outputs", "attributes"]
    assert read[exact].to_dict() == written[exact].to_dict()
    assert read[["start", "seconds"]].to_numpy() == pytest.approx(written[["start", "seconds"]].to_numpy(), abs=1e-6)


@pytest.mark.processes
def test_traces_of_mlflows_own_tracing_are_read(tmp_path: Path, uri: str, caplog: pytest.LogCaptureFixture) -> None:
    """Spans that MLflow's client made in a run: its types, failures and tokens by the names that ours have."""
    script = tmp_path / "trace.py"
    script.write_text(TRACED)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = trackers.load(f"mlflow:{uri}#mine")
    spans = {row["name"]: row for row in run.spans().to_pylist()}
    assert sorted(spans) == ["answer", "chat", "fails"]
    chat, failed = spans["chat"], spans["fails"]
    assert (chat["kind"], chat["parent"], chat["trace"]) == ("llm", spans["answer"]["span"], spans["answer"]["trace"])
    assert (spans["answer"]["kind"], spans["answer"]["parent"]) == ("", None)
    assert (json.loads(chat["inputs"]), json.loads(chat["outputs"])) == ({"q": "2+2"}, ["4", 0.5])
    assert json.loads(chat["attributes"])["gen_ai.usage.input_tokens"] == 7
    assert (failed["status"], "no" in failed["error"], failed["trace"] != chat["trace"]) == ("error", True, True)
    assert (chat["step"], chat["seconds"] >= 0, run.run.note) == (None, True, "")


TRACED = """
import mlflow
mlflow.set_experiment("mine")
with mlflow.start_run():
    with mlflow.start_span("answer"):
        with mlflow.start_span("chat", span_type="LLM") as chat:
            chat.set_inputs({"q": "2+2"})
            chat.set_outputs(["4", 0.5])
            chat.set_attribute("mlflow.chat.tokenUsage", {"input_tokens": 7, "output_tokens": 1, "total_tokens": 8})
    try:
        with mlflow.start_span("fails"):
            raise ValueError("no")
    except ValueError:
        pass
    mlflow.log_metric("a", 1.0)
mlflow.flush_trace_async_logging()
"""


def test_store_without_spans_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """What else the run has goes on; the table has the spans."""

    class Store:
        """As MLflow's store of files."""

        def log_spans(self, *given: Any) -> None:
            """It can't."""
            raise NotImplementedError

    class Client:
        """With that store."""

        class _tracking_client:
            store = Store()

    found = Traces(Client(), "0", "r")
    for _ in range(2):
        found.add(Span(time=2.0, began=1.0, name="a", trace="a" * 32, span="b" * 16))
        found.send()
    assert [record.message for record in caplog.records] == [
        "this MLflow store keeps no spans: they are in the table `spans` alone"
    ]


def test_ids_that_are_none_are_left_out() -> None:
    """From a journal that somebody else wrote."""
    found = Traces(type("Client", (), {"_tracking_client": type("T", (), {"store": None})})(), "0", "r")
    for trace, own, parent in (("x", "b" * 16, ""), ("a" * 32, "B" * 16, ""), ("0" * 32, "b" * 16, ""),
                               ("a" * 32, "0" * 16, ""), ("a" * 32, "b" * 16, "c")):  # fmt: skip
        found.add(Span(time=2.0, began=1.0, name="a", trace=trace, span=own, parent=parent))
    found.send()
    assert traces.BATCH <= 100


def test_spans_of_a_file_that_a_server_names_here_arent_read(tmp_path: Path) -> None:
    """A server's answer opens no file of this machine: the trace is left out, and the run says so."""
    (tmp_path / "traces.json").write_text('{"spans": []}')
    info = SimpleNamespace(trace_id="tr-1", tags={"mlflow.artifactLocation": str(tmp_path)})
    trace = SimpleNamespace(info=info)
    client = SimpleNamespace(
        search_traces=lambda locations, run_id, include_spans, max_results, page_token: Page([trace]),
        _tracking_client=SimpleNamespace(store=object()),
    )
    run = SimpleNamespace(info=SimpleNamespace(run_id="r", experiment_id="0"))
    (part,) = read_traces(client, run, "http://127.0.0.1:5000", reader.pages)
    with pytest.raises(ValueError, match="names a directory of this machine"):
        list(part)


class Page(list[Any]):
    """The only page of a list."""

    token = None
