"""Names that MLflow refuses, mapped so that they can be read back, and so that no two names meet.

A refused character becomes ``_xHH_``, its code in hexadecimal: ``timing(s)/gen`` is ``timing_x28_s_x29_/gen`` and
``mean@1`` is ``mean_x40_1``. A name that looks like an escape has its underscore escaped. A name that is still too
long ends in ``_xH`` and 24 digits of its SHA-256; its original is in the run's ``metric_names.json``.
Artifact addresses of MLflow are read and made here, too.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from trackers.formats import sqlite_address

NAME_LENGTH = 250
"""mlflow/utils/validation.py MAX_ENTITY_KEY_LENGTH: metrics, params and tags."""

FILE_LENGTH = 120
"""Ours, so that a file name with step, time and digest stays below the 255 bytes of common filesystems."""

# mlflow/utils/validation.py validate_param_and_metric_name. Letters and digits of any script are "\w".
_NAME = re.compile(r"[/\w.\- :]")
# mlflow/tracking/client.py log_image: what a key, and so the file of an image, may have.
_FILE = re.compile(r"[A-Za-z0-9_./ -]")

_ESCAPED = re.compile(r"_x([0-9A-F]*)_")
_LOOKS_ESCAPED = re.compile(r"_x(H[0-9a-f]*|[0-9A-F]*)")
_SHORTENED = re.compile(r"(?<!_x5F)_xH[0-9a-f]{24}$")

STEP = "trackers.step"
"""Attribute of a span: the step of training, which MLflow's spans don't have."""


def map_name(name: str) -> str:
    """A name as MLflow takes it for metrics, params and tags; unchanged where it can be."""
    return _map(name, _NAME, NAME_LENGTH)


def map_file(name: str) -> str:
    """A name as one component of an artifact's path: ASCII, with "~" for "/" as MLflow does for images."""
    return _map(name, _FILE, FILE_LENGTH).replace("/", "~")


def unmap(name: str, originals: Mapping[str, str] | None = None) -> str:
    """The original of a name that :func:`map_name` gave.

    Args:
        originals: the content of the run's ``metric_names.json``, which alone knows names that were too long.
    """
    if originals and name in originals:
        return originals[name]
    if len(name) == NAME_LENGTH and _SHORTENED.search(name):
        return name
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else "", name)


def _map(name: str, allowed: re.Pattern[str], length: int) -> str:
    if not name:
        return "_x_"
    escape = {i for i, char in enumerate(name) if not allowed.fullmatch(char)}
    escape |= _path_faults(name)
    for match in _LOOKS_ESCAPED.finditer(name):
        end = match.end()
        if match[1].startswith("H") or name[end : end + 1] == "_" or end in escape:
            escape.add(match.start())
    if not escape and len(name) <= length:
        return name
    mapped = "".join(f"_x{ord(char):X}_" if i in escape else char for i, char in enumerate(name))
    if len(mapped) <= length:
        return mapped
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return f"{mapped[: length - 27]}_xH{digest}"


def _path_faults(name: str) -> set[int]:
    """Where a name isn't a normal relative path: empty parts, "." and "..", a beginning with ".."."""
    faults = set()
    start = 0
    for part in name.split("/"):
        end = start + len(part)
        if part in (".", "..") or (start == 0 and part.startswith("..")):
            faults.add(start)
        elif not part:
            # The slash before an empty part, or, where there is none, the one behind it.
            faults.add(start - 1 if start else 0)
        start = end + 1
    return faults


NAMED = "MLFLOW_ARTIFACT_ROOT"
"""Environment variable by which the user names a store that isn't allowed else: a directory, or how a URI begins."""
_CLOUD = frozenset({"s3", "gs", "r2", "oss", "b2", "dbfs"})
"""Stores whose address is the client's own matter: what MLflow names is a bucket."""
_AZURE = frozenset({"wasb", "wasbs", "abfs", "abfss"})
_AZURE_HOST = re.compile(r"\.core\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net|cloudapi\.de)", re.IGNORECASE)


def refusal(
    tracking: str, artifacts: str, run_id: str, environ: Mapping[str, str] | None = None, here: Path | None = None
) -> str:
    """Why the artifacts of a run aren't touched where its store says they are; "" if they are.

    On this machine's disk a store of a local database is ``…/<run id>/artifacts``, as MLflow makes it. A server names
    no directory of this machine, and no other host: files would be read or written, or a login sent, where only its
    answer says so. What the user names in MLFLOW_ARTIFACT_ROOT is allowed besides.

    Args:
        tracking: the tracking URI. artifacts: the run's artifact URI. run_id: MLflow's id.
        here: where training runs. Who made that directory may have made a database in it, which leads nowhere else.
    """
    environ = os.environ if environ is None else environ
    parts, own = urlsplit(artifacts), urlsplit(tracking)
    scheme = parts.scheme.lower()
    if _is_named(artifacts, map(str.strip, environ.get(NAMED, "").split(","))):
        return ""
    folder = local_store(artifacts)
    strays = here is not None and _lies_in(here, tracking) and not _is_named(artifacts, [str(here)])
    if strays and not is_served(tracking, artifacts):
        return f"{artifacts:.120} isn't below {here}, as its database is{_advice(folder or artifacts)}"
    if folder is not None:
        if own.scheme.lower() in ("http", "https") or tracking.startswith("databricks"):
            server = own.hostname or tracking
            return f"the server at {server} names a directory of this machine, {folder}{_advice(folder)}"
        if not _is_runs(folder, run_id):
            return f"{folder} isn't a run's folder of artifacts, …/{run_id:.60}/artifacts{_advice(folder)}"
        return ""
    if scheme == "mlflow-artifacts":
        if is_served(tracking, artifacts):
            return "the server that wrote the database keeps them: with it running, read mlflow:http://HOST:PORT#EXPERIMENT"
        return "" if not parts.netloc or _host(parts) == _host(own) else _elsewhere(parts, artifacts)
    if scheme in ("http", "https"):
        same = scheme == own.scheme.lower() and _host(parts) == _host(own)
        return "" if same else _elsewhere(parts, artifacts)
    if scheme in _AZURE:
        return "" if _AZURE_HOST.search(parts.hostname or "") else _elsewhere(parts, artifacts)
    if scheme in _CLOUD:
        return ""
    return f"its store is at {artifacts:.120}, which nobody named here{_advice(artifacts)}"


def _lies_in(here: Path, tracking: str) -> bool:
    file = re.match(r"sqlite(?:\+\w+)?:///([^?]*)", tracking)
    return file is not None and Path(here, os.path.normpath(sqlite_address.decoded(file[1]))).is_relative_to(here)


def is_served(tracking: str, artifacts: str) -> bool:
    """Whether artifacts lie behind a server, and the store that names them is read without one: ``mlflow server``
    writes ``mlflow-artifacts:`` addresses into its database."""
    own = urlsplit(tracking).scheme.lower()
    return artifacts.lower().startswith("mlflow-artifacts:") and own not in ("http", "https", "databricks")


def reach(client: Any, tracking: str, run: Any) -> None:
    """Have MLflow's client look for a run's artifacts behind the server of its own tracking URI.

    Clients before 3.0 look behind the server that is set for the whole process, which may be another, or none.
    """
    if not run.info.artifact_uri.startswith("mlflow-artifacts:"):
        return
    from mlflow.store.artifact.http_artifact_repo import HttpArtifactRepository
    from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository
    from mlflow.tracking._tracking_service import utils

    if "tracking_uri" not in inspect.signature(MlflowArtifactsRepository).parameters:
        holder = utils if hasattr(utils, "_artifact_repos_cache") else client._tracking_client
        address = MlflowArtifactsRepository.resolve_uri(run.info.artifact_uri, tracking)
        holder._artifact_repos_cache[run.info.run_id] = HttpArtifactRepository(address)


def local_store(uri: str) -> Path | None:
    """The folder of an artifact store on this machine's disk; None for one elsewhere."""
    parts = urlsplit(uri)
    if parts.scheme.lower() not in ("", "file"):
        return None
    return Path(unquote(parts.path)) if parts.scheme else Path(uri)


def _is_runs(folder: Path, run_id: str) -> bool:
    """Whether this is a folder that MLflow makes for a run, and no link to another one."""
    ending = (run_id, "artifacts")
    plain = ".." not in folder.parts and re.fullmatch("[0-9a-f]{32}", run_id) is not None  # no name of a directory
    return plain and folder.parts[-2:] == ending and Path(os.path.realpath(folder)).parts[-2:] == ending


def _is_named(artifacts: str, named: Iterable[str]) -> bool:
    for store in filter(None, named):
        folder, root = local_store(artifacts), local_store(store)
        if folder is not None and root is not None:
            if Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(root.expanduser())):
                return True
        elif root is None and artifacts.startswith(store.rstrip("/") + "/"):
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


def _advice(store: Path | str) -> str:
    return f"; if that is your store: export {NAMED}={store}"
