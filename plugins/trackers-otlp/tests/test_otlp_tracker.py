"""Spans and samples at receivers of OTLP: MLflow's own server, and one that answers as it is told."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trackers_otlp.precheck import OtlpPrecheck, endpoint
from trackers_otlp.tracker import OtlpTracker

import trackers
from tests import forked
from tests.fakes import servers
from tests.helpers import T0, Driver, run_info, stream
from trackers.errors import ConfigError, DeliveryError, Refused, Rejected, Unavailable
from trackers.journal.helper_process import command
from trackers.records import Media, MediaFile, Record, Span
from trackers.relay.parts.plans import DeliveryPlan, arguments
from trackers.training.run import Run

SAID = [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]


@pytest.fixture(autouse=True)
def own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of OpenTelemetry's own variables but those that a test sets."""
    for name in ("ENDPOINT", "TRACES_ENDPOINT", "HEADERS", "TRACES_HEADERS", "COMPRESSION", "TIMEOUT"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of OTLP that answers as it is told."""
    found = Receiver()

    class Handler(servers.QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            status, headers, answer = found.answers.pop(0) if found.answers else (200, {}, b"")
            self.send_response(status)
            for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

    with servers.listening(Handler) as found.url:
        yield found


class Receiver:
    """What came, and what is answered: status, headers, body; 200 where nothing is said."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []

    def spans(self, number: int = -1) -> list[Any]:
        """The spans of a request."""
        return [span for scope in self._resource(number).scope_spans for span in scope.spans]

    def resource(self) -> dict[str, str]:
        """The attributes of the last request's resource."""
        return {pair.key: pair.value.string_value for pair in self._resource(-1).resource.attributes}

    def _resource(self, number: int) -> Any:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        (found,) = ExportTraceServiceRequest.FromString(self.requests[number][2]).resource_spans
        return found


def span(number: int = 1, **fields: Any) -> Span:
    values = {"name": "chat", "trace": f"{number:032x}", "span": f"{number:016x}", "time": T0, "began": T0 - 1}
    return Span(**{**values, **fields})


def driver(tmp_path: Path, url: str) -> Driver:
    return Driver(OtlpTracker, run_info(tmp_path / "run", options={"TRACKER_OTLP_ENDPOINT": url}))


def deliver_all(tmp_path: Path, url: str, records: list[Record]) -> Driver:
    run = driver(tmp_path, url)
    run.deliver(stream(records))
    return run


@pytest.mark.processes
def test_spans_and_samples_are_in_mlflow_once_though_deliveries_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's own server takes them over OTLP: trees with inputs, failures and tokens, samples with rewards."""
    from mlflow import MlflowClient

    server = servers.mlflow_server(tmp_path)
    server.start()
    try:
        client = MlflowClient(tracking_uri=server.url)
        experiment = client.create_experiment("received")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-mlflow-experiment-id={experiment}")
        monkeypatch.setenv("TRACKER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")  # on a loaded machine its first answer is late
        monkeypatch.setenv("TRACKER_RELAY", "n")
        run = trackers.init("otlp", project="qa", mode="offline")
        assert isinstance(run, Run)
        with run.span("answer", inputs={"question": "2+2"}, kind="agent") as answer:
            with run.span("model", inputs=SAID[:1], kind="llm") as model:
                model.set({"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 3})
                model.outputs = "4"
            with pytest.raises(ValueError, match="no"), run.span("boom"):
                raise ValueError("no")
            answer.outputs = "4"
        run.log({"score": 1.0}, step=0)
        run.log_samples("rollouts", [{"messages": SAID, "reward": 0.5}, {"messages": None, "reward": 0.0}])
        run.finish()
        words = command(arguments("delivery", Path(run.dir), DeliveryPlan("otlp", os.getpid())))
        paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
        for point in ("otlp.spans.after", "otlp.write.after", "otlp.commit.before"):
            env = {**os.environ, **paths, "TRACKERS_FAILPOINT": f"{point}=kill"}
            assert forked.run(words, env=env).returncode == -signal.SIGKILL, f"{point} isn't passed"
        forked.run(words, env={**os.environ, **paths}, check=True)
        found = {len(trace.data.spans): trace for trace in client.search_traces(locations=[experiment])}
    finally:
        server.stop()
    assert sorted(found) == [1, 3]
    names = {span.name: span for span in found[3].data.spans}
    assert names["model"].parent_id == names["answer"].span_id
    assert names["model"].span_type == "CHAT_MODEL"
    assert found[3].info.token_usage["total_tokens"] == 13
    assert (names["answer"].inputs, names["answer"].outputs) == ({"question": "2+2"}, "4")
    assert (names["boom"].status.status_code.name, names["boom"].events[0].attributes["exception.message"]) == (
        "ERROR", "no",
    )  # fmt: skip
    (sample,) = found[1].data.spans
    assert (sample.name, sample.attributes["reward"], sample.attributes["trackers.step"]) == ("rollouts", 0.5, 0)
    assert sample.inputs == [{"role": "user", "parts": [{"type": "text", "content": "2+2"}]}]
    assert sample.outputs[0]["parts"] == [{"type": "text", "content": "4"}]


def test_request_names_the_run_and_has_the_keys_of_the_environment(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project is the service; keys and compression are OpenTelemetry's own variables."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=secret-one")
    run = deliver_all(tmp_path, f"{receiver.url}/", [span(step=7)])
    ((path, headers, _),) = receiver.requests
    assert (path, headers["x-api-key"], headers["content-type"]) == (
        "/v1/traces", "secret-one", "application/x-protobuf",
    )  # fmt: skip
    said = receiver.resource()
    assert (said["service.name"], said["trackers.run.name"]) == ("digits", "baseline")
    (sent,) = receiver.spans()
    assert (sent.trace_id.hex(), sent.span_id.hex()) == (f"{1:032x}", f"{1:016x}")
    assert (sent.start_time_unix_nano, sent.end_time_unix_nano) == (round((T0 - 1) * 1e9), round(T0 * 1e9))
    assert "secret-one" not in json.dumps(run.state)
    assert run.state["url"] == f"{receiver.url}/v1/traces"


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (401, Refused, "OTEL_EXPORTER_OTLP_HEADERS"),
        (403, Refused, "OTEL_EXPORTER_OTLP_HEADERS"),
        (404, Refused, "TRACKER_OTLP_ENDPOINT"),
        (400, Rejected, "answered 400"),
        (413, Rejected, "answered 413"),
        (500, Unavailable, "answered"),
        (429, Unavailable, "answered"),
    ],
)
def test_answer_says_what_becomes_of_spans(
    receiver: Receiver, tmp_path: Path, status: int, error: type[DeliveryError], words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What can't be taken is set aside, what needs somebody's hand is said, all else is tried again."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")  # else the exporter tries for 10 s itself
    receiver.answers = [(status, {}, b"why")] * 9
    run = driver(tmp_path, receiver.url)
    run.open()
    with pytest.raises(error, match=words):
        run.write(stream([span()]))
    assert run.tracker is not None
    assert (run.tracker.limited(), run.tracker.limited()) == (status == 429, False)
    receiver.answers = []
    run.write(stream([span()]))
    assert len(receiver.spans()) == 1


def test_no_answer_is_tried_again(tmp_path: Path) -> None:
    """Nothing listens there."""
    run = driver(tmp_path, f"http://127.0.0.1:{servers.free_port()}")
    run.open()
    with pytest.raises(Unavailable, match="no answer from http://127"):
        run.write(stream([span()]))


def test_redirect_takes_no_keys_elsewhere(receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends spans elsewhere is refused; nothing goes to the other address."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=secret-one")
    for status in (301, 302, 303, 307, 308):
        receiver.answers.append((status, {"Location": f"{receiver.url}/elsewhere"}, b""))
        run = driver(tmp_path, receiver.url)
        run.open()
        with pytest.raises(Refused, match="elsewhere"):
            run.write(stream([span()]))
    assert {path for path, _, _ in receiver.requests} == {"/v1/traces"}


def test_rejected_spans_are_counted(receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A part of a request is said in one line; where all of it was rejected, the records are set aside."""
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

    def answer(count: int) -> tuple[int, dict[str, str], bytes]:
        part = trace_service_pb2.ExportTracePartialSuccess(rejected_spans=count, error_message="too old")
        return 200, {}, trace_service_pb2.ExportTraceServiceResponse(partial_success=part).SerializeToString()

    receiver.answers = [answer(1), answer(2)]
    run = driver(tmp_path, receiver.url)
    run.open()
    with caplog.at_level(logging.WARNING, "trackers.otlp"):
        run.write(stream([span(1), span(2)]))
    assert "rejected 1 of 2 spans (too old)" in caplog.text
    with pytest.raises(Rejected, match="too old"):
        run.write(stream([span(1), span(2), span(3), span(4)])[2:])


def test_span_without_ids_is_set_aside(receiver: Receiver, tmp_path: Path) -> None:
    """Ids that aren't OpenTelemetry's, and what is longer than any receiver takes."""
    run = driver(tmp_path, receiver.url)
    run.open()
    for wrong in (span(trace="0" * 32), span(span="xyz"), span(parent="1"), span(inputs="x" * (65 << 20))):
        with pytest.raises(Rejected):
            run.write(stream([wrong]))
    assert receiver.requests == []


def test_long_samples_are_sent_in_parts(receiver: Receiver, tmp_path: Path) -> None:
    """A table of many conversations becomes requests that receivers take; images and other tables aren't sent."""
    rows = [["q", "x" * 3000, number] for number in range(3000)]
    data = {"columns": ["prompt", "completion", "id"], "rows": rows}
    samples = Media(step=3, time=T0, name="rollouts", type="table",
                    items=[MediaFile(format="json", data=data, meta={"samples": True})])  # fmt: skip
    other = Media(step=3, time=T0, name="rows", type="table", items=[MediaFile(format="json", data=data)])
    deliver_all(tmp_path, receiver.url, [samples, other])
    sent = [span for number in range(len(receiver.requests)) for span in receiver.spans(number)]
    assert len({span.span_id for span in sent}) == len(sent) == 3000
    assert max(len(body) for _, _, body in receiver.requests) < 8 << 20
    assert len(receiver.requests) == 6


@pytest.mark.parametrize(
    ("option", "own", "traces", "found"),
    [
        ("http://a:4318", "http://b", "http://c/x", "http://a:4318/v1/traces"),
        ("http://a:4318/v1/traces/", "", "", "http://a:4318/v1/traces"),
        ("https://a/otlp?k=v", "", "", "https://a/otlp/v1/traces?k=v"),
        ("", "http://b:4318/", "", "http://b:4318/v1/traces"),
        ("", "http://b:4318", "http://c/x", "http://c/x"),
        ("", "", "", "http://localhost:4318/v1/traces"),
    ],
)
def test_endpoint_is_the_option_or_opentelemetrys_own(
    option: str, own: str, traces: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of traces is added, but to the variable that is of traces alone."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", own)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", traces)
    assert endpoint(option) == found
    OtlpPrecheck.check({"TRACKER_OTLP_ENDPOINT": option})


@pytest.mark.parametrize("address", ["localhost:4318", "grpc://a:4317", "http://", "http://me:secret-one@a:4318"])
def test_address_that_is_none_or_holds_a_login_is_refused_by_init(address: str) -> None:
    """Before the first step, in one line that shows no password."""
    with pytest.raises(ConfigError, match="TRACKER_OTLP_ENDPOINT") as error:
        trackers.init("otlp", options={"TRACKER_OTLP_ENDPOINT": address})
    assert "secret-one" not in str(error.value)
    assert "\n" not in str(error.value)
    assert not Path("runs").exists()
