"""What the tracker uses of W&B's client beyond its public interface: one function each, with what older clients have.

Settings that a client doesn't know are left out (:func:`known_settings`).
:data:`trackers.backends.wandb.precheck.VERSIONS` says which clients were tested, and what the older ones lack.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from trackers.support.client_versions import number

Query = Callable[[str, Mapping[str, Any], float], Any]
"""Sends a GraphQL operation with its variables, waiting so many seconds, and returns what the answer has as data."""


class QueryFailed(Exception):
    """The server refused a query, or failed at it. ``response.http_status`` is 0 for errors of GraphQL."""

    def __init__(self, message: str, http_status: int) -> None:
        super().__init__(message)
        self.response = SimpleNamespace(http_status=http_status)


def known_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that this client has, except those without a value."""
    import wandb

    known = wandb.Settings.model_fields
    return {name: value for name, value in settings.items() if value is not None and name in known}


def interface(run: Any) -> Any:
    """What sends records to the client's service. Before 0.26.1 it belongs to the run's backend."""
    found = getattr(run, "_interface", None)
    return run._backend.interface if found is None else found


def set_next_step(run: Any, number: int) -> None:
    """Name the media files that are converted next by this ``_step``. ``_step`` before 0.27."""
    setattr(run, "_local_step" if hasattr(run, "_local_step") else "_step", number)


def converted(run: Any, values: dict[str, Any], number: int) -> dict[str, Any]:
    """Media of the row with this ``_step`` as W&B's JSON; their files are uploaded.

    Plain: the client's paths are texts of a class of its own, which the delivery's state can't hold.
    """
    from wandb.sdk.data_types.utils import history_dict_to_json

    set_next_step(run, number)
    return dict(json.loads(json.dumps(history_dict_to_json(run, values, step=number))))


def column_type(*, mixed: bool) -> Any:
    """The type of a table's column: W&B infers it from the first cell and refuses others, or takes mixed ones."""
    from wandb.sdk.data_types._dtypes import AnyType, UnknownType

    return AnyType() if mixed else UnknownType()


def set_increment(table: Any, number: int, earlier: list[str], rows: int) -> None:
    """Tell a table's part which one it is, where those before it lie, and how many rows these have."""
    table._increment_num = number
    table._previous_increments_paths = earlier
    if rows:
        table.data[:0] = [None] * rows  # it counts them, and sends those behind the last that was sent
        table._last_logged_idx = rows - 1


def increment_path(table: Any) -> str | None:
    """Where a table's part lies that was sent."""
    path: str | None = table._get_artifact_entry_ref_url()
    return path


def viz_config(name: str, spec: str) -> tuple[tuple[str, ...], Any]:
    """Key and value in the configuration of a table that is shown by a saved chart."""
    from wandb.plot.viz import VisualizeSpec

    made = VisualizeSpec(spec, name)
    return made.config_key, made.config_value


def chart_config(
    name: str, spec: str, fields: dict[str, str], strings: dict[str, str], split_table: bool
) -> tuple[tuple[str, ...], Any]:
    """Key and value in the configuration of a custom chart."""
    from wandb.plot.custom_chart import CustomChartSpec

    made = CustomChartSpec(spec, fields, strings, name, split_table=split_table)
    return made.config_key, made.config_value


def new_artifact(name: str, kind: str, description: str | None, metadata: dict[str, Any]) -> Any:
    """An artifact without files. W&B's client refuses a run's code (:func:`is_code`) in any but a class of its own."""
    import wandb
    from wandb.sdk.artifacts._internal_artifact import InternalArtifact

    made = InternalArtifact if is_code(name, kind) else wandb.Artifact
    return made(name, kind, description=description, metadata=metadata)


def is_code(name: str, kind: str) -> bool:
    """Whether W&B shows an artifact as its run's code."""
    return kind == "code" and name.startswith("source-")


def add_reference(artifact: Any, path: str, uri: str, size: int | None, digest: str) -> None:
    """Add a file that lies elsewhere. Not by ``add_reference``: it asks that place, with its packages and login."""
    from wandb.sdk.artifacts.artifact_manifest_entry import ArtifactManifestEntry

    artifact.manifest.add_entry(ArtifactManifestEntry(path=path, digest=digest or uri, ref=uri, size=size))


def set_config(run: Any, values: dict[str, Any]) -> None:
    """Set values of the configuration as plain data: no text and no mapping in it is taken for an artifact."""
    config = run.config
    config._set_artifact_callback(lambda key, value: value)
    object.__setattr__(config, "_raise_value_error_on_nested_artifact", lambda *_, **__: None)
    config.update(values, allow_val_change=True)


def drop_config(run: Any, names: list[str]) -> None:
    """Remove values of the configuration from what W&B has."""
    from wandb.proto import wandb_internal_pb2 as protocol

    record = protocol.ConfigRecord()
    for name in names:
        if _syncs_in_python():  # it ends at the removal of what isn't there, and with it the upload
            record.update.add(key=name, value_json="{}")
        record.remove.add(key=name)
    if names:
        interface(run)._publish_config(record)


def machine_record(machine: Mapping[str, Any], *, each: bool = True) -> Any:
    """What the client's own agent says of the machine, as it says it. What a client's record has no field for is left
    out (``pci_bus_id`` came in 0.31).

    Args:
        machine: ``properties`` and ``gpus``, as they are recorded (docs/hardware.md).
        each: also what each GPU is; else their number and type.
    """
    from wandb.proto import wandb_internal_pb2 as protocol

    environment = protocol.EnvironmentRecord()

    def put(message: Any, name: str, value: Any) -> None:
        if value and name in {field.name for field in message.DESCRIPTOR.fields}:
            with contextlib.suppress(TypeError, ValueError):  # a run from elsewhere may say anything
                setattr(message, name, value)

    about, gpus = machine.get("properties", {}), machine.get("gpus", [])
    put(environment, "cpu_count", about.get("cores"))
    put(environment, "cpu_count_logical", about.get("threads"))
    if about.get("processor") and hasattr(environment, "cpu"):
        put(environment.cpu, "model", about["processor"])
    put(environment.memory, "total", about.get("memory_total_bytes"))
    disks = about.get("disks")
    for path, disk in disks.items() if isinstance(disks, dict) else ():
        if isinstance(disk, dict):
            put(environment.disk[path], "total", disk.get("total_bytes"))
            put(environment.disk[path], "used", disk.get("used_bytes"))
    put(environment, "gpu_count", len(gpus))
    put(environment, "gpu_type", gpus[0].get("name") if gpus else None)
    put(environment, "cuda_version", gpus[0].get("cuda") if gpus else None)
    names = {
        "nvidia": {
            "name": "name", "memory_total_bytes": "memory_total", "cores": "cuda_cores", "architecture": "architecture",
            "uuid": "uuid", "bus": "pci_bus_id",
        },
        "amd": {"name": "series", "uuid": "unique_id"},
    }  # fmt: skip
    for gpu in gpus if each else ():
        vendor = str(gpu.get("vendor"))
        if vendor in names and hasattr(environment, f"gpu_{vendor}"):
            entry = getattr(environment, f"gpu_{vendor}").add()
            for ours, theirs in names[vendor].items():
                put(entry, theirs, gpu.get(ours))
    return environment


def set_own_config(run: Any, key: tuple[str, ...], value: Any) -> None:
    """Set a value of the client's own part of the configuration."""
    run._config_callback(key=key, val=value)


def set_group(run: Any, group: str | None) -> None:
    """Change the run's group."""
    run._settings.run_group = group
    interface(run).publish_run(run)


def send_exit(run: Any, exit_code: int, *, complete: bool, timeout_s: float) -> None:
    """Send the exit record, and wait until everything is uploaded. Without ``complete``, the run only pauses.

    Raises:
        TimeoutError: it took longer than that.
    """
    from wandb.proto import wandb_internal_pb2 as protocol

    record = protocol.RunExitRecord(exit_code=exit_code, not_complete=not complete)
    result = interface(run)._deliver_exit(record).wait_or(timeout=timeout_s)
    if getattr(result.exit_result, "timed_out", False):  # since 0.27
        raise TimeoutError


def poll_exit(run: Any, timeout_s: float) -> Any:
    """How much of the run's files is uploaded."""
    return interface(run).deliver_poll_exit().wait_or(timeout=timeout_s).response.poll_exit_response


def stop_asking(run: Any) -> None:
    """Have the threads end that ask the service about the run."""
    if run._run_status_checker is not None:
        run._run_status_checker.stop()


def leave(run: Any) -> None:
    """Close the run's connection to the service; ``run.finish`` has nothing to send any more."""
    messages = getattr(run, "_run_messages", None)  # since 0.31; before, the status checker asks for them
    if messages is not None:
        messages.stop(timeout=5)
    interface(run).join()
    if run._run_status_checker is not None:
        run._run_status_checker.join()
    run._atexit_cleanup_called = True


def query(settings: Any) -> Query:
    """What sends GraphQL operations: the client's service; before 0.27, its client of HTTP, with the same login."""
    from wandb.apis.public.service_api import ServiceApi

    if not hasattr(ServiceApi, "execute_graphql"):
        return _http_query(settings)
    api = ServiceApi(settings)
    return lambda text, variables, timeout_s: api.execute_graphql(text, variables, timeout=timeout_s)


def _http_query(settings: Any) -> Query:
    import requests
    from wandb.sdk.internal.internal_api import Api

    own = {"base_url": settings.base_url, "api_key": settings.api_key}
    transport = Api(default_settings=own, load_settings=False).client.transport

    def ask(text: str, variables: Mapping[str, Any], timeout_s: float) -> Any:
        body = {"query": text, "variables": dict(variables)}
        try:
            answer = transport.session.post(transport.url, json=body, headers=transport.headers, timeout=timeout_s)
        except requests.RequestException as error:
            raise ConnectionError(f"Failed to ask {transport.url}: {error}") from error
        try:
            content = answer.json()
        except ValueError:
            content = {}
        errors = content.get("errors") if isinstance(content, dict) else None
        if answer.status_code >= 400 or errors:
            why = "; ".join(str(error.get("message") if isinstance(error, dict) else error) for error in errors or ())
            raise QueryFailed(
                why or f"HTTP {answer.status_code}", answer.status_code if answer.status_code >= 400 else 0
            )
        return content.get("data") or {}

    return ask


def http_status(answer: Any) -> int:
    """The status in an error's ``response``: the service's, or before 0.27 one of the HTTP client; 0 if it has none."""
    return int(getattr(answer, "http_status", 0) or getattr(answer, "status_code", 0) or 0)


def is_graphql_error(error: Exception) -> bool:
    """Whether an error is what the client's HTTP client raises for errors of GraphQL, before 0.27."""
    return type(error) is Exception


def writes_rows_at_once() -> bool:
    """Whether a row is in the offline file as soon as the client's service has it: before 0.31, with 32 KiB of them."""
    import wandb

    return number(wandb.__version__) >= (0, 31)


def upload_command() -> str:
    """Words of the command that uploads an offline file: before 0.28 a second replaces the first, unless appended."""
    return "sync --append" if _syncs_in_python() else "sync"


def _syncs_in_python() -> bool:
    """Whether the client's ``wandb sync`` is the old one, which isn't its service."""
    import wandb

    return number(wandb.__version__) < (0, 28)


def kill_service() -> None:
    """Kill the client's service, if one runs."""
    from wandb.sdk import wandb_setup

    connection = getattr(wandb_setup._singleton, "_connection", None)
    process = getattr(getattr(connection, "_proc", None), "_process", None)
    if process is not None:
        process.kill()
        process.wait()


def forget_service() -> None:
    """Have the client start a new service with the next run."""
    import wandb
    from wandb.sdk import wandb_setup

    with contextlib.suppress(Exception):  # its unsent data is lost; the server is asked what it has
        wandb_setup.teardown(exit_code=1)
    wandb_setup._singleton = None
    os.environ.pop("WANDB_SERVICE", None)
    # A thread that asks whether the run is to stop writes a traceback into the log: the service is gone.
    logging.getLogger("wandb.sdk.lib.asyncio_manager").setLevel(logging.CRITICAL)
    api: Any = getattr(wandb, "api", None)
    if getattr(api, "_api", None) is not None:
        api._api = None  # 0.28 asks it for the server's version by the old service, at each image


def preload() -> None:
    """Import what a session needs."""
    import requests  # noqa: F401
    import wandb  # noqa: F401
    import yaml  # type: ignore[import-untyped]  # noqa: F401
    from wandb.apis.public import service_api  # noqa: F401
    from wandb.proto import wandb_internal_pb2  # noqa: F401


@contextlib.contextmanager
def without_launch() -> Iterator[None]:
    """Keep ``wandb.init`` from searching for staged inputs of W&B Launch where this process can't have staged any: for
    the search it imports all of Launch and the public API, which takes longer than the rest of ``init``."""
    import wandb

    name = "_detect_and_apply_job_inputs"
    look = getattr(wandb.Run, name, None)
    if look is None or "wandb.sdk.launch" in sys.modules:
        yield
        return
    setattr(wandb.Run, name, lambda run: None)
    try:
        yield
    finally:
        setattr(wandb.Run, name, look)


@contextlib.contextmanager
def begun(time: float, runtime_s: int | None) -> Iterator[None]:
    """Have ``wandb.init`` say when training began, and for how long it has run: not this process.

    Args:
        time: Unix seconds.
        runtime_s: None: not said.
    """
    from wandb.sdk.interface.interface import InterfaceBase

    make = InterfaceBase._make_run

    def make_begun(self: Any, run: Any) -> Any:
        record = make(self, run)
        record.start_time.FromMicroseconds(int(time * 1e6))
        if runtime_s is not None:
            record.runtime = runtime_s
        return record

    InterfaceBase._make_run = make_begun
    try:
        yield
    finally:
        InterfaceBase._make_run = make


@contextlib.contextmanager
def without_capture() -> Iterator[None]:
    """Keep ``wandb.init`` from capturing this process's output: the lines of W&B's Logs tab come from training."""
    import wandb

    before = wandb.Run._redirect
    wandb.Run._redirect = lambda run, *_, **__: None
    try:
        yield
    finally:
        wandb.Run._redirect = before
