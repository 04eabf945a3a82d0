"""A session with the real wandb client: settings, exit, errors, and queries about what the server has stored.

wandb's own ``finish`` waits without limit and always tells the server that the run has ended. So this module sends the
exit record itself: with a time limit, and marked "not complete" where the run only pauses, which uploads everything and
leaves the run running.

``Watch`` reads the client's own log, the only source that reports on its uploads. It detects that the server asks for
fewer requests, and that the client has given up uploading: the client still accepts rows then, and even the run's exit,
and sends nothing. It ends the client at once when something other than W&B has answered: wandb-core takes any answer
with status 200 to its file stream as a success, even a network's login page or a truncated answer, and continues after
the rows that never arrived. Those rows would be missing for good, because W&B accepts no row out of order. The client's
next request follows a second later, which leaves time to end it; rows are then sent again from the last one that the
server reports.

The client's settings make W&B show the training script, and make failures appear soon.

A row is published as a whole record, with its ``_step``, ``_timestamp`` and ``_runtime``: ``run.log`` would write the
time since the client began. So the client adds nothing of its own to it: step metrics, the summary and the definitions
of new metrics come from :mod:`trackers.backends.wandb.summary`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import platform
import re
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from trackers.backends.wandb import datastore_writer, precheck, private_names, system_metrics
from trackers.backends.wandb.history_rows import DestinationRow, destination_row
from trackers.errors import DeliveryError, Fatal, Refused, Rejected, Unavailable
from trackers.support import machines, processes, run_requests
from trackers.support.confined import local
from trackers.support.failpoints import failpoint
from trackers.tracker import RunInfo

_logger = logging.getLogger(__name__)

INIT_TIMEOUT_S = 30.0  # W&B's own is 90: the delivery tries again itself
ASK_TIMEOUT_S = 20.0
RETRIES = 2  # few: the delivery tries again itself
STREAM_RETRIES = 10
"""Retries of the file stream, about four minutes in all: a server under the load of many runs refuses the same one
several times in a row. A server that is down is detected by our own queries."""
STREAM_RETRY_S = 30.0
"""Longest pause between these retries."""
FLUSH_S = 1.0
"""Seconds between writes of the offline file, and between requests of the file stream (W&B's default: 15 each). The
client accepts whole seconds only; less than one means its default."""


def pass_on_stop(info: RunInfo) -> None:
    """Ask the run to stop, since somebody pressed Stop on its page; the client calls this, once, in a thread."""
    attempt = int(info.attempts[-1].get("number", 1)) if info.attempts else 1
    asked = run_requests.new_request(attempt, stop=True, checkpoint=False, by="W&B's Stop button", who="")
    try:
        run_requests.ask(Path(info.directory), asked)
    except OSError as error:
        _logger.warning("somebody pressed Stop on the run's page, and the run can't be asked to: %s", error)


def client_settings(info: RunInfo, online: bool) -> dict[str, Any]:
    """Settings that make W&B show the training script, and make failures appear soon."""
    here = trains_here(info)
    settings: dict[str, Any] = {
        "console": "wrap",  # its service accepts no lines otherwise; see _without_capture
        "silent": True,
        "disable_code": True,
        "save_code": False,
        "disable_git": not info.git or info.foreign,  # git runs what a repository's configuration names
        "git_remote_url": info.git.get("remote"),
        "git_commit": info.git.get("commit"),
        "git_root": None if info.foreign else info.git.get("root"),
        "program": info.program or None,
        "program_relpath": _relative(info) or None,
        "program_abspath": str(Path(info.cwd, info.program)) if info.program and info.cwd else None,
        "x_executable": info.python or None,
        "x_disable_meta": True,  # see environment
        "host": info.host or None,
        "username": info.user or None,
        "sweep_id": info.option("WANDB_SWEEP_ID", "") or None,
        **system_metrics.settings(info, here),
        "x_disable_machine_info": not same_host(info),
        # Else the client writes its own running time into the summary. Online the server would be told, and compute the
        # summary from the rows.
        "x_server_side_derived_summary": None if online else True,
        "x_save_requirements": here,
        "x_transaction_log_flush_interval": FLUSH_S,
        "x_file_stream_transmit_interval": FLUSH_S,
        "x_file_stream_retry_max": STREAM_RETRIES,
        "x_file_stream_retry_wait_min_seconds": 1.0,
        "x_file_stream_retry_wait_max_seconds": STREAM_RETRY_S,
        "x_file_transfer_retry_max": RETRIES,
        "x_file_transfer_retry_wait_min_seconds": 1.0,
        "x_file_transfer_retry_wait_max_seconds": 5.0,
        "x_graphql_retry_max": RETRIES,
        "x_graphql_retry_wait_min_seconds": 1.0,
        "x_graphql_retry_wait_max_seconds": 2.0,
        "x_graphql_timeout_seconds": ASK_TIMEOUT_S,
        "init_timeout": INIT_TIMEOUT_S,
        # Else the client interrupts this process, which is the delivery.
        "stop_fn": functools.partial(pass_on_stop, info) if online else None,
    }
    return private_names.known_settings(settings)


def same_host(info: RunInfo) -> bool:
    """Whether training ran, or runs, on this machine."""
    return not info.host or info.host == socket.gethostname()


def trains_here(info: RunInfo) -> bool:
    """Whether training runs now, on this machine, and the run isn't a foreign one."""
    return not info.foreign and machines.is_here(info) and processes.alive(info.pid, info.pid_start)


def _relative(info: RunInfo) -> str:
    root = info.git.get("root") or info.cwd
    if not root or not info.program or info.program.startswith("-"):
        return info.program
    relative = os.path.relpath(os.path.join(info.cwd, info.program), root)
    return info.program if relative.startswith("..") else relative


def client_environment(info: RunInfo) -> Any:
    """What W&B shows of the process (``wandb-metadata.json``): that of the training, not this one."""
    import psutil
    from wandb.proto import wandb_internal_pb2 as protocol

    environment = protocol.EnvironmentRecord(
        program=info.program,
        code_path=_relative(info),
        code_path_local=_relative(info),
        args=list(info.argv),
        executable=info.python,
        host=info.host,
        username=info.user,
        root=info.cwd,
    )
    if info.created:
        environment.started_at.FromNanoseconds(int(info.created * 1e9))
    if info.git.get("remote"):
        environment.git.remote_url = info.git["remote"]
    if info.git.get("commit"):
        environment.git.commit = info.git["commit"]
    if same_host(info):
        environment.os = platform.platform()
        environment.python = f"{platform.python_implementation()} {platform.python_version()}"
        environment.cpu_count = psutil.cpu_count(logical=False) or 0
        environment.cpu_count_logical = psutil.cpu_count() or 0
        environment.memory.total = psutil.virtual_memory().total
    return environment


def machine_of(values: Mapping[str, Any], node: int) -> dict[str, Any]:
    """What a record of the environment says of a machine: its ``properties``, and its ``gpus`` in their order; {} for
    nothing.

    Args:
        node: the machine's number.
    """
    own = f"node{node}"
    machines, gpus = values.get("machines"), values.get("gpus")
    if not isinstance(machines, dict) or not isinstance(machines.get(own), dict):
        return {}
    of_node = [
        gpu
        for label, gpu in (gpus.items() if isinstance(gpus, dict) else ())
        if isinstance(gpu, dict) and (not label.startswith("node") or label.startswith(f"{own}."))
    ]
    return {"properties": machines[own], "gpus": of_node}


INVALID_ANSWER = b"filestream: json decode error"
"""Message of wandb-core 0.31 in ``debug-internal.log`` for an answer that it can't parse."""
GIVEN_UP = re.compile(rb'"msg":"filestream: fatal error: ([^\n]*)')
"""Its message when it has stopped sending rows."""
STREAM_LIMITED = re.compile(rb'"msg":"api: retrying HTTP error","status":429,"url":"[^"\n]*/file_stream"')
"""Its message when the server asks for fewer requests of the file stream."""
BEGIN_LIMITED = re.compile(rb'"msg":"api: retrying HTTP error","status":429,"url":"[^"\n]*/graphql"')
"""The same for requests that begin a run or change its configuration: both count against one limit."""
TOO_LONG = re.compile(rb'"msg":"filestream: run summary line too long, skipping","len":(\d+)')
"""Its message when it leaves out the run's whole summary because it is too long."""
NOT_SAVED = re.compile(rb'"msg":"runupserter: failed to upload changes","error":"([^\n]*)')
"""Its message when it has dropped the pending changes of a run's configuration, name and tags."""
RETRIES_EXHAUSTED = "giving up after"
"""Part of that message where the server was down or busy, so that the same changes may succeed later."""
TOO_MANY = "HTTP 429"
HTTP_STATUS = re.compile(r"HTTP \d{3}")
RETRIED = re.compile(rb'"msg":"api: retrying HTTP error","status":(\d+)')
"""Its message before each retry: before 0.28, it gives up without saying the status."""
POLL_S = 0.1
"""Seconds between reads of the log: a tenth of the client's request interval (``x_file_stream_transmit_interval``)."""
LONGEST_LINE = 1 << 20
"""Maximum number of bytes kept of an incomplete line: the client logs the server's answers, which can be long."""


class Watch:
    """Follows a client's log in a thread of its own.

    Attributes:
        foreign_answer: whether something other than W&B has answered.
        given_up: why the client has stopped sending rows; "" while it sends them.
        limited: how often the server asked for fewer requests of the file stream.
        not_saved: why the client has dropped changes of the run's configuration, name and tags; "" if it hasn't.
        retried: the status that the client retried last; "" if none.
        too_long: size in bytes, as text, of the summary that the client left out; "" if it left out none.

    Args:
        log: the client's ``debug-internal.log``, or a function that returns its path; it needn't exist yet.
        end: ends the client after a foreign answer; called once, from the thread.
        refused: called from the thread when the server refuses to begin a run because too many begin at once.
    """

    def __init__(
        self, log: Path | Callable[[], Path | None], end: Callable[[], object], refused: Callable[[], object] = int
    ) -> None:
        self._log = log
        self._end_client = end
        self._refused = refused
        self._offset = 0
        self._partial_line = b""
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self.foreign_answer = False
        self.given_up = ""
        self.not_saved = ""
        self.too_long = ""
        self.retried = ""
        self.limited = 0
        threading.Thread(target=self._follow, name="wandb-watch", daemon=True).start()

    def set_log(self, log: Path) -> None:
        """Set the log's path, unless it is known already."""
        with self._lock:
            if not isinstance(self._log, Path):
                self._log = log

    def stop(self) -> None:
        """Stop following the log."""
        self._stopped.set()

    def poll(self) -> None:
        """Read what was appended to the log, and update the attributes."""
        with self._lock, contextlib.suppress(OSError):
            if not isinstance(self._log, Path):
                log = self._log()
                if log is None:
                    return
                self._log = log
            if self._log.stat().st_size <= self._offset:
                return
            with self._log.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
            self._offset += len(new)
            lines, newline, partial = (self._partial_line + new).rpartition(b"\n")
            self.foreign_answer = self.foreign_answer or INVALID_ANSWER in lines + newline + partial
            self.limited += len(STREAM_LIMITED.findall(lines))
            self.given_up = self.given_up or _logged(GIVEN_UP, lines)
            self.not_saved = self.not_saved or _logged(NOT_SAVED, lines)
            self.too_long = self.too_long or _logged(TOO_LONG, lines)
            if retried := RETRIED.findall(lines):
                self.retried = retried[-1].decode()
            if BEGIN_LIMITED.search(lines):
                self._refused()
            self._partial_line = partial[-LONGEST_LINE:]

    def was_limited(self, why: str) -> bool:
        """Whether the client has given something up, with this message, because it was to send fewer requests."""
        return TOO_MANY in why or (not HTTP_STATUS.search(why) and self.retried == "429")

    def _follow(self) -> None:
        while not self._stopped.wait(POLL_S):
            self.poll()
            if self.foreign_answer:
                self._end_client()
                return


def _logged(message: re.Pattern[bytes], log: bytes) -> str:
    """The detail that a message of the client's log names; "" if the log has no such message."""
    match = message.search(log)
    return " ".join(match[1].decode("utf-8", "replace").split()) if match else ""


FINISH_TIMEOUT_S = 900.0
"""Timeout of the last uploads, in seconds, before all of it is retried."""
PAGE = 1000
"""Number of rows that one query asks for."""
STEPS_FACTOR = 8
"""Factor by which the range of steps of a query grows and shrinks with the number of rows in the answer."""

RESUME_STATUS = """
query RunResumeStatus($project: String, $entity: String, $name: String!) {
    model(name: $project, entityName: $entity) {
        bucket(name: $name, missingOk: true) { historyTail logLineCount eventsLineCount }
    }
}
"""
SUMMARY = """
query RunResumeStatus($project: String, $entity: String, $name: String!) {
    model(name: $project, entityName: $entity) { bucket(name: $name, missingOk: true) { summaryMetrics } }
}
"""
EVENTS = """
query RunFullHistory($project: String!, $entity: String!, $name: String!, $samples: Int) {
    project(name: $project, entityName: $entity) { run(name: $name) { events(samples: $samples) } }
}
"""
EVENTS_MORE = 1000
"""Lines of the system tab asked for beyond the server's count: some may come meanwhile."""
UPSERT_RUN = """
mutation UpsertBucket($name: String!, $entity: String, $project: String, $displayName: String, $notes: String,
                      $tags: [String!], $groupName: String, $jobType: String, $config: JSONString,
                      $summaryMetrics: JSONString) {
    upsertBucket(input: {name: $name, entityName: $entity, modelName: $project, displayName: $displayName,
                         notes: $notes, tags: $tags, groupName: $groupName, jobType: $jobType, config: $config,
                         summaryMetrics: $summaryMetrics}) { bucket { id } }
}
"""
HISTORY_PAGE = """
query HistoryPage($entity: String!, $project: String!, $run: String!, $minStep: Int64!, $maxStep: Int64!,
                  $pageSize: Int!) {
    project(name: $project, entityName: $entity) {
        run(name: $run) { history(minStep: $minStep, maxStep: $maxStep, samples: $pageSize) }
    }
}
"""
REFUSED_STATUSES = (401, 403, 404)
NOT_TAKEN_STATUSES = (400, 413, 422)
CLIENT_MESSAGES = re.compile(r"^(Timed out|Failed to|Error |Run initialization has timed out)|giving up after")
"""Messages that wandb's client itself writes when a run can't begin; others of the same class come from the server."""
_ONE_THREAD = threading.RLock()
STATUS = re.compile(r"(?:status|error|HTTP|code)\D{0,12}\b([45]\d\d)\b|\b([45]\d\d) (?:[A-Z][a-z]+)", re.IGNORECASE)


class NotTaken(Unavailable):
    """The server refuses some of the data, and would refuse it again.

    Args:
        rows: True if it was sent with the run's rows; False if with its configuration, name, tags, notes and group.
    """

    def __init__(self, message: str, *, rows: bool = False) -> None:
        super().__init__(message)
        self.rows = rows


class Begin(NamedTuple):
    """When a run began, in Unix seconds, less its pauses; and how long it has trained, in seconds."""

    time: float
    runtime_s: float


class WandbSession:
    """A run opened with ``wandb.init``. ``run`` is wandb's own object.

    ``ignores_refused_config``: whether it is no error that the server refuses the client's changes of the
    configuration. ``described``: whether the machine was told with its GPUs.
    """

    def __init__(
        self, info: RunInfo, *, resume: bool, fields: dict[str, Any], begin: Begin, rewind: int | None = None,
        refused: Callable[[], object] = int,
    ) -> None:  # fmt: skip
        """Open the run; ``fields`` go to ``wandb.init`` as they are.

        Args:
            begin: when the run began, and how long it has trained.
            refused: called when the server refuses to begin a run because too many begin at once; the client retries.
            rewind: have the server drop the run's rows above this ``_step``
                (https://docs.wandb.ai/guides/runs/rewind; not every server can).

        Raises:
            DeliveryError: as :func:`translate` says.
        """
        mode = precheck.mode(info.options)
        if mode == "online":
            try:
                precheck.reach()
            except OSError as error:
                raise Unavailable(f"no answer from {precheck.host()}: {error.strerror or error}") from None
        import wandb

        if mode == "disabled":
            raise Fatal("W&B is switched off by WANDB_MODE=disabled; unset it")
        self.online = mode == "online"
        self._query: private_names.Query | None = None
        self._info = info
        if self.online and not precheck.logged_in():
            raise Refused("no API key; run 'wandb login', set WANDB_API_KEY, or set WANDB_MODE=offline")
        if not self.online:
            _await_new_directory(directory(info) / "wandb", info.id)
        log = _new_log(directory(info) / "wandb", info.id)
        self._watch = Watch(log, private_names.kill_service, refused) if self.online else None
        self.refused = refused
        self.ignores_refused_config = False
        self.described = False
        self._runtime_s = float(int(begin.runtime_s))
        self._counts_since: float | None = None
        try:
            failpoint("wandb.init.before")
            runtime_s = int(begin.runtime_s) if self.online else None
            begun = private_names.begun(begin.time, runtime_s)
            with _as_training(info), private_names.without_launch(), private_names.without_capture(), begun:
                self.run: Any = wandb.init(
                    id=info.id,
                    **_project_and_entity(info),
                    dir=str(directory(info)),
                    mode="online" if self.online else "offline",
                    resume="allow" if (resume or self.online) and rewind is None else None,  # it may be there
                    resume_from=None if rewind is None else f"{info.id}?_step={rewind}",
                    reinit="create_new",
                    settings=wandb.Settings(**client_settings(info, self.online)),
                    **fields,
                )
        except Exception as error:
            if self._watch is not None:
                self._watch.stop()
            abandon()
            failure = translate(error)
            if type(failure) is Unavailable and isinstance(error, wandb.errors.CommError):
                text = str(failure)
                failure = failure if CLIENT_MESSAGES.search(text) else NotTaken(text)
            raise failure from error
        failpoint("wandb.init.after")
        self._counts_since = monotonic()
        self.files = Path(self.run.dir).parent
        self.agent = not self.run.settings.x_disable_stats
        if self._watch is not None:
            self._watch.set_log(self.files / "logs" / "debug-internal.log")
        private_names.interface(self.run).publish_environment(client_environment(info))
        if not self.agent and not trains_here(info):
            self.stop_clock()

    def describe(self, machine: Mapping[str, Any]) -> None:
        """Tell what W&B shows of training's machine (:func:`machine_of`). Its GPUs one by one are told once: the client
        adds those of a second time to the first ones."""
        record = private_names.machine_record(machine, each=not self.described)
        private_names.interface(self.run).publish_environment(record)
        self.described = bool(machine.get("gpus"))

    def stop_clock(self) -> None:
        """Have the client's own running time stand still, and its agent rest: training has ended."""
        if self._counts_since is not None:
            private_names.interface(self.run).publish_pause()
            self._runtime_s += monotonic() - self._counts_since
            self._counts_since = None

    def set_runtime(self, runtime_s: int) -> None:
        """Correct the running time that the client wrote as it ended, if it is wrong by a second or more.

        Raises:
            DeliveryError: a request failed.
        """
        if not self.online or abs(int(self._runtime_s) - runtime_s) < 1:
            return
        bucket = self._ask(SUMMARY, self._target())["model"]["bucket"]
        values = json.loads(bucket.get("summaryMetrics") or "{}")
        own = values.get("_wandb")
        values |= {"_runtime": runtime_s, "_wandb": {**(own if isinstance(own, dict) else {}), "runtime": runtime_s}}
        self._change({"summaryMetrics": json.dumps(values)})

    def url_of(self, directories: Sequence[Path]) -> str:
        """Link to the run's page; offline the newest directory, with the command that uploads all of them.

        Args:
            directories: of the run's offline files, the oldest first.
        """
        if self.online:
            return str(self.run.url)
        newest = directories[-1]
        several = f"{shlex.quote(str(newest.parent))}/offline-run-*-{shlex.quote(self.run.id)}"
        named = several if len(directories) > 1 else shlex.quote(str(newest))
        return f"{newest} (upload: wandb {private_names.upload_command()} {named})"

    @property
    def file(self) -> Path:
        """The file that the client writes offline."""
        return Path(self.run.settings.sync_file)

    def converted(self, values: dict[str, Any], number: int) -> dict[str, Any]:
        """Media of the row with this ``_step`` as W&B's JSON; their files are uploaded."""
        self.check_answers()
        return private_names.converted(self.run, values, number)

    def publish(self, number: int, texts: Mapping[str, str]) -> None:
        """Add a row with this ``_step``, whose values are JSON texts."""
        from wandb.proto import wandb_internal_pb2 as protocol

        self.check_answers()
        row = protocol.HistoryRecord()
        row.step.num = number
        for name, text in texts.items():
            row.item.add(key=name, value_json=text)
        failpoint("wandb.row.before")
        private_names.interface(self.run)._publish_history(row)
        failpoint("wandb.row.after")

    def events(self) -> Iterator[system_metrics.Event]:
        """The lines of the system tab that the server has: what it gives of them.

        Raises:
            DeliveryError: the query failed.
        """
        count = int(self._bucket().get("eventsLineCount") or 0)
        if not count:
            return
        target = {"entity": self.run.entity, "project": self.run.project, "name": self.run.id}
        run = self._ask(EVENTS, {**target, "samples": count + EVENTS_MORE})["project"]["run"]
        for line in run["events"]:
            row = json.loads(line)
            yield system_metrics.event(
                float(row.get("_timestamp") or 0.0), (name for name in row if not name.startswith("_"))
            )

    def uploaded(self) -> bool:
        """Whether the client has no file left to upload."""
        stats = self._poll(ASK_TIMEOUT_S).pusher_stats
        return bool(stats.uploaded_bytes >= stats.total_bytes)

    def _poll(self, timeout_s: float) -> Any:
        try:
            return private_names.poll_exit(self.run, timeout_s)
        except Exception as error:
            raise_translated(error)

    def last_step(self) -> int:
        """The ``_step`` of the last row that the server has; -1 if it has none.

        Raises:
            DeliveryError: the query failed.
        """
        bucket = self._bucket()
        tail = json.loads(bucket.get("historyTail") or "[]") or []
        return max((int(json.loads(line).get("_step", -1)) for line in tail), default=-1)

    def line_count(self) -> int:
        """Number of console lines that the server has.

        Raises:
            DeliveryError: the query failed.
        """
        return int(self._bucket().get("logLineCount") or 0)

    def _bucket(self) -> dict[str, Any]:
        self.check_answers()
        data = self._ask(RESUME_STATUS, self._target())
        return ((data or {}).get("model") or {}).get("bucket") or {}

    def destination_rows(self, first: int, last: int) -> Iterator[DestinationRow]:
        """The server's rows with ``_step`` from ``first`` to ``last``, reduced to what identifies each.

        Raises:
            DeliveryError: the query failed.
        """
        known: dict[frozenset[str], frozenset[str]] = {}
        for row in self.rows(first, last):
            keys = frozenset(row)
            yield destination_row(row, known.setdefault(keys, keys))

    def rows(self, first: int, last: int) -> Iterator[dict[str, Any]]:
        """The server's rows with ``_step`` from ``first`` to ``last``, in order.

        Raises:
            DeliveryError: the query failed.
        """
        target = {"entity": self.run.entity, "project": self.run.project, "run": self.run.id}
        start, steps, crowded = first, PAGE, first
        while start <= last:
            if start < crowded:  # more rows lie before it than fit in one answer: halve the rest
                steps = min(steps, max(PAGE, (crowded - start) // 2))
            limits = {"minStep": start, "maxStep": min(last + 1, start + steps), "pageSize": PAGE}
            lines = self._ask(HISTORY_PAGE, {**target, **limits})["project"]["run"]["history"]
            if len(lines) > PAGE // 4 and steps > PAGE:  # the server samples where there are more rows than asked for
                crowded, steps = start + steps, max(PAGE, steps // STEPS_FACTOR)
                continue
            for line in lines:
                yield json.loads(line)
            start += steps
            if len(lines) < PAGE // STEPS_FACTOR:  # rows may be a million steps apart: a step may be a token count
                steps *= STEPS_FACTOR

    def end(self, exit_code: int, *, complete: bool, timeout_s: float) -> None:
        """Upload everything pending and close the client; with ``complete``, mark the run ended with this exit code.

        Raises:
            Unavailable: it took longer than ``timeout_s``, or not all files arrived.
        """
        run = self.run
        self.stop_clock()
        try:
            private_names.stop_asking(run)
            failpoint("wandb.exit.before")
            private_names.send_exit(run, exit_code, complete=complete, timeout_s=timeout_s)
            failpoint("wandb.exit.after")
            files = self._poll(timeout_s).pusher_stats
            private_names.leave(run)
            with _quiet():
                run.finish(exit_code=exit_code)
            if files.uploaded_bytes < files.total_bytes:  # given up without an error
                raise Unavailable(f"W&B took {files.uploaded_bytes} of {files.total_bytes} bytes of files")
            if not self.online:
                self._check_file_complete()
            self.check_answers()
        except TimeoutError:
            self.check_answers()
            raise Unavailable(f"W&B took more than {timeout_s:g} s for the last uploads") from None
        except Exception as error:
            raise_translated(error)
        finally:
            if self._watch is not None:
                self._watch.stop()

    def check_answers(self) -> None:
        """Raise the error that the client's log shows, if any: a foreign answer, uploads given up, changes refused."""
        if self._watch is None:
            return
        self._watch.poll()
        if self._watch.foreign_answer:
            raise Unavailable("the answer didn't come from W&B but from a proxy or a network's login page")
        if why := self._watch.given_up:
            text = f"W&B's client has given up its uploads ({why[-300:]})"
            if RETRIES_EXHAUSTED not in why and _status(why) in NOT_TAKEN_STATUSES:
                raise NotTaken(text, rows=True)
            raise Unavailable(text, limited=self._watch.was_limited(why))
        if (why := self._watch.not_saved) and not (self.ignores_refused_config and RETRIES_EXHAUSTED not in why):
            text = f"W&B didn't take the run's configuration ({why[-300:]})"
            if RETRIES_EXHAUSTED in why:
                raise Unavailable(text, limited=self._watch.was_limited(why))
            raise Refused(text) if _status(why) in REFUSED_STATUSES else NotTaken(text)

    def limited(self) -> int:
        """How often the server has asked for fewer requests since the client was opened."""
        return self._watch.limited if self._watch is not None else 0

    def _check_file_complete(self) -> None:
        # The client answers before its service has written the last records of an offline file.
        path = self.file
        datastore_writer.await_writers([path])
        if not datastore_writer.has_ended(path):
            raise Unavailable(f"wandb didn't finish writing {path}")

    def clear(self, names: Iterable[str]) -> None:
        """Empty some of the run's attributes (tags, notes, group): the client itself sends no empty values.

        Raises:
            DeliveryError: the server didn't accept it.
        """
        empty = {"tags": ("tags", []), "notes": ("notes", ""), "group": ("groupName", "")}
        self._change(dict(empty[name] for name in names))

    def refusal(self, fields: dict[str, Any]) -> str:
        """Set attributes of the run, as the server names them.

        Returns:
            why the server refuses them for good; "" if it accepted them.

        Raises:
            DeliveryError: the request failed in another way.
        """
        try:
            self._change(fields)
        except NotTaken as error:
            return str(error)
        return ""

    def too_long(self) -> int:
        """Size in bytes of the summary that the client has left out as too long; 0 if it left out none."""
        return int(self._watch.too_long) if self._watch is not None and self._watch.too_long else 0

    def _change(self, fields: dict[str, Any]) -> None:
        self._ask(UPSERT_RUN, {**self._target(), **fields})

    def _target(self) -> dict[str, Any]:
        return {"name": self.run.id, "entity": self.run.entity, "project": self.run.project}

    def _ask(self, query: str, variables: dict[str, Any]) -> Any:
        try:
            if self._query is None:
                with _quiet():
                    self._query = private_names.query(self.run.settings)
            return self._query(query, variables, ASK_TIMEOUT_S)
        except Exception as error:
            failure = translate(error)
            if type(failure) is Unavailable and getattr(error, "response", None) is not None and is_refusal(error):
                failure = NotTaken(str(failure))
            raise failure from error


def _project_and_entity(info: RunInfo) -> dict[str, Any]:
    """The run's project and entity, as ``wandb.init`` takes them; without an entity, W&B uses the login's own."""
    return {
        "project": info.option("WANDB_PROJECT") or os.environ.get("WANDB_PROJECT") or info.project,
        "entity": info.option("WANDB_ENTITY") or os.environ.get("WANDB_ENTITY"),
    }


def delete(info: RunInfo) -> str:
    """Delete a run on the server; its artifacts stay. Returns a message that says what happened.

    Raises:
        DeliveryError: the request failed, or was refused.
    """
    if not precheck.logged_in():
        raise Refused("no API key; run 'wandb login' or set WANDB_API_KEY")
    target = _project_and_entity(info)
    try:
        import wandb

        api = wandb.Api(timeout=int(ASK_TIMEOUT_S))
        path = f"{target['entity'] or api.default_entity}/{target['project']}/{info.id}"
        try:
            run = api.run(path)
        except (ValueError, wandb.errors.CommError) as error:
            if "could not find run" in str(error).lower():
                return f"W&B has no run {path}"
            raise
        run.delete()
    except Exception as error:
        raise_translated(error)
    return f"{path} deleted in W&B for good; its artifacts stay there"


def directory(info: RunInfo) -> Path:
    """The directory in which W&B makes its ``wandb`` folder: the run's own unless WANDB_DIR is set, which is relative
    to the directory that training was started in. On another machine the run's WANDB_DIR is ignored, and the local one
    counts."""
    if info.foreign:
        return Path(str(info.option("WANDB_DIR")))
    option = info.option("WANDB_DIR", "") if same_host(info) else ""
    configured = str(option or os.environ.get("WANDB_DIR") or "")
    if not configured:
        return Path(info.directory)
    base = local(info.cwd) if info.cwd and Path(local(info.cwd)).is_dir() else ""
    return Path(base, Path(configured).expanduser()).absolute()


def abandon() -> None:
    """End wandb's service without waiting for it, so that the client can be opened afresh."""
    private_names.kill_service()
    with _quiet():
        private_names.forget_service()


def is_refusal(error: Exception) -> bool:
    """Whether the server refused a direct request for good, so that a retry would be refused, too."""
    cause = getattr(error, "exc", None) or error
    answer = getattr(cause, "response", None)
    if answer is None:  # no answer in time: wandb tried for a while
        return isinstance(cause, (ValueError, TypeError)) or private_names.is_graphql_error(cause)
    status = private_names.http_status(answer)  # 0 for errors of GraphQL
    return status != 429 and status < 500


def refused(text: str) -> Refused:
    """The error for a login that is refused, or an entity or project that doesn't exist."""
    return Refused(f"W&B refused ({text}); check 'wandb login', WANDB_ENTITY and the project's name")


def raise_translated(error: Exception) -> NoReturn:
    """Raise what :func:`translate` makes of an error."""
    raise translate(error) from error


def translate(error: Exception) -> DeliveryError:
    """Convert an error of wandb into ours: Refused for 401, 403 and 404, Fatal if the client is too old or broken,
    Rejected for values the client refuses, NotTaken for data the server refuses, Unavailable for everything
    temporary."""
    from wandb import errors

    if isinstance(error, DeliveryError):
        return error
    text = " ".join(str(error).split())[:300] or type(error).__name__
    status = private_names.http_status(getattr(error, "response", None)) or _status(text)
    no_key = "API key" in text  # a UsageError, but not about a record
    if status in REFUSED_STATUSES or no_key or isinstance(error, errors.AuthenticationError):
        return refused(text)
    if status == 429:
        return Unavailable(f"W&B asks for fewer requests ({text})", retry_after_s=30.0, limited=True)
    if isinstance(error, (errors.UnsupportedError, ImportError)) or "upgrade" in text.lower():
        return Fatal(f"{text}")
    if isinstance(error, (ValueError, TypeError, errors.UsageError)) or text.startswith("Unhandled define_metric"):
        return Rejected(text)
    return NotTaken(text) if status in NOT_TAKEN_STATUSES else Unavailable(text)


def _status(text: str) -> int:
    """The HTTP status in a message of the client; 0 if it has none."""
    match = STATUS.search(text)
    return int(match.group(1) or match.group(2)) if match else 0


def _new_log(root: Path, run_id: str) -> Callable[[], Path | None]:
    """A function that returns the log of the run that wandb opens after this call; None while there is none."""

    def run_directories() -> set[str]:
        with contextlib.suppress(OSError):
            return {name for name in os.listdir(root) if name.startswith("run-") and f"-{run_id}" in name}
        return set()

    before = run_directories()
    return lambda: max(
        (root / name / "logs" / "debug-internal.log" for name in run_directories() - before), default=None
    )


def _await_new_directory(root: Path, run_id: str) -> None:
    """Wait, at most a second, until wandb's next directory name is unused: its time stamp has whole seconds only."""
    while (root / f"offline-run-{time.strftime('%Y%m%d_%H%M%S')}-{run_id}").exists():
        time.sleep(0.05)


@contextlib.contextmanager
def _as_training(info: RunInfo) -> Iterator[None]:
    # wandb takes the script's arguments from sys.argv and, in some cases, the run's address from the environment; a
    # sweep's parameters, which are in the configuration, it would lock there.
    names = ("WANDB_RUN_ID", "WANDB_SWEEP_PARAM_PATH")
    with _quiet():
        argv, apart = sys.argv, {name: os.environ.pop(name) for name in names if name in os.environ}
        if info.program:
            sys.argv = [info.program, *info.argv]
        try:
            yield
        finally:
            sys.argv = argv
            os.environ.update(apart)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Discard what wandb prints despite ``silent``; errors are raised. Two threads at once left ``stderr`` closed."""
    with _ONE_THREAD, open(os.devnull, "w") as out, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        yield


def monotonic() -> float:
    """Seconds on a monotonic clock, which changes of the system time don't affect."""
    return time.monotonic()
