"""Artifact stores that an MLflow server or database may name. Others are refused, to protect local files and logins."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

NAMED = "MLFLOW_ARTIFACT_ROOT"
"""Environment variable by which the user names a store that isn't allowed else: a directory, or how a URI begins."""
_CLOUD = frozenset({"s3", "gs", "r2", "oss", "b2", "dbfs"})
"""Stores whose address is the client's own matter: what MLflow names is a bucket."""
_AZURE = frozenset({"wasb", "wasbs", "abfs", "abfss"})
_AZURE_HOST = re.compile(r"\.core\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net|cloudapi\.de)", re.IGNORECASE)


def refusal(tracking: str, artifacts: str, run_id: str, environ: Mapping[str, str] | None = None) -> str:
    """Why the artifacts of a run aren't touched where its store says they are; "" if they are.

    On this machine's disk a store of a local database is ``…/<run id>/artifacts``, as MLflow makes it. A server names
    no directory of this machine, and no other host: files would be read or written, or a login sent, where only its
    answer says so. What the user names in MLFLOW_ARTIFACT_ROOT is allowed besides.

    Args:
        tracking: the tracking URI. artifacts: the run's artifact URI. run_id: MLflow's id.
    """
    environ = os.environ if environ is None else environ
    parts, own = urlsplit(artifacts), urlsplit(tracking)
    scheme = parts.scheme.lower()
    if _is_named(artifacts, environ.get(NAMED, "")):
        return ""
    folder = local_store(artifacts)
    if folder is not None:
        if own.scheme.lower() in ("http", "https") or tracking.startswith("databricks"):
            server = own.hostname or tracking
            return f"the server at {server} names a directory of this machine, {folder}{_advice(folder)}"
        if not _is_runs(folder, run_id):
            return f"{folder} isn't a run's folder of artifacts, …/{run_id:.60}/artifacts{_advice(folder)}"
        return ""
    if scheme == "mlflow-artifacts":
        return "" if not parts.netloc or _host(parts) == _host(own) else _elsewhere(parts, artifacts)
    if scheme in ("http", "https"):
        same = scheme == own.scheme.lower() and _host(parts) == _host(own)
        return "" if same else _elsewhere(parts, artifacts)
    if scheme in _AZURE:
        return "" if _AZURE_HOST.search(parts.hostname or "") else _elsewhere(parts, artifacts)
    if scheme in _CLOUD:
        return ""
    return f"its store is at {artifacts:.120}, which nobody named here{_advice(artifacts)}"


def local_store(uri: str) -> Path | None:
    """The folder of an artifact store on this machine's disk; None for one elsewhere."""
    parts = urlsplit(uri)
    if parts.scheme.lower() not in ("", "file"):
        return None
    return Path(unquote(parts.path)) if parts.scheme else Path(uri)


def _is_runs(folder: Path, run_id: str) -> bool:
    """Whether this is a folder that MLflow makes for a run, and no link to another one."""
    wanted = (run_id, "artifacts")
    plain = ".." not in folder.parts and re.fullmatch(r"[A-Za-z0-9_-]{1,256}", run_id) is not None
    return plain and folder.parts[-2:] == wanted and Path(os.path.realpath(folder)).parts[-2:] == wanted


def _is_named(artifacts: str, named: str) -> bool:
    for place in filter(None, (piece.strip() for piece in named.split(","))):
        folder, root = local_store(artifacts), local_store(place)
        if folder is not None and root is not None:
            if Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(root.expanduser())):
                return True
        elif root is None and artifacts.startswith(place.rstrip("/") + "/"):
            return True
    return False


def _host(parts: SplitResult) -> tuple[str, int]:
    default = {"http": 80, "https": 443}.get(parts.scheme.lower(), 0)
    try:
        return (parts.hostname or "").lower(), parts.port or default
    except ValueError:
        return "", -1


def _elsewhere(parts: SplitResult, artifacts: str) -> str:
    return (
        f"its store is at another host, {parts.hostname or artifacts:.120}{_advice(f'{parts.scheme}://{parts.netloc}')}"
    )


def _advice(place: Path | str) -> str:
    return f"; if that is your store: export {NAMED}={place}"
