"""Comet's own client takes the archive that the tracker wrote, and would upload all of it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from comet_ml import utils
from comet_ml.offline import OfflineSender
from trackers_comet.tracker import CometTracker

from tests.helpers import T0, Driver, run_info, stream
from trackers.records import Alert, Config, Media, MediaFile, Metrics, Record, Start, Summary, Text
from trackers.testing.checks import LONG_CONFIG, metric_names, one_of_each
from trackers.tracker import Status


class Sent:
    """What ``comet upload`` would send: the client's own messages, each checked by its own schema."""

    def __init__(self, directory: Path) -> None:
        self.metrics: list[Any] = []
        self.parameters: dict[str, Any] = {}
        self.others: dict[str, Any] = {}
        self.files: list[Any] = []
        self.lines: list[Any] = []
        self.tags: list[str] = []
        connection = mock.MagicMock()
        connection.log_metrics_batch.side_effect = lambda items, compress: self.metrics.extend(items)
        connection.log_parameters_batch.side_effect = lambda items, compress: self.parameters.update(
            {item.message.get_param_name(): item.message.param["paramValue"] for item in items}
        )
        connection.add_tags.side_effect = self.tags.extend
        rest = mock.MagicMock()
        rest.log_experiment_other.side_effect = lambda **given: self.others.update({given["key"]: given["value"]})
        manager = mock.MagicMock()
        manager.upload_file_thread.side_effect = lambda options: self.files.append(options)
        connection.send_stdout_batch.side_effect = lambda **given: self.lines.extend(given["batch_items"])
        with mock.patch("comet_ml.offline.FileUploadManager", return_value=manager):
            sender = OfflineSender(
                "k" * 32,
                str(directory),
                connection=connection,
                rest_api_client=rest,
                raise_validation_error_for_tests=True,
            )
            sender.send()
        self.experiment, self.created = sender.experiment_id, connection.add_run.call_args
        self.errors = [call.kwargs for call in rest.update_experiment_error_status.call_args_list]
        self.times = connection.offline_experiment_start_end_time.call_args


@pytest.fixture
def sent(tmp_path: Path) -> Sent:
    """The upload of a run with everything in it."""
    info = run_info(tmp_path / "run", notes="why", group="ablation")
    clip = MediaFile(format="mp4", file="media/weights.bin")
    records: list[Record] = [
        *one_of_each(tmp_path / "run"),
        Config(time=T0, values={**LONG_CONFIG, "lr": 0.002}),
        *(Metrics(step=step, time=T0 + step, values={"a": step, "b": float("nan")}) for step in range(5)),
        Text(step=4, time=T0, values={"note": "gone"}),
        Metrics(time=T0, values={"system.cpu": 7.0}),
        Start(time=T0, attempt=2, from_step=2),
        Metrics(step=3, time=T0 + 3, values={"a": True, **dict.fromkeys((*metric_names(), "a\nb"), 0.5)}),
        Media(step=3, time=T0, name="clip", type="video", items=[clip]),
        Alert(time=T0, title="diverged", level="ERROR"),
        Summary(time=T0, values={"best": 0.5, "word": "x"}),
    ]
    Driver(CometTracker, info).deliver(stream(records), status=Status("failed", 3, T0 + 9, "out of memory"))
    (archive,) = (tmp_path / "run/comet").glob("*.zip")
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(tmp_path / "unpacked")
    assert utils.is_valid_experiment_key(archive.stem)
    return Sent(tmp_path / "unpacked")


def test_client_takes_each_message(sent: Sent) -> None:
    """Values, parameters, files, the log, tags and the end are what was logged, and no message is refused."""
    metrics = [(item.message.metric["metricName"], item.message.metric["step"]) for item in sent.metrics]
    assert [step for name, step in metrics if name == "a"] == [0, 1, 2, 3]
    assert {"sys.cpu", "final/best", "a b", *metric_names()} <= {name for name, _ in metrics}
    assert sent.parameters["lr"] == 0.002
    assert sent.parameters["model|block|attention|heads"] == 8
    assert {"Name": "baseline", "Notes": "why", "Group": "ablation", "final/word": "x"}.items() <= sent.others.items()
    kinds = [(file.upload_type, file.additional_params["step"]) for file in sent.files]
    assert kinds.count(("text-sample", 9)) == 0  # taken back by the rewind
    assert ("video", 3) in kinds
    assert ("model-element", None) not in kinds
    assert sent.tags == ["first", "third"]
    assert [error["error_value"] for error in sent.errors] == ["failed (exit code 3): out of memory"]
