"""MLflow's model registry: artifacts of type "model" as versions of registered models (``MLFLOW_REGISTER_MODELS``).

A version is told by its tag, so that a record that comes again, and the same content logged by another run, make none;
its aliases move. A store without a registry, or one that refuses, costs a line: files and metrics arrive as ever.
"""

from __future__ import annotations

import json
import re
from typing import Any

from trackers.records import ArtifactRecord
from trackers.tracker import RunInfo

TAG = "trackers.artifact"
"""Tag of a model's version: ``project/name:v3``, or the record's id where it has no number."""
VERSIONS_TAG = "mlflow.modelVersions"
"""mlflow/utils/mlflow_tags.py MLFLOW_MODEL_VERSIONS: by which a logged model's page shows its versions."""

_NOT_IN_NAMES = re.compile(r"[/:'\"`\\\x00-\x1f]")
"""mlflow/utils/validation.py: no "/" and ":"; and nothing that a filter would have to quote."""
_ALIAS = re.compile(r"[\w-]{1,255}")
"""mlflow/utils/validation.py _REGISTERED_MODEL_ALIAS_NAME; "latest" and numbers are reserved."""
_RESERVED = re.compile(r"latest|v\d+", re.IGNORECASE)


class ModelRegistry:
    """The models of one run.

    Args:
        client: an ``MlflowClient``. run_id: MLflow's id of the run.
    """

    def __init__(self, client: Any, run_id: str, info: RunInfo) -> None:
        self._client = client
        self._run_id = run_id
        self._project = info.project

    def register(self, record: ArtifactRecord, folder: str, model_id: str) -> None:
        """Make a version of an artifact whose files lie in a folder of the run's artifacts, and move its aliases.

        Args:
            model_id: of the logged model that the version is of; "" where the store has none.
        """
        name = model_name(record.name)
        number = record.version
        tag_value = f"{self._project}/{record.name}:v{number}" if number is not None else record.id
        if not any(model.name == name for model in self._client.search_registered_models(f"name = '{name}'")):
            self._create(name)
        registered = self._client.search_model_versions(f"name = '{name}'", max_results=10_000)
        version = next((entry.version for entry in registered if entry.tags.get(TAG) == tag_value), None)
        if version is None:
            source = f"runs:/{self._run_id}/{folder}"
            # Without the logged model's id: stores don't keep it, and a server wants the files to be below the model.
            made = self._client.create_model_version(
                name, source, self._run_id, tags={TAG: tag_value}, description=record.description
            )
            version = made.version
        if model_id:
            named = {"name": name, "version": str(version)}
            versions = json.loads(self._client.get_logged_model(model_id).tags.get(VERSIONS_TAG, "[]"))
            if named not in versions:
                self._client.set_logged_model_tags(model_id, {VERSIONS_TAG: json.dumps([*versions, named])})
        for alias in record.aliases:
            if _ALIAS.fullmatch(alias) and not _RESERVED.fullmatch(alias):
                self._client.set_registered_model_alias(name, alias, str(version))

    def _create(self, name: str) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self._client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another run was quicker
                raise


def model_name(name: str) -> str:
    """A name as MLflow takes it for a registered model."""
    return _NOT_IN_NAMES.sub("-", name)[:250] or "model"
