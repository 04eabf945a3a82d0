"""What MLflow shows of a run's models and data: artifacts of type "model" as its logged models, with the metrics that
the run had then, at that step; "dataset" artifacts, and what ``use_artifact`` names, as dataset inputs.

A logged model has no second copy of the files: it says where they lie in the run. It is told by its tag, so that a
record that comes again makes none. A store without logged models (files, MLflow 2) costs one line.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trackers.backends.mlflow.artifacts import ArtifactStore
from trackers.backends.mlflow.model_registry import ModelRegistry
from trackers.errors import DeliveryError, Unavailable
from trackers.records import SUMMARY_PREFIX, ArtifactRecord, flatten, name_floats
from trackers.support.failpoints import failpoint

RECORD_TAG = "trackers.record"
"""Tag of a logged model: the record that it was made of."""
FILES_TAG = "trackers.files"
"""Tag of a logged model: where its files lie, ``runs:/…``."""
CONTEXT_TAG = "mlflow.data.context"
"""mlflow/utils/mlflow_tags.py: MLFLOW_DATASET_CONTEXT."""
NAME_LENGTH, PARAM_LENGTH = 500, 500
"""mlflow/utils/validation.py: MAX_DATASET_NAME_SIZE; a logged model's params."""
DIGEST_LENGTH = 8
"""mlflow/data/digest_utils.py: of its own datasets; its pages show it beside the name. The validation takes 36."""
SOURCE_TAGS = ("mlflow.source.name", "mlflow.source.type", "mlflow.user")
"""mlflow/utils/mlflow_tags.py: what MLflow shows of where a model was logged."""
SOURCES = ("s3", "gs", "wasbs", "abfss", "hdfs", "ftp", "sftp", "http")
"""mlflow/data/dataset_source_registry.py: schemes of addresses that are types of sources, too."""
MOST = 1000
"""Metrics of one model, and datasets or params in one request."""

_NOT_IN_NAMES = str.maketrans(dict.fromkeys("/:.%\"'", "-"))
"""mlflow/utils/validation.py: _validate_logged_model_name."""

_logger = logging.getLogger("trackers.mlflow")


class Newest(NamedTuple):
    """The newest value of a metric. time: Unix milliseconds."""

    value: float
    time: int
    step: int


class Lineage:
    """The models and data of one run.

    Args:
        client: an ``MlflowClient``. run: MLflow's, as it was when it was opened. project: of its artifacts' versions.
        models: where versions of its models are registered, too.
    """

    def __init__(self, client: Any, run: Any, files: ArtifactStore, project: str, models: ModelRegistry | None) -> None:
        self._client, self._files, self._project, self._registry = client, files, project, models
        self._run_id, self._experiment = run.info.run_id, run.info.experiment_id
        self._source = {name: run.data.tags[name] for name in SOURCE_TAGS if name in run.data.tags}
        self._newest: dict[str, Newest] = {}
        for metric in run.data._metric_objs:
            self.see(metric.key, metric.value, metric.timestamp, metric.step)
        self._models: list[tuple[ArtifactRecord, str, dict[str, Newest]]] = []
        self._datasets: list[Any] = []
        self._without: set[str] = set()

    def clear(self) -> None:
        """Forget what waits."""
        self._models, self._datasets = [], []

    def see(self, key: str, value: float, time: int, step: int) -> None:
        """Note a metric's newest value, in the order of the records."""
        if not key.startswith(("system/", SUMMARY_PREFIX)):
            self._newest[key] = Newest(value, time, step)

    def model(self, record: ArtifactRecord, folder: str) -> None:
        """Have an artifact become a logged model. folder: of its files, in the run's artifacts."""
        self._models.append((record, folder, dict(list(self._newest.items())[:MOST])))

    def dataset(self, record: ArtifactRecord, folder: str) -> None:
        """Have an artifact become a dataset of the run."""
        known = f"{self._project}/{record.name}:v{record.version}"  # as runs that use it name it: one dataset for all
        if record.version is None:
            known = "".join(sorted(f"{file.path}:{file.digest or file.uri}:{file.size};" for file in record.files))
        addresses = {file.uri for file in record.files if file.uri}
        uri = addresses.pop() if len(addresses) == 1 else f"runs:/{self._run_id}/{folder}"
        profile = {"files": len(record.files), "bytes": sum(file.size for file in record.files), **record.metadata}
        self._add_dataset(record.name, known, uri, profile, "training")

    def used(self, versions: Mapping[str, Any]) -> None:
        """Have versions of artifacts that the run used become datasets of it."""
        for alias, version in versions.items():
            named = str(version).rpartition("/")[2].partition(":")[0] or str(alias)  # of ``project/name:v3``
            self._add_dataset(named, str(version), "", {"version": str(version)}, "used")

    def _add_dataset(self, name: str, content: str, uri: str, profile: dict[str, Any], context: str) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        digest = hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()[:DIGEST_LENGTH]
        described = json.dumps(name_floats(profile), ensure_ascii=False, default=str)[:10_000]
        scheme = uri.partition(":")[0].lower().replace("https", "http")
        kind = "code" if not uri else scheme if scheme in SOURCES else "local"
        source = json.dumps({"tags": self._source} if kind == "code" else {"url" if kind == "http" else "uri": uri})
        data = Dataset(name[:NAME_LENGTH] or "dataset", digest, kind, source, profile=described)
        self._datasets.append(DatasetInput(data, [InputTag(CONTEXT_TAG, context)]))

    def send(self) -> None:
        """Send what waits, after the metrics that came before.

        Raises:
            Unavailable: the store doesn't answer; it is tried again.
        """
        datasets, self._datasets = self._datasets, []
        models, self._models = self._models, []
        if datasets:
            self._try("dataset inputs", lambda: self._client.log_inputs(self._run_id, datasets))
        for record, folder, newest in models:
            model_id = self._try("logged models", functools.partial(self._log_model, record, folder, newest))
            if self._registry is not None and record.versioned:
                register = functools.partial(self._registry.register, record, folder, model_id)
                self._try(f"registered version of {record.name!r}", register)

    def _try(self, what: str, call: Callable[[], Any]) -> str:
        """Returns a logged model's id; "" for all else, and where the store has none."""
        from trackers.backends.mlflow.store import translated

        if what in self._without:
            return ""
        try:
            with translated("MLflow"):
                return call() or ""
        except (AttributeError, NotImplementedError):
            self._lack(what, "this release of MLflow has none")
        except Unavailable as error:
            if "404" not in str(error):  # a server of an earlier release has no such address
                raise
            self._lack(what, str(error))
        except DeliveryError as error:
            self._lack(what, str(error))
        return ""

    def _lack(self, what: str, why: str) -> None:
        self._without.add(what)
        _logger.warning("MLflow shows no %s of this run (%s): the files are in the run", what, why)

    def _log_model(self, record: ArtifactRecord, folder: str, newest: dict[str, Newest]) -> str:
        from mlflow import entities

        made_of = entities.LoggedModelOutput  # MLflow 2 has none
        model_id, is_new = self._find_or_create(record, folder)
        at = max(record.step or 0, 0)
        until = round(record.time * 1000)
        metrics = []
        for key, value in newest.items():
            found = value if value.time <= until else self._before(key, until)
            if found is not None and math.isfinite(found.value):
                point = (key, found.value, found.time, found.step)
                metrics.append(entities.Metric(*point, model_id=model_id, run_id=self._run_id))
        if metrics:
            self._client.log_batch(self._run_id, metrics=metrics)
        if is_new:
            self._files.put_model(model_id, folder)
            outputs = self._client.get_run(self._run_id).outputs
            # It refuses one that it has.
            if outputs is None or model_id not in {output.model_id for output in outputs.model_outputs}:
                self._client.log_outputs(self._run_id, [made_of(model_id, at)])
            failpoint("mlflow.model.before")
            self._client.finalize_logged_model(model_id, "READY")
        return model_id

    def _before(self, key: str, until: int) -> Newest | None:
        """The newest value of a metric up to a time, where the run had later ones already when it was opened."""
        history = [point for point in self._client.get_metric_history(self._run_id, key) if point.timestamp <= until]
        last = max(history, key=lambda point: (point.timestamp, point.step), default=None)
        return None if last is None else Newest(last.value, last.timestamp, last.step)

    def _find_or_create(self, record: ArtifactRecord, folder: str) -> tuple[str, bool]:
        """A record's logged model, and whether something of it may lack."""
        known = self._client.search_logged_models(
            [self._experiment], f"tags.`{RECORD_TAG}` = '{self._run_id}:{record.id}'", max_results=1
        )
        if known:
            return known[0].model_id, str(known[0].status) not in ("READY", "LoggedModelStatus.READY")
        params = {
            str(key)[:250]: str(value)[:PARAM_LENGTH] for key, value in list(flatten(dict(record.metadata)))[:100]
        }
        tags = {**self._source, RECORD_TAG: f"{self._run_id}:{record.id}", FILES_TAG: f"runs:/{self._run_id}/{folder}"}
        if record.aliases:
            tags["aliases"] = ", ".join(record.aliases)
        if record.description:
            tags["mlflow.note.content"] = record.description[:8000]
        name = record.name.translate(_NOT_IN_NAMES)[:250] or "model"
        failpoint("mlflow.model.create")
        made = self._client.create_logged_model(
            self._experiment, name, source_run_id=self._run_id, tags=tags, params=params or None, model_type="trackers"
        )
        failpoint("mlflow.model.files")
        return made.model_id, True
