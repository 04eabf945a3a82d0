"""The GraphQL operations that the real wandb client uses, answered from the stand-in's store."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from typing import Any

from tests.fakes.wandb_reads import ENTITY, INTERNAL_ID, READS, Variables, artifact_node, bucket, time_text
from tests.fakes.wandb_store import Artifact, Link, Run, Store


class Denied(Exception):
    """What a mutation answers as an error of GraphQL, with status 200."""


def operation_name(request: dict[str, Any]) -> str:
    """The name of the operation in a GraphQL request; of one without a name, its first field."""
    found = re.search(r"(?:query|mutation)\s+(\w+)|{\s*(\w+)", request.get("query", ""))
    return request.get("operationName") or (found[1] or found[2] if found else "")


def answer(store: Store, request: dict[str, Any], url: str) -> dict[str, Any]:
    """The reply to one GraphQL request."""
    name = operation_name(request)
    resolve = OPERATIONS.get(name)
    if resolve is None:
        return {"errors": [{"message": f"unknown operation {name!r}"}], "data": None}
    variables = {**(request.get("variables") or {}), "_light": "fragment LightweightRunFragment" in request["query"]}
    try:
        return {"data": resolve(store, variables, url)}
    except Denied as error:
        return {"errors": [{"message": str(error)}], "data": None}


def _viewer(store: Store, variables: Variables, url: str) -> Any:
    account = {"id": "1", "entity": ENTITY, "username": ENTITY, "email": "someone@localhost", "name": ENTITY}
    more = {"flags": "{}", "teams": {"edges": []}, "apiKeys": {"edges": []}, "admin": False, "deletedAt": None}
    clients = {"cliVersionInfo": {"max_cli_version": "99.0.0"}}  # clients before 0.30 ask for it beside
    return {"viewer": {**account, **more, "userEntity": {"name": ENTITY}}, "serverInfo": clients}


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
    if variables.get("id"):  # a client that resumes the run; W&B has one state for it, so the last one's is over
        run.preempting = False
    return {"upsertBucket": {"bucket": bucket(run), "inserted": inserted}}


def _delete_run(store: Store, variables: Variables, url: str) -> Any:
    del store.runs[base64.b64decode(variables["id"]).decode()]
    return {"deleteRun": {"clientMutationId": None}}


def _resume_status(store: Store, variables: Variables, url: str) -> Any:
    run = store.find(variables.get("entity"), variables.get("project"), variables.get("name"))
    model = {"id": "2", "name": variables.get("project"), "entity": {"id": "1", "name": ENTITY}, "bucket": None}
    if run is None:
        return {"model": model}
    found = {
        **bucket(run),
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
    return {"model": {**model, "bucket": found}}


def _rewind(store: Store, variables: Variables, url: str) -> Any:
    run = store.runs[variables["runName"]]
    lines = run.lines.get("wandb-history.jsonl", {})
    keep = [lines[k] for k in sorted(lines) if json.loads(lines[k])["_step"] <= variables["metricValue"]]
    run.lines["wandb-history.jsonl"] = dict(enumerate(keep))
    return {"rewindRun": {"rewoundRun": bucket(run)}}


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
            id=f"a{len(store.artifacts):03}",  # decoded as base64 by older clients
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


def _artifact_type(store: Store, variables: Variables, url: str) -> Any:
    name = variables["name"].partition(":")[0]
    found = next((artifact for artifact in store.artifacts if artifact.name == name), None)
    return {"project": {"artifact": found and {"artifactType": {"name": found.type}}}}


def _manifest(store: Store, variables: Variables, url: str) -> Any:
    id = variables.get("artifactID") or variables["artifactManifestID"].removeprefix("m-")
    file = {"id": f"f-{id}", "uploadUrl": f"{url}/uploads/manifest/{id}/manifest", "uploadHeaders": []}
    inner = {"artifactManifest": {"id": f"m-{id}", "file": file}}
    return {"createArtifactManifest": inner, "updateArtifactManifest": inner}


def _artifact_files(store: Store, variables: Variables, url: str) -> Any:
    edges = []
    given = variables.get("input") or variables["artifactFiles"]
    for spec in given["artifactFiles"] if isinstance(given, dict) else given:
        id = spec["artifactID"]
        upload = f"{url}/uploads/artifact/{id}/{spec['name']}"
        node = {"storagePath": f"artifact/{id}/{spec['name']}", "uploadUrl": upload, "uploadHeaders": []}
        edges.append({"node": {**node, "uploadMultipartUrls": None, "artifact": {"id": id}}})
    return {"createArtifactFiles": {"files": {"edges": edges}}}


def _commit_artifact(store: Store, variables: Variables, url: str) -> Any:
    artifact = store.artifact(variables["artifactID"])
    artifact.state = "COMMITTED"
    return {"commitArtifact": {"artifact": {"id": artifact.id, "digest": artifact.digest}}}


def _link_artifact(store: Store, variables: Variables, url: str) -> Any:
    given = variables["input"]
    project, name, id = given["projectName"], given["artifactPortfolioName"], given["artifactID"]
    if store.registries is not None and project not in store.registries:
        raise Denied(f"project {project} not found in entity {given['entityName']}")
    there = [link for link in store.links if (link.entity, link.project, link.collection) ==
             (given["entityName"], project, name)]  # fmt: skip
    found = next((link for link in there if link.artifact == id), None)
    if found is None:
        found = Link(given["entityName"], project, name, id, [], len(there))
        store.links.append(found)
    aliases = [item["alias"] for item in given.get("aliases") or []]
    for link in there:
        link.aliases = [alias for alias in link.aliases if alias not in (*aliases, "latest")]
    found.aliases = [*found.aliases, *(alias for alias in (*aliases, "latest") if alias not in found.aliases)]
    of = {"id": "2", "internalId": INTERNAL_ID, "name": project, "entity": {"id": "1", "name": found.entity}}
    collection = {"__typename": "ArtifactPortfolio", "id": f"p-{name}", "name": name, "project": of}
    membership = {
        "__typename": "ArtifactCollectionMembership",
        "id": f"m-{id}",
        "versionIndex": found.version,
        "createdAt": time_text(0),
        "aliases": [{"__typename": "ArtifactAlias", "id": alias, "alias": alias} for alias in found.aliases],
        "artifactCollection": collection,
        "artifact": artifact_node(store, store.artifact(id), url),
    }
    return {"result": {"versionIndex": found.version, "artifactMembership": membership}}


def _organization(store: Store, variables: Variables, url: str) -> Any:
    return {"entity": {"organization": {"name": "Lab", "orgEntity": {"name": "lab-org"}}, "user": None}}


def _constant(value: Any) -> Callable[[Store, Variables, str], Any]:
    return lambda store, variables, url: value


OPERATIONS: dict[str, Callable[[Store, Variables, str], Any]] = {
    "Viewer": _viewer,
    "viewer": _viewer,
    "GetViewer": _viewer,
    "GetDefaultEntity": _viewer,
    "UpsertBucket": _upsert_run,
    "RunResumeStatus": _resume_status,
    "DeleteRun": _delete_run,
    "RewindRun": _rewind,
    "OrganizationCoreWeaveOrganizationID": _constant({"entity": {"organization": None}}),
    "ServerFeaturesQuery": _constant(
        {"serverInfo": {"features": [{"name": "ARTIFACT_MEMBERSHIP_IN_LINK_ARTIFACT_RESPONSE", "isEnabled": True}]}}
    ),
    "XXHashDigestsEnabled": _constant({"entity": None}),
    "FetchArtifactDigestAlgorithm": _constant({"project": None}),
    "OrgFeatureFlags": _constant({"organization": None}),
    "FetchOrgEntityFromEntity": _constant({"entity": {"organization": None}}),
    "MarkRunFilesUploaded": _constant({"markRunFilesUploaded": {"success": True}}),
    "CreateRunFiles": _create_run_files,
    "NotifyScriptableRunAlert": _alert,
    "CreateArtifact": _create_artifact,
    "ArtifactType": _artifact_type,
    "CreateArtifactManifest": _manifest,
    "UpdateArtifactManifest": _manifest,
    "CreateArtifactFiles": _artifact_files,
    "CommitArtifact": _commit_artifact,
    "LinkArtifact": _link_artifact,
    "FetchOrgInfoFromEntity": _organization,
    "UseArtifact": _constant({"useArtifact": {"artifact": {"id": ""}}}),
    **READS,
}
