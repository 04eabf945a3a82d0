"""Finding a run in MLflow, or creating it: once, whoever asks and however often."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import time
from typing import Any

from trackers.backends.mlflow.client import milliseconds
from trackers.backends.mlflow.store import first_moment
from trackers.errors import Refused
from trackers.support.failpoints import failpoint
from trackers.tracker import RunInfo

RUN_TAG = "trackers.run_id"
"""Our id of a run. A run that was created just before a kill is found by it."""

GROUP_TAG = "trackers.group_key"
"""On the parent of a group's runs: the digest of the group's name, for a search has no escape for quotes."""

PARENT_NOTE = "Holds the runs of one group together. It has no metrics of its own: compare the runs below it."
"""Description shown for a group's parent run."""

_TAG_LENGTH = 8000


def find_or_create(client: Any, uri: str, info: RunInfo, native_id: str | None) -> Any:
    """The run in MLflow (``mlflow.entities.Run``).

    Args:
        native_id: its id there, as far as we know.

    Raises:
        Refused: the run or its experiment was deleted there.
    """
    from mlflow.exceptions import MlflowException

    if native_id:
        try:
            known = client.get_run(str(native_id))
            if known.data.tags.get(RUN_TAG) == info.id:  # a state may name any run, another's too
                return _alive(known)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
    with first_moment(uri):
        experiment = _experiment(client, info)
        found = _search(client, experiment, RUN_TAG, info.id)
        if found:
            return _alive(found[0])
        tags = _tags(info)
        if info.group and _truth(info.option("MLFLOW_NESTED", False)):
            tags["mlflow.parentRunId"] = _parent(client, experiment, info)
        start = milliseconds(info.created or time.time())
        failpoint("mlflow.create.before")
        created = client.create_run(experiment, start_time=start, tags=tags, run_name=info.name)
        failpoint("mlflow.create.after")
        return created


def _experiment(client: Any, info: RunInfo) -> str:
    from mlflow.exceptions import MlflowException

    name = str(info.option("MLFLOW_EXPERIMENT") or os.environ.get("MLFLOW_EXPERIMENT_NAME") or info.project)[:500]
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return str(client.create_experiment(name))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            experiment = client.get_experiment_by_name(name)
    if experiment.lifecycle_stage != "active":
        raise Refused(
            f"experiment {name!r} was deleted in MLflow: mlflow experiments restore -x {experiment.experiment_id}"
        )
    return str(experiment.experiment_id)


def _parent(client: Any, experiment: str, info: RunInfo) -> str:
    """The run that stands for a group. Of several made at the same moment the oldest is it."""
    group = str(info.group)
    key = hashlib.sha256(group.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    found = _search(client, experiment, GROUP_TAG, key)
    if not found:
        tags = {
            GROUP_TAG: key,
            "trackers.group": group[:_TAG_LENGTH],
            "mlflow.note.content": PARENT_NOTE,
            **_source(info),
        }
        now = milliseconds(time.time())
        made = client.create_run(experiment, start_time=now, tags=tags, run_name=group)
        # It only holds the others together, so it is never left running.
        client.set_terminated(made.info.run_id, "FINISHED", now)
        found = _search(client, experiment, GROUP_TAG, key) or [made]
        if found[0].info.run_id != made.info.run_id:
            client.delete_run(made.info.run_id)
    return str(found[0].info.run_id)


def _search(client: Any, experiment: str, tag: str, value: str) -> list[Any]:
    """Runs with a tag, deleted ones last, the oldest first. The value has no quotes."""
    runs = client.search_runs(
        [experiment], f"tags.`{tag}` = '{value}'", run_view_type=3, max_results=100
    )  # 3: ViewType.ALL
    return sorted(
        (run for run in runs if tag != GROUP_TAG or run.info.lifecycle_stage == "active"),
        key=lambda run: (run.info.lifecycle_stage != "active", run.info.start_time, run.info.run_id),
    )


def _alive(run: Any) -> Any:
    if run.info.lifecycle_stage != "active":
        raise Refused(f"the run was deleted in MLflow: mlflow runs restore --run-id {run.info.run_id}")
    return run


def _tags(info: RunInfo) -> dict[str, str]:
    tags = {**given_tags(info.option("MLFLOW_TAGS")), RUN_TAG: info.id, "trackers.status": "running", **_source(info)}
    if info.tags:
        tags["tags"] = ",".join(info.tags)
        tags["trackers.tags"] = json.dumps(info.tags)
    if info.group:
        tags["group"] = info.group
    if info.job_type:
        tags["job_type"] = info.job_type
    if info.notes:
        tags["mlflow.note.content"] = info.notes
    if info.argv:
        tags["trackers.command"] = shlex.join(info.argv)
    if info.host:
        tags["trackers.host"] = info.host
    return {name: value[:_TAG_LENGTH] for name, value in tags.items()}


def given_tags(text: Any) -> dict[str, str]:
    """``MLFLOW_TAGS``: "key=value" pairs with commas between, or a JSON object, for values that have commas."""
    plain = str(text or "").strip()
    if plain.startswith("{"):
        try:
            return {str(key): str(value) for key, value in json.loads(plain).items()}
        except (ValueError, RecursionError):
            pass  # no JSON: as it reads
    pairs = (pair.partition("=") for pair in plain.split(",") if pair.strip())
    return {key.strip(): value.strip() for key, _, value in pairs if key.strip()}


def _source(info: RunInfo) -> dict[str, str]:
    """MLflow's own tags for where a run came from: the training script, not who delivers it."""
    tags = {"mlflow.source.type": "LOCAL", "mlflow.source.name": info.program, "mlflow.user": info.user}
    for tag, field in (("commit", "commit"), ("branch", "branch"), ("repoURL", "remote")):
        tags[f"mlflow.source.git.{tag}"] = str(info.git.get(field) or "")
    return {name: value for name, value in tags.items() if value}


def _truth(value: Any) -> bool:
    return str(value).lower() not in ("n", "no", "false", "0", "off")
