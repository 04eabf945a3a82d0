"""A trackio server (``trackio show``) as a store, through trackio's own HTTP client."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trackers.backends.trackio.store import (
    REQUEST_ROWS,
    TIMEOUT_S,
    AlertRow,
    Files,
    TrackioRow,
    TrackioRunKey,
    TrackioStore,
    alert_entry,
    log_entry,
    references,
)
from trackers.errors import Fatal, Refused, Rejected, Unavailable
from trackers.formats.trackio_traces import iso

ASK_S = 10.0
"""Between questions to the server, how many rows of the run it has."""

FILE_DATA = "gradio.FileData"
"""Type of mappings that stand for a file in Gradio's API."""
TIME_KEY = "_timestamp"
"""``/api/bulk_log`` drops the times of rows (trackio 0.43), so each row carries its own, as W&B's rows do."""


class ServerStore(TrackioStore):
    """A run on a server.

    Args:
        url: http:// or https://, with ``?write_token=…`` where the server wants one.
    """

    tells = True
    counts_samples = False
    extends = False

    def __init__(self, key: TrackioRunKey, name: str, url: str) -> None:
        self._key = key
        self.name = name
        self._url = url
        self._client: Any = None
        self._asked = time.monotonic()

    def connect(self) -> None:
        """See that a trackio server answers.

        Raises:
            Unavailable, Refused, Fatal: no answer, no access, not a trackio server that we can talk to.
        """
        import httpx
        from trackio.remote_client import HTTP_API_VERSION, _TrackioHTTPClient
        from trackio.utils import parse_trackio_server_url

        base, token = parse_trackio_server_url(self._url)
        # Not by RemoteClient: it takes every failure for an older kind of server, and asks that by Gradio's client,
        # which follows redirects with the write token.
        try:
            answer = httpx.get(base.rstrip("/") + "/version", timeout=10)
            answer.raise_for_status()
            version = answer.json().get("api_version")
        except (ValueError, AttributeError) as error:
            raise Refused(f"{base} is not a trackio server") from error
        except Exception as error:
            raise self._translated(error) from error
        if version != HTTP_API_VERSION:
            raise Fatal(f"{base} speaks version {version} of trackio's API, this client version {HTTP_API_VERSION}")
        try:
            self._client = _TrackioHTTPClient(base, write_token=token, httpx_kwargs={"timeout": TIMEOUT_S})
        except Exception as error:
            raise self._translated(error) from error

    def known_name(self) -> str | None:
        summary = self._call("get_run_summary", project=self._key.project, run_id=self._key.run_id)
        return str(summary["run"]) if isinstance(summary, dict) and summary.get("run") else None

    def log(self, rows: Sequence[TrackioRow], config: dict[str, Any] | None) -> None:
        for start in range(0, len(rows), REQUEST_ROWS):
            entries = []
            for row in rows[start : start + REQUEST_ROWS]:
                entry = log_entry(self._key, self.name, row._replace(values={**row.values, TIME_KEY: row.time}))
                entries.append({**entry, "step": row.step, "config": config if row is rows[0] else None})
            self._call("bulk_log", logs=self._jsonable(entries), hf_token=None)

    def log_system(self, rows: Sequence[TrackioRow]) -> None:
        for start in range(0, len(rows), REQUEST_ROWS):
            entries = [
                {**log_entry(self._key, self.name, row), "timestamp": iso(row.time)}
                for row in rows[start : start + REQUEST_ROWS]
            ]
            self._call("bulk_log_system", logs=self._jsonable(entries), hf_token=None)

    def alert(self, rows: Sequence[AlertRow]) -> None:
        self._call("bulk_alert", alerts=[alert_entry(self._key, self.name, row) for row in rows], hf_token=None)

    def media(self, source: Path, folder: str, step: int, name: str) -> str:
        from trackio.utils import canonical_project_name

        upload = {
            "project": self._key.project,
            "run": folder,
            "run_id": self._key.run_id,
            "step": step,
            "relative_path": None,
            "uploaded_file": _file(source, name),
        }
        self._call("bulk_upload_media", uploads=[upload], hf_token=None)
        return f"{canonical_project_name(self._key.project)}/{folder}/{step}/{name}"

    def file(self, source: Path, folder: str) -> None:
        upload = {
            "project": self._key.project,
            "run": folder,  # among a project's files the server gives each upload a name of its own
            "run_id": self._key.run_id,
            "step": None,
            "relative_path": None,
            "uploaded_file": _file(source, source.name),
        }
        self._call("bulk_upload_media", uploads=[upload], hf_token=None)

    def count(self) -> int | None:
        summary = self._call("get_run_summary", project=self._key.project, run_id=self._key.run_id)
        return int(summary.get("num_logs") or 0) if isinstance(summary, dict) else None

    def holds(self, log_ids: Sequence[str], rows: int) -> bool:
        """True if the server has at least this many rows of the run; checked at intervals."""
        if time.monotonic() - self._asked < ASK_S:
            return True
        self._asked = time.monotonic()
        count = self.count()
        return count is None or count >= rows

    def artifact(self, files: Files) -> None:
        from trackio import cas

        manifest, local = references(files), {}
        for path, source in files.files.items():
            digest, size = cas.hash_file(source)
            manifest.append({"path": path, "digest": str(digest), "size": size})
            local[str(digest)] = source
        have = self._call("check_artifact_blobs", project=self._key.project, digests=list(local), hf_token=None)
        for digest in local.keys() - set((have or {}).get("present", [])):
            self._call(
                "bulk_upload_artifact_blob",
                project=self._key.project,
                uploads=[{"digest": digest, "uploaded_file": _file(local[digest], digest)}],
                hf_token=None,
            )
        self._call(
            "artifact_log",
            project=self._key.project,
            name=files.name,
            type=files.type,
            description=files.description,
            metadata=files.metadata,
            manifest=manifest,
            aliases=files.aliases,
            run_name=self.name,
            run_id=self._key.run_id,
            hf_token=None,
        )

    def _call(self, api: str, **arguments: Any) -> Any:
        try:
            return self._client.predict(api_name=f"/{api}", **_without_files(arguments))
        except Exception as error:
            raise self._translated(error) from error

    @staticmethod
    def _jsonable(entries: list[dict[str, Any]]) -> Any:
        """NaN and infinities as trackio's client sends them: by name."""
        from trackio.utils import serialize_values

        return serialize_values(entries)

    def _translated(self, error: Exception) -> Exception:
        import httpx

        where = self._url.split("?")[0]
        if isinstance(error, httpx.HTTPStatusError):
            return _of_status(error.response, where)
        if isinstance(error, (httpx.InvalidURL, httpx.UnsupportedProtocol)):
            return Refused(f"{where}: {error}; correct TRACKIO_SERVER_URL")
        if isinstance(error, (httpx.HTTPError, OSError)):
            return Unavailable(f"no answer from {where}: {error or type(error).__name__}")
        if isinstance(error, json.JSONDecodeError):  # of a proxy's page, not of a record
            return Unavailable(f"{where} answered with something that isn't JSON")
        if isinstance(error, RuntimeError) and "does not support" in str(error):  # its word for 404
            return Refused(f"{where} refused (404): {error}")
        return Rejected(f"{where}: {error}")


class _Upload(dict[str, Any]):
    """A file that this tracker uploads."""


def _without_files(value: Any) -> Any:
    """The value as data: trackio's client uploads the file that any mapping in Gradio's form names, logged or not."""
    if isinstance(value, _Upload):
        return value
    if isinstance(value, dict):
        plain = {name: _without_files(inner) for name, inner in value.items()}
        meta = plain.get("meta")
        if isinstance(meta, dict) and meta.get("_type") == FILE_DATA:
            plain["meta"] = {**meta, "_type": f"{FILE_DATA} (logged)"}
        return plain
    return [_without_files(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _of_status(response: Any, where: str) -> Exception:
    """The error behind an HTTP answer: trackio says 400 for a missing token, 500 for what its database refused."""
    code = response.status_code
    try:
        text = str(response.json().get("error"))[:500]
    except Exception:
        text = response.reason_phrase
    if code in (401, 403, 404) or "write_token" in text:
        return Refused(f"{where} refused ({code}): {text}; give TRACKIO_SERVER_URL with ?write_token=…")
    if code == 429 or code >= 500:
        wait = response.headers.get("retry-after", "")  # seconds, or a date, which isn't taken
        return Unavailable(f"{where} answered {code}: {text}", float(wait) if wait.isdigit() else None)
    return Rejected(f"{where} answered {code}: {text}")


def _file(path: Path, name: str) -> dict[str, Any]:
    """A file to upload, as gradio's clients write it down."""
    return _Upload(path=str(path), orig_name=name, meta={"_type": FILE_DATA})
