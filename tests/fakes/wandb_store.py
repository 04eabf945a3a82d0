"""What the stand-in for W&B's server keeps: runs, their rows, files and artifacts."""

from __future__ import annotations

import base64
import dataclasses
import json
import threading
import time
from typing import Any

HEARTBEAT_TIMEOUT_S = 300.0
"""A run without a word for so long shows as crashed."""


@dataclasses.dataclass
class Run:
    """One run, as the server sees it.

    lines: lines of each streamed file by their offset, so that what is sent twice lies once.
    files: content of uploaded files by name.
    """

    id: str
    entity: str
    project: str
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    summary_sent: dict[str, Any] = dataclasses.field(default_factory=dict)
    display_name: str | None = None
    group: str | None = None
    job_type: str | None = None
    tags: list[str] = dataclasses.field(default_factory=list)
    notes: str | None = None
    host: str | None = None
    program: str | None = None
    commit: str | None = None
    repo: str | None = None
    lines: dict[str, dict[int, str]] = dataclasses.field(default_factory=dict)
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)
    alerts: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    exit_code: int | None = None
    complete: bool = False
    preempting: bool = False
    created: float = dataclasses.field(default_factory=time.time)
    heartbeat: float = dataclasses.field(default_factory=time.time)
    heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S

    @property
    def values(self) -> dict[str, Any]:
        """The configuration without W&B's wrapping and without its own ``_wandb``."""
        return {name: item["value"] for name, item in self.config.items() if name != "_wandb"}

    @property
    def history(self) -> list[dict[str, Any]]:
        """Rows in the order of their offsets."""
        return self._rows("wandb-history.jsonl")

    @property
    def events(self) -> list[dict[str, Any]]:
        """System metrics."""
        return self._rows("wandb-events.jsonl")

    @property
    def console(self) -> list[str]:
        lines = self.lines.get("output.log", {})
        return [lines[offset] for offset in sorted(lines)]

    @property
    def summary(self) -> dict[str, Any]:
        rows = self._rows("wandb-summary.json")
        return rows[-1] if rows else self.summary_sent

    @property
    def metadata(self) -> dict[str, Any]:
        """``wandb-metadata.json``."""
        found: dict[str, Any] = json.loads(self.files.get("wandb-metadata.json", b"{}"))
        return found

    @property
    def state(self) -> str:
        """As W&B derives it: from the exit code, else from the last sign of life."""
        if self.exit_code is not None:
            return "finished" if self.exit_code == 0 else "preempted" if self.preempting else "failed"
        if time.time() - self.heartbeat > self.heartbeat_timeout_s:
            return "crashed"
        return "preempting" if self.preempting else "running"

    def count(self, file: str) -> int:
        """Number of lines of a streamed file."""
        lines = self.lines.get(file, {})
        return max(lines) + 1 if lines else 0

    def tail(self, file: str) -> list[str]:
        lines = self.lines.get(file, {})
        return [lines[max(lines)]] if lines else []

    def dump(self) -> dict[str, Any]:
        """Everything as JSON, for who reads it from another process."""
        plain = dataclasses.asdict(self)
        plain["files"] = {name: base64.b64encode(content).decode() for name, content in self.files.items()}
        derived = ("values", "history", "events", "console", "summary", "metadata", "state")
        return {**plain, **{name: getattr(self, name) for name in derived}}

    def _rows(self, file: str) -> list[dict[str, Any]]:
        lines = self.lines.get(file, {})
        return [json.loads(lines[offset]) for offset in sorted(lines)]


@dataclasses.dataclass
class Artifact:
    """One version of an artifact. files: content by the name inside it, once committed."""

    id: str
    name: str
    type: str
    run: str
    digest: str
    aliases: list[str]
    description: str | None
    metadata: Any
    version: int = 0
    state: str = "PENDING"
    manifest: dict[str, Any] = dataclasses.field(default_factory=dict)
    blobs: dict[str, bytes] = dataclasses.field(default_factory=dict)

    @property
    def files(self) -> dict[str, bytes]:
        return {name: self.blobs[name] for name in self.manifest.get("contents", {}) if name in self.blobs}

    @property
    def references(self) -> dict[str, str]:
        contents = self.manifest.get("contents", {})
        return {name: item["ref"] for name, item in contents.items() if "ref" in item}


@dataclasses.dataclass
class Link:
    """An artifact's version in a collection of a registry. aliases: the link's own."""

    entity: str
    project: str
    collection: str
    artifact: str
    aliases: list[str]
    version: int


class Store:
    """All that the server holds. ``lock`` is held around every request."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.registries: set[str] | None = None  # those that there are; None: all
        self.lock = threading.RLock()
        self.runs: dict[str, Run] = {}
        self.stopped: set[str] = set()  # ids of runs whose Stop button was pressed
        self.artifacts: list[Artifact] = []

    def find(self, entity: str | None, project: str | None, name: str | None) -> Run | None:
        run = self.runs.get(name or "")
        if run is None or (project and run.project != project) or (entity and run.entity != entity):
            return None
        return run

    def stream(self, entity: str, project: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """One request of the file stream: chunks of lines at offsets, the end, signs of life."""
        run = self.find(entity, project, name)
        if run is None:
            return {"error": "no such run"}
        run.heartbeat = time.time()
        for file, chunk in (body.get("files") or {}).items():
            held = run.lines.setdefault(file, {})
            if file == "wandb-summary.json":
                held.clear()
            for number, line in enumerate(chunk["content"], chunk["offset"]):
                held[number] = line
        run.preempting = run.preempting or bool(body.get("preempting"))
        if body.get("complete"):
            run.complete = True
            run.exit_code = body.get("exitcode") or 0
        elif run.complete and body.get("files"):  # it was opened again
            run.complete, run.exit_code = False, None
        return {"limits": {}, "exitcode": None, **({"stopped": True} if name in self.stopped else {})}

    def put(self, key: str, content: bytes) -> None:
        """A file uploaded to the address that it was given: ``run/ID/NAME`` or ``artifact/ID/NAME``."""
        kind, owner, name = key.split("/", 2)
        if kind == "run":
            self.runs[owner].files[name] = content
            return
        artifact = self.artifact(owner)
        if kind == "manifest":
            artifact.manifest = json.loads(content)
        else:
            artifact.blobs[name] = content

    def get(self, key: str) -> bytes | None:
        kind, owner, name = key.split("/", 2)
        if kind == "run":
            return self.runs[owner].files.get(name)
        if kind == "manifest":
            return json.dumps(self.artifact(owner).manifest).encode()
        return self.artifact(owner).blobs.get(name)

    def artifact(self, id: str) -> Artifact:
        return next(artifact for artifact in self.artifacts if artifact.id == id)
