"""The GraphQL operations that the real wandb client uses, answered from the stand-in's store."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from tests.wandb_store import Artifact, Run, Store

ENTITY = "someone"
INTERNAL_ID = base64.b64encode(b"ProjectInternalId:2").decode()
Variables = dict[str, Any]


def operation_name(request: dict[str, Any]) -> str:
    """The name of the operation in a GraphQL request, or ""."""
    found = re.search(r"(?:query|mutation)\s+(\w+)", request.get("query", ""))
    return request.get("operationName") or (found.group(1) if found else "")


def answer(store: Store, request: dict[str, Any], url: str) -> dict[str, Any]:
    """The reply to one GraphQL request."""
    name = operation_name(request)
    resolve = OPERATIONS.get(name)
    if resolve is None:
        return {"errors": [{"message": f"unknown operation {name!r}"}], "data": None}
    return {"data": resolve(store, request.get("variables") or {}, url)}


def _viewer(store: Store, variables: Variables, url: str) -> Any:
    account = {"id": "1", "entity": ENTITY, "username": ENTITY, "email": "someone@localhost", "name": ENTITY}
    more = {"flags": "{}", "teams": {"edges": []}, "apiKeys": {"edges": []}, "admin": False, "deletedAt": None}
    return {"viewer": {**account, **more, "userEntity": {"name": ENTITY}}}


def _upsert_run(store: Store, variables: Variables, url: str) -> Any:
    name = variables.get("name") or base64.b64decode(variables["id"]).decode()
    run = store.runs.get(name)
    inserted = run is None
    if run is None:
        run = Run(name, variables.get("entity") or ENTITY, variables.get("project") or "uncategorized")
        store.runs[name] = run
    run.heartbeat = time.time()
    for field, key in (
        *(("display_name", "displayName"), ("group", "groupName"), ("job_type", "jobType"), ("notes", "notes")),
        *(("tags", "tags"), ("host", "host"), ("program", "program"), ("commit", "commit"), ("repo", "repo")),
    ):
        if variables.get(key) is not None:
            setattr(run, field, variables[key])
    if variables.get("config") is not None:
        run.config = json.loads(variables["config"])
    if variables.get("summaryMetrics") is not None:
        run.summary_sent = json.loads(variables["summaryMetrics"])
    if variables.get("state") == "running":
        run.exit_code, run.complete = None, False
    return {"upsertBucket": {"bucket": _bucket(run), "inserted": inserted}}


def _bucket(run: Run) -> dict[str, Any]:
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


def _resume_status(store: Store, variables: Variables, url: str) -> Any:
    run = store.find(variables.get("entity"), variables.get("project"), variables.get("name"))
    model = {"id": "2", "name": variables.get("project"), "entity": {"id": "1", "name": ENTITY}, "bucket": None}
    if run is None:
        return {"model": model}
    bucket = {
        **_bucket(run),
        "summaryMetrics": json.dumps(run.summary),
        "logLineCount": run.count("output.log"),
        "historyLineCount": run.count("wandb-history.jsonl"),
        "eventsLineCount": run.count("wandb-events.jsonl"),
        "historyTail": json.dumps(run.tail("wandb-history.jsonl")),
        "eventsTail": json.dumps(run.tail("wandb-events.jsonl")),
        "tags": run.tags,
        "notes": run.notes,
        "wandbConfig": json.dumps({"t": (run.config.get("_wandb") or {}).get("value", {}).get("t", {})}),
    }
    return {"model": {**model, "bucket": bucket}}


def _rewind(store: Store, variables: Variables, url: str) -> Any:
    run = store.runs[variables["runName"]]
    lines = run.lines.get("wandb-history.jsonl", {})
    keep = [lines[k] for k in sorted(lines) if json.loads(lines[k])["_step"] <= variables["metricValue"]]
    run.lines["wandb-history.jsonl"] = dict(enumerate(keep))
    return {"rewindRun": {"rewoundRun": _bucket(run)}}


def _create_run_files(store: Store, variables: Variables, url: str) -> Any:
    run = store.runs[variables["run"]]
    files = [{"name": name, "uploadUrl": f"{url}/uploads/run/{run.id}/{name}"} for name in variables["files"]]
    return {"createRunFiles": {"runID": run.id, "uploadHeaders": [], "files": files}}


def _alert(store: Store, variables: Variables, url: str) -> Any:
    run = store.runs[variables["runName"]]
    run.alerts.append({key: variables.get(key) for key in ("title", "text", "severity", "waitDuration")})
    return {"notifyScriptableRunAlert": {"success": True}}


def _create_artifact(store: Store, variables: Variables, url: str) -> Any:
    given = variables["input"]
    name, kind = given["artifactCollectionName"], given["artifactTypeName"]
    versions = [artifact for artifact in store.artifacts if artifact.name == name]
    found = next((artifact for artifact in versions if artifact.digest == given["digest"]), None)
    if found is None:
        aliases = [item["alias"] for item in given.get("aliases") or []]
        found = Artifact(
            id=f"a{len(store.artifacts)}",
            name=name,
            type=kind,
            run=given.get("runName") or "",
            digest=given["digest"],
            aliases=aliases,
            description=given.get("description"),
            metadata=json.loads(given.get("metadata") or "null"),
            version=len(versions),
        )
        store.artifacts.append(found)
    latest = versions[-1] if versions else None
    sequence = {
        "id": f"s-{name}",
        "state": "READY",
        "latestArtifact": latest and {"id": latest.id, "versionIndex": latest.version},
    }
    artifact = {"id": found.id, "state": found.state, "versionIndex": found.version, "artifactSequence": sequence}
    return {"createArtifact": {"artifact": artifact}}


def _manifest(store: Store, variables: Variables, url: str) -> Any:
    id = variables.get("artifactID") or variables["artifactManifestID"].removeprefix("m-")
    file = {"id": f"f-{id}", "uploadUrl": f"{url}/uploads/manifest/{id}/manifest", "uploadHeaders": []}
    inner = {"artifactManifest": {"id": f"m-{id}", "file": file}}
    return {"createArtifactManifest": inner, "updateArtifactManifest": inner}


def _artifact_files(store: Store, variables: Variables, url: str) -> Any:
    edges = []
    for spec in variables["input"]["artifactFiles"]:
        id = spec["artifactID"]
        upload = f"{url}/uploads/artifact/{id}/{spec['name']}"
        node = {"storagePath": f"artifact/{id}/{spec['name']}", "uploadUrl": upload, "uploadHeaders": []}
        edges.append({"node": {**node, "uploadMultipartUrls": None, "artifact": {"id": id}}})
    return {"createArtifactFiles": {"files": {"edges": edges}}}


def _commit_artifact(store: Store, variables: Variables, url: str) -> Any:
    artifact = store.artifact(variables["artifactID"])
    artifact.state = "COMMITTED"
    return {"commitArtifact": {"artifact": {"id": artifact.id, "digest": artifact.digest}}}


def _artifact_by_id(store: Store, variables: Variables, url: str) -> Any:
    found = store.artifact(variables["id"])
    project = {
        "id": "2",
        "internalId": INTERNAL_ID,
        "name": store.runs[found.run].project,
        "entity": {"id": "1", "name": ENTITY},
    }
    collection = {"__typename": "ArtifactSequence", "id": f"s-{found.name}", "name": found.name, "project": project}
    return {
        "artifact": {
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
            "createdAt": _time(0),
            "updatedAt": _time(0),
            "aliases": [{"id": "x", "alias": name, "artifactCollection": collection} for name in found.aliases],
            "tags": [],
            "ttlDurationSeconds": -1,
            "ttlIsInherited": True,
            "historyStep": None,
            "currentManifest": {"id": f"m-{found.id}", "file": {"directUrl": f"{url}/uploads/manifest/{found.id}/x"}},
            "artifactCollection": collection,
        }
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def _node(run: Run) -> dict[str, Any]:
    keys = {key: {"typeCounts": [{"type": "number", "count": 1}]} for row in run.history for key in row}
    last = run.history[-1]["_step"] if run.history else -1
    return {
        **_bucket(run),
        "projectId": "2",
        "tags": run.tags,
        "state": run.state,
        "group": run.group,
        "jobType": run.job_type,
        "commit": run.commit,
        "readOnly": False,
        "createdAt": _time(run.created),
        "heartbeatAt": _time(run.heartbeat),
        "notes": run.notes,
        "systemMetrics": json.dumps(run.events[-1] if run.events else {}),
        "summaryMetrics": json.dumps(run.summary),
        "user": {"name": ENTITY, "username": ENTITY},
        "historyKeys": {"keys": keys, "lastStep": last, "sets": []},
    }


def _run(store: Store, variables: Variables, url: str) -> Any:
    run = store.find(variables["entity"], variables["project"], variables["name"])
    return {"project": {"run": run and _node(run)}}


def _runs(store: Store, variables: Variables, url: str) -> Any:
    filters = json.loads(variables.get("filters") or "{}")
    found = [run for run in store.runs.values() if run.project == variables["project"] and matches(run, filters)]
    order = variables.get("order") or "+created_at"
    key = "heartbeat" if "heartbeat" in order else "created"
    found.sort(key=lambda run: getattr(run, key), reverse=order.startswith("-"))
    start = int(variables.get("cursor") or 0)
    page = found[start : start + (variables.get("perPage") or 50)]
    edges = [{"node": _node(run), "cursor": str(number)} for number, run in enumerate(page, start + 1)]
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
    run = store.runs[variables["name"]]
    count = variables.get("samples") or 500
    rows = {"history": run.history, "events": run.events}
    return {"project": {"run": {name: [json.dumps(row) for row in held[:count]] for name, held in rows.items()}}}


def _page(store: Store, variables: Variables, url: str) -> Any:
    run = store.runs[variables["run"]]
    low, high = variables["minStep"], variables["maxStep"]
    rows = [json.dumps(row) for row in run.history if low <= row["_step"] < high]
    return {"project": {"run": {"history": rows[: variables["pageSize"]]}}}


def _keys(store: Store, variables: Variables, url: str) -> Any:
    run = store.runs.get(variables["name"])
    return {"project": {"run": run and {"historyKeys": _node(run)["historyKeys"]}}}


def _state(store: Store, variables: Variables, url: str) -> Any:
    run = store.runs.get(variables["name"])
    return {"project": {"run": run and {"state": run.state}}}


def _constant(value: Any) -> Callable[[Store, Variables, str], Any]:
    return lambda store, variables, url: value


OPERATIONS: dict[str, Callable[[Store, Variables, str], Any]] = {
    "Viewer": _viewer,
    "GetViewer": _viewer,
    "GetDefaultEntity": _viewer,
    "UpsertBucket": _upsert_run,
    "RunResumeStatus": _resume_status,
    "RewindRun": _rewind,
    "OrganizationCoreWeaveOrganizationID": _constant({"entity": {"organization": None}}),
    "ServerFeaturesQuery": _constant({"serverInfo": {"features": []}}),
    "XXHashDigestsEnabled": _constant({"entity": None}),
    "FetchArtifactDigestAlgorithm": _constant({"project": None}),
    "OrgFeatureFlags": _constant({"organization": None}),
    "FetchOrgEntityFromEntity": _constant({"entity": {"organization": None}}),
    "MarkRunFilesUploaded": _constant({"markRunFilesUploaded": {"success": True}}),
    "CreateRunFiles": _create_run_files,
    "NotifyScriptableRunAlert": _alert,
    "CreateArtifact": _create_artifact,
    "CreateArtifactManifest": _manifest,
    "UpdateArtifactManifest": _manifest,
    "CreateArtifactFiles": _artifact_files,
    "CommitArtifact": _commit_artifact,
    "ArtifactByID": _artifact_by_id,
    "UseArtifact": _constant({"useArtifact": {"artifact": {"id": ""}}}),
    "Run": _run,
    "Runs": _runs,
    "RunState": _state,
    "RunSampledHistory": _sampled,
    "SampledHistoryPage": _sampled,
    "RunFullHistory": _full,
    "HistoryPage": _page,
    "RunHistoryKeys": _keys,
    "RunParquetHistory": _constant({"project": {"run": {"parquetHistory": {"parquetUrls": [], "liveData": []}}}}),
}
