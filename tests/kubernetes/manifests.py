"""The manifests that the documentation shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests import ROOT

PATHS = sorted((ROOT / "examples/kubernetes").glob("*.yaml"))


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def jobs(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The job that it is, or those of a JobSet, as jobs of their own."""
    if manifest["kind"] == "Job":
        yield manifest
    for replicated in manifest["spec"].get("replicatedJobs", []):
        head = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": replicated["name"]}}
        yield {**head, **replicated["template"]}


def containers(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for job in jobs(manifest):
        pod = job["spec"]["template"]["spec"]
        yield from (*pod.get("initContainers", []), *pod["containers"])


def environment(container: dict[str, Any]) -> dict[str, str]:
    """The variables that it gives values for, secrets left out."""
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
