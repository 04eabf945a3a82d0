"""What W&B's public API asks for: runs by pages, history, system events, files, artifacts; and runs made of rows."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Callable
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from typing import Any

from tests.fakes.wandb_store import Artifact, Run, Store

ENTITY = "someone"
INTERNAL_ID = base64.b64encode(b"ProjectInternalId:2").decode()
Variables = dict[str, Any]
EVENTS_CAP = 10**9
"""So many samples of system events are given at most."""


@dataclasses.dataclass
class HeldRun(Run):
    """A run that came from nowhere, with tens of thousands of rows, which are kept as they are.

    exported: rows that the server has put into Parquet files, each a file's content; ``rows`` come after them.
    """

    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    event_rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    exported: list[bytes] = dataclasses.field(default_factory=list)
    exported_rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def history(self) -> list[dict[str, Any]]:
        return self.rows

    @property
    def events(self) -> list[dict[str, Any]]:
        return self.event_rows

    def count(self, file: str) -> int:
        counts = {"wandb-history.jsonl": len(self.exported_rows) + len(self.rows)}
        return {**counts, "wandb-events.jsonl": len(self.event_rows)}.get(file) or super().count(file)

    def export(self, count: int) -> None:
        """Put the first rows into a Parquet file, as the server does some time after they came."""
        import io

        import pyarrow
        from pyarrow import parquet

        done, self.rows = self.rows[:count], self.rows[count:]
        held = io.BytesIO()
        names = list(dict.fromkeys(name for row in done for name in row))
        table = pyarrow.table({name: [row.get(name) for row in done] for name in names})
        parquet.write_table(table, held)
        self.exported.append(held.getvalue())
        self.exported_rows += done
        self.files[f"exported-{len(self.exported)}.parquet"] = held.getvalue()


def bucket(run: Run) -> dict[str, Any]:
    """What the server says of a run in every answer."""
    project = {"id": "2", "name": run.project, "entity": {"id": "1", "name": run.entity}}
    return {
        "id": base64.b64encode(run.id.encode()).decode(),
        "name": run.id,
        "displayName": run.display_name or run.id,
        "description": run.notes,
        "config": json.dumps(run.config),
        "sweepName": None,
        "project": project,
        "historyLineCount": run.count("wandb-history.jsonl"),
    }


def time_text(seconds: float) -> str:
    """A time as the server writes it: UTC, without a zone."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def _artifact_by_id(store: Store, variables: Variables, url: str) -> Any:
    return {"artifact": artifact_node(store, store.artifact(variables["id"]), url)}


def artifact_node(store: Store, found: Artifact, url: str) -> dict[str, Any]:
    """An artifact's version, as every query shows it."""
    project = {
        "id": "2",
        "internalId": INTERNAL_ID,
        "name": store.runs[found.run].project,
        "entity": {"id": "1", "name": ENTITY},
    }
    collection = {"__typename": "ArtifactSequence", "id": f"s-{found.name}", "name": found.name, "project": project}
    return {
        "__typename": "Artifact",
        "id": found.id,
        "artifactSequence": {**collection, "artifactType": {"id": "t", "name": found.type}},
        "artifactType": {"__typename": "ArtifactType", "id": "t", "name": found.type},
        "versionIndex": found.version,
        "description": found.description,
        "metadata": json.dumps(found.metadata or {}),
        "state": found.state,
        "size": sum(len(blob) for blob in found.blobs.values()),
        "digest": found.digest,
        "commitHash": found.digest,
        "fileCount": len(found.manifest.get("contents", {})),
        "createdAt": time_text(0),
        "updatedAt": time_text(0),
        "aliases": [{"id": "x", "alias": name, "artifactCollection": collection} for name in found.aliases],
        "tags": [],
        "ttlDurationSeconds": -1,
        "ttlIsInherited": True,
        "historyStep": None,
        "currentManifest": {"id": f"m-{found.id}", "file": {"directUrl": f"{url}/uploads/manifest/{found.id}/x"}},
        "artifactCollection": collection,
    }


def _node(run: Run, light: bool = False) -> dict[str, Any]:
    """A run in a listing, or all of it. Heavy fields are left out of a listing, as the client asks."""
    found = {
        **bucket(run),
        "projectId": "2",
        "tags": run.tags,
        "state": run.state,
        "group": run.group,
        "jobType": run.job_type,
        "commit": run.commit,
        "readOnly": False,
        "createdAt": time_text(run.created),
        "heartbeatAt": time_text(run.heartbeat),
        "notes": run.notes,
        "user": {"name": ENTITY, "username": ENTITY},
    }
    if light:
        del found["config"]
        return found
    rows = _all_rows(run)
    keys = {key: {"typeCounts": [{"type": "number", "count": 1}]} for row in rows for key in row}
    return {
        **found,
        "systemMetrics": json.dumps(run.events[-1] if run.events else {}),
        "summaryMetrics": json.dumps(run.summary),
        "historyKeys": {"keys": keys, "lastStep": rows[-1]["_step"] if rows else -1, "sets": []},
    }


def _all_rows(run: Run) -> list[dict[str, Any]]:
    return [*(run.exported_rows if isinstance(run, HeldRun) else []), *run.history]


def _known(store: Store, variables: Variables) -> bool:
    """Whether there is such a project: one that has runs."""
    return any(run.project == variables["project"] and run.entity == variables["entity"] for run in store.runs.values())


def _run(store: Store, variables: Variables, url: str) -> Any:
    if not _known(store, variables):
        return {"project": None}
    run = store.find(variables["entity"], variables["project"], variables["name"])
    return {"project": {"run": run and _node(run, variables.get("_light", False))}}


def _runs(store: Store, variables: Variables, url: str) -> Any:
    if not _known(store, variables):
        return {"project": None}
    filters = json.loads(variables.get("filters") or "{}")
    there = [run for run in store.runs.values() if store.find(variables["entity"], variables["project"], run.id)]
    found = [run for run in there if matches(run, filters)]
    order = variables.get("order") or "+created_at"
    key = "heartbeat" if "heartbeat" in order else "created"
    found.sort(key=lambda run: getattr(run, key), reverse=order.startswith("-"))
    start = int(variables.get("cursor") or 0)
    page = found[start : start + (variables.get("perPage") or 50)]
    edges = [
        {"node": _node(run, variables.get("_light", False)), "cursor": str(number)}
        for number, run in enumerate(page, start + 1)
    ]
    more = {"endCursor": str(start + len(page)), "hasNextPage": start + len(page) < len(found)}
    listed = {"edges": edges, "pageInfo": more}
    return {"project": {"internalId": "2", "runCount": len(found), "readOnly": False, "runs": listed}}


def matches(run: Run, filters: dict[str, Any]) -> bool:
    """Whether a run meets Mongo-style filters, as far as W&B's users go: equality, $and, $or, $in, $ne, $regex."""
    for name, wanted in filters.items():
        if name in ("$and", "$or"):
            joined = (all if name == "$and" else any)(matches(run, part) for part in wanted)
            if wanted and not joined:
                return False
            continue
        value = _field(run, name)
        if not isinstance(wanted, dict):
            good = wanted in value if isinstance(value, list) else value == wanted
        else:
            held = value if isinstance(value, list) else [value]
            good = all(_compare(operator, held, operand) for operator, operand in wanted.items())
        if not good:
            return False
    return True


def _compare(operator: str, held: list[Any], operand: Any) -> bool:
    if operator == "$in":
        return any(value in operand for value in held)
    if operator == "$ne":
        return operand not in held
    if operator == "$regex":
        return any(re.search(operand, str(value)) for value in held)
    raise ValueError(f"filter {operator} isn't known to the stand-in")


def _field(run: Run, name: str) -> Any:
    head, _, rest = name.partition(".")
    if head == "config":
        return run.values.get(rest.removesuffix(".value"))
    if head == "summary_metrics":
        return run.summary.get(rest)
    names = {"display_name": run.display_name, "name": run.id, "state": run.state, "group": run.group}
    return {**names, "tags": run.tags, "jobType": run.job_type}[name]


def _sampled(store: Store, variables: Variables, url: str) -> Any:
    run = store.runs[variables.get("name") or variables["run"]]
    result = []
    for text in variables.get("specs") or [variables["spec"]]:
        spec = json.loads(text)
        rows = [row for row in run.history if all(key in row for key in spec["keys"])]
        low, high = spec.get("minStep", 0), spec.get("maxStep", float("inf"))
        rows = [{key: row[key] for key in spec["keys"]} for row in rows if low <= row["_step"] < high]
        count = spec.get("samples", 500)
        stride = max(1, -(-len(rows) // count))
        result.append(rows[::stride])
    return {"project": {"run": {"sampledHistory": result}}}


def _full(store: Store, variables: Variables, url: str) -> Any:
    """History or system events, sampled evenly where there are more than asked for."""
    run = store.runs[variables["name"]]
    count = min(variables.get("samples") or 500, EVENTS_CAP)

    def sampled(rows: list[dict[str, Any]]) -> list[str]:
        if len(rows) > count:
            rows = [rows[place * len(rows) // count] for place in range(count)]
        return [json.dumps(row) for row in rows]

    return {"project": {"run": {"history": sampled(run.history), "events": sampled(run.events)}}}


def _page(store: Store, variables: Variables, url: str) -> Any:
    run = store.runs[variables["run"]]
    low, high = variables["minStep"], variables["maxStep"]
    rows = [json.dumps(row) for row in _all_rows(run) if low <= row["_step"] < high]
    return {"project": {"run": {"history": rows[: variables["pageSize"]]}}}


def _keys(store: Store, variables: Variables, url: str) -> Any:
    run = store.runs.get(variables["name"])
    if run is None:
        return {"project": {"run": None}}
    rows = _all_rows(run)
    return {"project": {"run": {"historyKeys": {"lastStep": rows[-1]["_step"] if rows else -1}}}}


def _state(store: Store, variables: Variables, url: str) -> Any:
    run = store.runs.get(variables["name"])
    return {"project": {"run": run and {"state": run.state}}}


def _parquet(store: Store, variables: Variables, url: str) -> Any:
    run = store.runs[variables["runName"]]
    count = len(run.exported) if isinstance(run, HeldRun) else 0
    urls = [f"{url}/uploads/run/{run.id}/exported-{number}.parquet" for number in range(1, count + 1)]
    live = [{"_step": row["_step"]} for row in run.history] if urls else []
    return {"project": {"run": {"parquetHistory": {"parquetUrls": urls, "liveData": live}}}}


def _files(store: Store, variables: Variables, url: str) -> Any:
    run = store.runs[variables["name"]]
    wanted = variables.get("fileNames") or []
    pattern = (variables.get("pattern") or "%").replace("%", "*")
    names = [name for name in run.files if (not wanted or name in wanted) and fnmatchcase(name, pattern)]
    start = int(variables.get("fileCursor") or 0)
    page = names[start : start + (variables.get("fileLimit") or 50)]
    edges = []
    for number, name in enumerate(page, start + 1):
        address = f"{url}/uploads/run/{run.id}/{name}"
        node = {"id": f"{run.id}-{name}", "name": name, "url": address, "directUrl": address, "mimetype": None}
        size = len(run.files[name])
        node |= {"sizeBytes": size, "updatedAt": time_text(run.created), "digest": "", "md5": ""}
        edges.append({"node": node, "cursor": str(number)})
    more = {"endCursor": str(start + len(page)), "hasNextPage": start + len(page) < len(names)}
    listed = {"fileCount": len(names), "files": {"edges": edges, "pageInfo": more}}
    return {"project": {"internalId": "2", "run": listed}}


def _artifacts(store: Store, variables: Variables, url: str) -> Any:
    found = [artifact for artifact in store.artifacts if artifact.run == variables["run"]]
    edges = [
        {"node": artifact_node(store, artifact, url), "cursor": str(place)} for place, artifact in enumerate(found)
    ]
    page = {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}
    return {"project": {"run": {"artifacts": {"totalCount": len(found), "pageInfo": page, "edges": edges}}}}


def _manifest(store: Store, variables: Variables, url: str) -> Any:
    file = {"directUrl": f"{url}/uploads/manifest/{variables['id']}/x"}
    return {"artifact": {"currentManifest": {"file": file}}}


def _artifact_urls(store: Store, variables: Variables, url: str) -> Any:
    """The files of one version of an artifact, named by its alias ("v0")."""
    found = next(
        artifact
        for artifact in store.artifacts
        if artifact.name == variables["collection"]
        and variables["alias"] in (f"v{artifact.version}", *artifact.aliases)
    )
    nodes = [
        {"__typename": "File", "name": name, "directUrl": f"{url}/uploads/artifact/{found.id}/{name}"}
        for name in found.files
    ]
    page = {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}
    files = {"pageInfo": page, "edges": [{"node": node} for node in nodes]}
    collection = {"__typename": "ArtifactSequence", "artifactMembership": {"files": files}}
    return {"project": {"artifactCollection": collection}}


def _event_count(store: Store, variables: Variables, url: str) -> Any:
    return {"project": {"run": {"eventsLineCount": len(store.runs[variables["name"]].events)}}}


def _projects(store: Store, variables: Variables, url: str) -> Any:
    names = dict.fromkeys(run.project for run in store.runs.values() if run.entity == variables["entity"])
    more = {"isBenchmark": False, "createdAt": time_text(0), "user": None}
    nodes = [
        {"__typename": "Project", "id": "2", "name": name, "entityName": variables["entity"], **more} for name in names
    ]
    page = {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}
    return {"models": {"pageInfo": page, "edges": [{"node": node} for node in nodes]}}


READS: dict[str, Callable[[Store, Variables, str], Any]] = {
    "ArtifactByID": _artifact_by_id,
    "GetProjects": _projects,
    "Run": _run,
    "Runs": _runs,
    "RunState": _state,
    "RunSampledHistory": _sampled,
    "SampledHistoryPage": _sampled,
    "RunFullHistory": _full,
    "RunEventCount": _event_count,
    "HistoryPage": _page,
    "RunHistoryKeys": _keys,
    "RunParquetHistory": _parquet,
    "RunFiles": _files,
    "RunOutputArtifacts": _artifacts,
    "FetchArtifactManifest": _manifest,
    "GetArtifactMembershipFileUrls": _artifact_urls,
}
