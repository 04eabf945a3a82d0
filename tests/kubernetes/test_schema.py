"""The manifests by Kubernetes' published schemas, from the oldest version that has all they use to the newest."""

from __future__ import annotations

from pathlib import Path

import kubernetes_validate
import pytest

from tests.kubernetes.manifests import PATHS, jobs, load

VERSIONS = ("1.29", "1.31", "1.33", "1.35")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_manifest_is_valid(path: Path, version: str) -> None:
    """Strictly: no field that the schema doesn't know."""
    for job in jobs(load(path)):
        kubernetes_validate.validate(job, version, strict=True)


def test_fault_is_found() -> None:
    """The schema does refuse."""
    (job,) = jobs(load(PATHS[0]))
    job["spec"]["restarts"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, VERSIONS[0], strict=True)
