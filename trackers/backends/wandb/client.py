"""One open run of the real wandb client: its settings, its end, its failures, and what the server says it holds.

wandb's own ``finish`` waits for ever and always tells the server that the run has ended. So the exit record is
sent from here: with a time limit, and marked "not complete" where the run only pauses, which uploads everything and
leaves the run running.

``Watch`` reads the client's own log, the only place that says how its uploads go. It tells when the server asks for
fewer requests, and when the client has given its uploads up: the client takes rows all the same then, and even the
run's end, and sends none of it. It ends the client at once when something that isn't W&B answers for it: wandb-core
takes any answer with status 200 to its file stream as a success, though the answer be a login page of the network's or
cut off, and goes on behind the rows that never arrived: there they would be missing for ever, for W&B takes no row that
comes late. Its next request comes a second later, so there is time to end it; what the server then says it holds
decides from where rows are sent again.

The client's settings make W&B show the training script, and failures show soon.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from trackers.backends.wandb import datastore_writer, precheck, system_metrics
from trackers.backends.wandb.history_rows import Held, held_row
from trackers.errors import DeliveryError, Fatal, Refused, Rejected, Unavailable
from trackers.support import process_info
from trackers.support.confined import local
from trackers.support.failpoints import failpoint
from trackers.tracker import RunInfo

INIT_TIMEOUT_S = 30.0
ASK_TIMEOUT_S = 20.0
RETRIES = 2
STREAM_RETRIES = 10
"""Of the file stream, four minutes: a server that many runs ask at once refuses one of them several times in a row. One
that is away shows in the answers to our own questions."""
STREAM_RETRY_S = 30.0
"""Longest pause between them."""
FLUSH_S = 1.0
"""Between writes of the offline file, and between requests of the file stream (W&B: 15 s each). The client takes
whole seconds only: less than one is its default again."""


def client_settings(info: RunInfo) -> dict[str, Any]:
    """Settings under which W&B shows the training script, and failures show soon."""
    lives = _lives(info)
    wanted: dict[str, Any] = {
        "console": "wrap",  # else its service takes no lines; see _without_capture
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
        **system_metrics.settings(info, lives),
        "x_disable_machine_info": not same_host(info),
        "x_save_requirements": lives,
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
    }
    return {name: value for name, value in wanted.items() if value is not None}


def same_host(info: RunInfo) -> bool:
    """Whether training ran, or runs, on this machine."""
    return not info.host or info.host == socket.gethostname()


def _lives(info: RunInfo) -> bool:
    """Whether training runs now, on this host, and is the reader's own."""
    if info.foreign or not info.pid or not info.host or not same_host(info):
        return False
    return process_info.alive(info.pid, info.pid_start)


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


NONSENSE = b"filestream: json decode error"
"""Message of wandb-core 0.31 in ``debug-internal.log`` for an answer that it can't parse."""
GIVEN_UP = re.compile(rb'"msg":"filestream: fatal error: ([^\n]*)')
"""Its message when it sends no row any more."""
LIMITED = re.compile(rb'"msg":"api: retrying HTTP error","status":429,"url":"[^"\n]*/file_stream"')
"""Its message when the server asks for fewer requests of the file stream."""
BEGIN_LIMITED = re.compile(rb'"msg":"api: retrying HTTP error","status":429,"url":"[^"\n]*/graphql"')
"""The same for a run's beginning, or a change of its configuration, which count as one."""
TOO_LONG = re.compile(rb'"msg":"filestream: run summary line too long, skipping","len":(\d+)')
"""Its message when it leaves out all results of the run, because they are too long together."""
NOT_SAVED = re.compile(rb'"msg":"runupserter: failed to upload changes","error":"([^\n]*)')
"""Its message when it has dropped what it had of a run's configuration, name and tags."""
TRIED = "giving up after"
"""Part of that where the server was away or busy, and will take them another time."""
TOO_MANY = "HTTP 429"
LOOK_S = 0.1
"""Between looks: a tenth of the pause between the client's requests (``x_file_stream_transmit_interval``)."""
LONGEST_LINE = 1 << 20
"""Characters of a line that isn't complete yet which are kept: the client logs answers of the server."""


class Watch:
    """Follows a client's log in a thread of its own.

    Attributes:
        seen: something else has answered for W&B. given_up: why the client sends no row any more; "": it does.
        limited: how often the server asked for fewer requests of the file stream. not_saved: why the client has dropped
            what it had of the run's configuration, name and tags; "": it hasn't. too_long: bytes of the results that it
            left out, "": it hasn't.

    Args:
        log: the client's ``debug-internal.log``, or what finds it; it needn't exist yet.
        end: ends the client where something else answered for W&B; called once, from the thread.
        refused: called where the server refuses a beginning for their number, from the thread.
    """

    def __init__(
        self, log: Path | Callable[[], Path | None], end: Callable[[], object], refused: Callable[[], object] = int
    ) -> None:
        self._log = log
        self._end = end
        self._refused = refused
        self._offset = 0
        self._rest = b""
        self._over = threading.Event()
        self._looking = threading.Lock()
        self.seen = False
        self.given_up = ""
        self.not_saved = ""
        self.too_long = ""
        self.limited = 0
        threading.Thread(target=self._follow, name="wandb-watch", daemon=True).start()

    def lies_at(self, log: Path) -> None:
        """The log's path is known now."""
        with self._looking:
            if not isinstance(self._log, Path):
                self._log = log

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def look(self) -> None:
        """Read what the log says now."""
        with self._looking, contextlib.suppress(OSError):
            if not isinstance(self._log, Path):
                found = self._log()
                if found is None:
                    return
                self._log = found
            if self._log.stat().st_size <= self._offset:
                return
            with self._log.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
            self._offset += len(new)
            whole, line, rest = (self._rest + new).rpartition(b"\n")
            self.seen = self.seen or NONSENSE in whole + line + rest
            self.limited += len(LIMITED.findall(whole))
            self.given_up = self.given_up or _said(GIVEN_UP, whole)
            self.not_saved = self.not_saved or _said(NOT_SAVED, whole)
            self.too_long = self.too_long or _said(TOO_LONG, whole)
            if BEGIN_LIMITED.search(whole):
                self._refused()
            self._rest = rest[-LONGEST_LINE:]

    def _follow(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()
            if self.seen:
                self._end()
                return


def _said(message: re.Pattern[bytes], log: bytes) -> str:
    """What a message of the client's log says; "" where it isn't there."""
    found = message.search(log)
    return " ".join(found[1].decode("utf-8", "replace").split()) if found else ""


FINISH_TIMEOUT_S = 900.0
"""Timeout of the last uploads, in seconds, before all of it is retried."""
PAGE = 1000
"""Rows that the server is asked for at once."""
WIDER = 8

HELD = """
query RunResumeStatus($project: String, $entity: String, $name: String!) {
    model(name: $project, entityName: $entity) {
        bucket(name: $name, missingOk: true) { historyTail logLineCount }
    }
}
"""
CHANGE = """
mutation UpsertBucket($name: String!, $entity: String, $project: String, $displayName: String, $notes: String,
                      $tags: [String!], $groupName: String, $jobType: String, $config: JSONString,
                      $summaryMetrics: JSONString) {
    upsertBucket(input: {name: $name, entityName: $entity, modelName: $project, displayName: $displayName,
                         notes: $notes, tags: $tags, groupName: $groupName, jobType: $jobType, config: $config,
                         summaryMetrics: $summaryMetrics}) { bucket { id } }
}
"""
ROWS = """
query HistoryPage($entity: String!, $project: String!, $run: String!, $minStep: Int64!, $maxStep: Int64!,
                  $pageSize: Int!) {
    project(name: $project, entityName: $entity) {
        run(name: $run) { history(minStep: $minStep, maxStep: $maxStep, samples: $pageSize) }
    }
}
"""
REFUSED = (401, 403, 404)
NOT_TAKEN = (400, 413, 422)
OWN_WORDS = re.compile(r"^(Timed out|Failed to|Error )|giving up after")
"""Messages of wandb's client when a run can't begin; its other ones of this class are the server's words."""
STATUS = re.compile(r"(?:status|error|HTTP|code)\D{0,12}\b([45]\d\d)\b|\b([45]\d\d) (?:[A-Z][a-z]+)", re.IGNORECASE)


class NotTaken(Unavailable):
    """The server refuses something that it was sent, and would refuse it again.

    Args:
        rows: it was sent with the run's rows; else with its configuration, name, tags, notes and group.
    """

    def __init__(self, message: str, *, rows: bool = False) -> None:
        super().__init__(message)
        self.rows = rows


class WandbSession:
    """A run opened with ``wandb.init``. ``run`` is wandb's own object.

    ``forgives``: that the server refuses what the client says of the run's configuration is no failure.
    """

    def __init__(
        self, info: RunInfo, *, resume: bool, fields: dict[str, Any], rewind: int | None = None,
        refused: Callable[[], object] = int,
    ) -> None:  # fmt: skip
        """Open the run; ``fields`` go to ``wandb.init`` as they are.

        Args:
            refused: called where the server refuses beginnings for their number; the client tries again.
            rewind: have the server forget the run's rows above this ``_step``
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
        self._api: Any = None
        self._info = info
        if self.online and not precheck.logged_in():
            raise Refused("no API key; run 'wandb login', set WANDB_API_KEY, or set WANDB_MODE=offline")
        if not self.online:
            _await_new_directory(directory(info) / "wandb", info.id)
        log = _new_log(directory(info) / "wandb", info.id)
        self._watch = Watch(log, _kill_service, refused) if self.online else None
        self.refused = refused
        self.forgives = False
        try:
            failpoint("wandb.init.before")
            with _as_training(info), _without_launch(), _without_capture():
                self.run: Any = wandb.init(
                    id=info.id,
                    **_place(info),
                    dir=str(directory(info)),
                    mode="online" if self.online else "offline",
                    resume="allow" if (resume or self.online) and rewind is None else None,
                    resume_from=None if rewind is None else f"{info.id}?_step={rewind}",
                    reinit="create_new",
                    settings=wandb.Settings(**client_settings(info)),
                    **fields,
                )
        except Exception as error:
            if self._watch is not None:
                self._watch.stop()
            abandon()
            found = translate(error)
            if type(found) is Unavailable and isinstance(error, wandb.errors.CommError):
                text = str(found)
                found = found if OWN_WORDS.search(text) else NotTaken(text)
            raise found from error
        failpoint("wandb.init.after")
        self.files = Path(self.run.dir).parent
        self.agent = not self.run.settings.x_disable_stats
        if self._watch is not None:
            self._watch.lies_at(self.files / "logs" / "debug-internal.log")
        self.run._interface.publish_environment(client_environment(info))

    @property
    def url(self) -> str:
        """Where people look: a link, or the command that uploads the offline files."""
        return str(self.run.url) if self.online else f"{self.files} (upload: wandb sync {shlex.quote(str(self.files))})"

    @property
    def file(self) -> Path:
        """The file that the client writes offline."""
        return Path(self.run.settings.sync_file)

    def log(self, values: dict[str, Any], number: int, *, upload_only: bool = False) -> None:
        """Add a row with this ``_step``; or only upload its files again, under the names that the row has."""
        from wandb.sdk.data_types.utils import history_dict_to_json

        self.see_answers()
        self.run._local_step = number  # part of the files' names
        if upload_only:
            history_dict_to_json(self.run, values, step=number)
        else:
            failpoint("wandb.row.before")
            self.run.log(values, step=number, commit=True)
            failpoint("wandb.row.after")

    def uploaded(self) -> bool:
        """Whether the client has no file left to upload."""
        stats = self._poll(ASK_TIMEOUT_S).pusher_stats
        return bool(stats.uploaded_bytes >= stats.total_bytes)

    def _poll(self, timeout_s: float) -> Any:
        try:
            return self.run._interface.deliver_poll_exit().wait_or(timeout=timeout_s).response.poll_exit_response
        except Exception as error:
            raise_translated(error)

    def held(self) -> int:
        """The ``_step`` of the last row that the server holds; -1 if there is none.

        Raises:
            DeliveryError: it can't be asked.
        """
        bucket = self._bucket()
        tail = json.loads(bucket.get("historyTail") or "[]") or []
        return max((int(json.loads(line).get("_step", -1)) for line in tail), default=-1)

    def held_lines(self) -> int:
        """Number of lines of the console that the server holds.

        Raises:
            DeliveryError: it can't be asked.
        """
        return int(self._bucket().get("logLineCount") or 0)

    def _bucket(self) -> dict[str, Any]:
        self.see_answers()
        data = self._ask(HELD, {"project": self.run.project, "entity": self.run.entity, "name": self.run.id})
        return ((data or {}).get("model") or {}).get("bucket") or {}

    def there(self, first: int, last: int) -> Iterator[Held]:
        """What tells the rows apart that the server holds, by ``_step`` from ``first`` to ``last``.

        Raises:
            DeliveryError: it can't be asked.
        """
        known: dict[frozenset[str], frozenset[str]] = {}
        for row in self.rows(first, last):
            keys = frozenset(row)
            yield held_row(row, known.setdefault(keys, keys))

    def rows(self, first: int, last: int) -> Iterator[dict[str, Any]]:
        """The rows that the server holds, by ``_step`` from ``first`` to ``last``.

        Raises:
            DeliveryError: it can't be asked.
        """
        target = {"entity": self.run.entity, "project": self.run.project, "run": self.run.id}
        start, steps, crowded = first, PAGE, first
        while start <= last:
            if start < crowded:  # somewhere before it lie more rows than one answer holds: halve what is left
                steps = min(steps, max(PAGE, (crowded - start) // 2))
            limits = {"minStep": start, "maxStep": min(last + 1, start + steps), "pageSize": PAGE}
            lines = self._ask(ROWS, {**target, **limits})["project"]["run"]["history"]
            if len(lines) > PAGE // 4 and steps > PAGE:  # of more rows than it may send, the server sends a sample
                crowded, steps = start + steps, max(PAGE, steps // WIDER)
                continue
            for line in lines:
                yield json.loads(line)
            start += steps
            if len(lines) < PAGE // WIDER:  # where tokens are counted, rows are a million steps apart
                steps *= WIDER

    def end(self, exit_code: int, *, complete: bool, timeout_s: float) -> None:
        """Upload all that waits and close the client; with ``complete``, the run has ended with this exit code.

        Raises:
            Unavailable: it took longer than ``timeout_s``, or not all files arrived.
        """
        from wandb.proto import wandb_internal_pb2 as protocol

        run = self.run
        exit_record = protocol.RunExitRecord(exit_code=exit_code, not_complete=not complete)
        try:
            if run._run_status_checker is not None:
                run._run_status_checker.stop()
            failpoint("wandb.exit.before")
            result = run._interface._deliver_exit(exit_record).wait_or(timeout=timeout_s)
            failpoint("wandb.exit.after")
            if result.exit_result.timed_out:
                raise TimeoutError
            files = self._poll(timeout_s).pusher_stats
            if run._run_messages is not None:
                run._run_messages.stop(timeout=5)
            run._interface.join()
            if run._run_status_checker is not None:
                run._run_status_checker.join()
            run._atexit_cleanup_called = True
            with _quiet():
                run.finish(exit_code=exit_code)
            if files.uploaded_bytes < files.total_bytes:
                raise Unavailable(f"W&B took {files.uploaded_bytes} of {files.total_bytes} bytes of files")
            if not self.online:
                self._see_file_whole()
            self.see_answers()
        except TimeoutError:
            self.see_answers()
            raise Unavailable(f"W&B took more than {timeout_s:g} s for the last uploads") from None
        except Exception as error:
            raise_translated(error)
        finally:
            if self._watch is not None:
                self._watch.stop()

    def see_answers(self) -> None:
        """Raise Unavailable if something that isn't W&B has answered for it, or the client sends nothing any more."""
        if self._watch is None:
            return
        self._watch.look()
        if self._watch.seen:
            raise Unavailable("the answer didn't come from W&B but from a proxy or a network's login page")
        if why := self._watch.given_up:
            text = f"W&B's client has given up its uploads ({why[-300:]})"
            if TRIED not in why and _status(why) in NOT_TAKEN:
                raise NotTaken(text, rows=True)
            raise Unavailable(text, limited=TOO_MANY in why)
        if (why := self._watch.not_saved) and not (self.forgives and TRIED not in why):
            text = f"W&B didn't take the run's configuration ({why[-300:]})"
            if TRIED in why:
                raise Unavailable(text, limited=TOO_MANY in why)
            raise Refused(text) if _status(why) in REFUSED else NotTaken(text)

    def limited(self) -> int:
        """How often the server has asked for fewer requests since the client was opened."""
        return self._watch.limited if self._watch is not None else 0

    def _see_file_whole(self) -> None:
        # The client answers before its service has written the last records of an offline file.
        path = self.file
        datastore_writer.await_writers([path])
        if not datastore_writer.has_ended(path):
            raise Unavailable(f"wandb didn't finish writing {path}")

    def clear(self, names: Iterable[str]) -> None:
        """Empty some of the run's attributes (tags, notes, group): the client itself sends no empty value.

        Raises:
            DeliveryError: the server didn't take it.
        """
        empty = {"tags": ("tags", []), "notes": ("notes", ""), "group": ("groupName", "")}
        self._change(dict(empty[name] for name in names))

    def refusal(self, fields: dict[str, Any]) -> str:
        """Set attributes of the run, as the server names them. Why it refuses them for good; "": it took them.

        Raises:
            DeliveryError: it can't be asked.
        """
        try:
            self._change(fields)
        except NotTaken as error:
            return str(error)
        return ""

    def too_long(self) -> int:
        """Bytes of the results that the client has left out because they are too long together; 0: none."""
        return int(self._watch.too_long) if self._watch is not None and self._watch.too_long else 0

    def _change(self, fields: dict[str, Any]) -> None:
        run = {"name": self.run.id, "entity": self.run.entity, "project": self.run.project}
        self._ask(CHANGE, {**run, **fields})

    def _ask(self, query: str, variables: dict[str, Any]) -> Any:
        from wandb.apis.public.service_api import ServiceApi

        try:
            if self._api is None:
                self._api = ServiceApi(self.run.settings)
            return self._api.execute_graphql(query, variables, timeout=ASK_TIMEOUT_S)
        except Exception as error:
            found = translate(error)
            if type(found) is Unavailable and getattr(error, "response", None) is not None and is_refusal(error):
                found = NotTaken(str(found))
            raise found from error


def _place(info: RunInfo) -> dict[str, Any]:
    """The run's project and entity, as ``wandb.init`` takes them; no entity: the login's own."""
    return {
        "project": info.option("WANDB_PROJECT") or os.environ.get("WANDB_PROJECT") or info.project,
        "entity": info.option("WANDB_ENTITY") or os.environ.get("WANDB_ENTITY"),
    }


def delete(info: RunInfo) -> str:
    """Delete a run on the server; what happened, in words. Its artifacts stay.

    Raises:
        DeliveryError: the server can't be asked, or refuses.
    """
    if not precheck.logged_in():
        raise Refused("no API key; run 'wandb login' or set WANDB_API_KEY")
    place = _place(info)
    try:
        import wandb

        api = wandb.Api(timeout=int(ASK_TIMEOUT_S))
        path = f"{place['entity'] or api.default_entity}/{place['project']}/{info.id}"
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
    """The directory in which W&B makes its ``wandb`` folder: the run's own, unless WANDB_DIR says otherwise, which is
    relative to where training was started. On another machine the run's WANDB_DIR means nothing, but the one there."""
    if info.foreign:
        return Path(str(info.option("WANDB_DIR")))
    own = info.option("WANDB_DIR", "") if same_host(info) else ""
    chosen = str(own or os.environ.get("WANDB_DIR") or "")
    if not chosen:
        return Path(info.directory)
    home = local(info.cwd) if info.cwd and Path(local(info.cwd)).is_dir() else ""
    return Path(home, Path(chosen).expanduser()).absolute()


def abandon() -> None:
    """End wandb's service without waiting for it, so that the client can be opened afresh."""
    from wandb.sdk import wandb_setup

    _kill_service()
    with contextlib.suppress(Exception), _quiet():  # whatever it still holds is lost; the server's word decides
        wandb_setup.teardown(exit_code=1)
    wandb_setup._singleton = None
    os.environ.pop("WANDB_SERVICE", None)


def _kill_service() -> None:
    from wandb.sdk import wandb_setup

    connection = getattr(wandb_setup._singleton, "_connection", None)
    process = getattr(getattr(connection, "_proc", None), "_process", None)
    if process is not None:
        process.kill()
        process.wait()


def preload() -> None:
    """Import what a session needs."""
    import requests  # noqa: F401
    import wandb  # noqa: F401
    import yaml  # type: ignore[import-untyped]  # noqa: F401
    from wandb.apis.public import service_api  # noqa: F401
    from wandb.proto import wandb_internal_pb2  # noqa: F401


def is_refusal(error: Exception) -> bool:
    """Whether a call that asks the server itself was answered with no, so that to ask again gives the same."""
    cause = getattr(error, "exc", None) or error
    answer = getattr(cause, "response", None)
    if answer is None:  # no answer in time: wandb tried for a while
        return isinstance(cause, (ValueError, TypeError))
    status = getattr(answer, "http_status", 0) or 0  # 0 for errors of GraphQL
    return status != 429 and status < 500


def refused(text: str) -> Refused:
    """What is raised where the server lets nobody in, or has no such place."""
    return Refused(f"W&B refused ({text}); check 'wandb login', WANDB_ENTITY and the project's name")


def raise_translated(error: Exception) -> NoReturn:
    """Raise what :func:`translate` makes of an error."""
    raise translate(error) from error


def translate(error: Exception) -> DeliveryError:
    """A failure of wandb as one of ours: Refused for 401, 403 and 404, Fatal where the client is too old or broken,
    Rejected for values it won't take, NotTaken for what the server won't, Unavailable for everything that may pass."""
    from wandb import errors

    if isinstance(error, DeliveryError):
        return error
    text = " ".join(str(error).split())[:300] or type(error).__name__
    status = getattr(getattr(error, "response", None), "http_status", 0) or _status(text)
    no_key = "API key" in text  # a UsageError, but not about a record
    if status in REFUSED or no_key or isinstance(error, errors.AuthenticationError):
        return refused(text)
    if status == 429:
        return Unavailable(f"W&B asks for fewer requests ({text})", retry_after_s=30.0, limited=True)
    if isinstance(error, (errors.UnsupportedError, ImportError)) or "upgrade" in text.lower():
        return Fatal(f"{text}")
    if isinstance(error, (ValueError, TypeError, errors.UsageError)) or text.startswith("Unhandled define_metric"):
        return Rejected(text)
    return NotTaken(text) if status in NOT_TAKEN else Unavailable(text)


def _status(text: str) -> int:
    """The HTTP status that a message of the client names; 0 where it names none."""
    found = STATUS.search(text)
    return int(found.group(1) or found.group(2)) if found else 0


def _new_log(root: Path, run_id: str) -> Callable[[], Path | None]:
    """What finds the log of a run that wandb opens after this."""

    def places() -> set[str]:
        with contextlib.suppress(OSError):
            return {name for name in os.listdir(root) if name.startswith("run-") and f"-{run_id}" in name}
        return set()

    before = places()
    return lambda: max((root / name / "logs" / "debug-internal.log" for name in places() - before), default=None)


def _await_new_directory(root: Path, run_id: str) -> None:
    """Wait, at most a second, until wandb's name for its directory, which has only seconds, is a new one."""
    while (root / f"offline-run-{time.strftime('%Y%m%d_%H%M%S')}-{run_id}").exists():
        time.sleep(0.05)


@contextlib.contextmanager
def _as_training(info: RunInfo) -> Iterator[None]:
    # wandb takes the script's arguments from sys.argv and, in some cases, the run's address from the environment.
    kept, own = sys.argv, os.environ.pop("WANDB_RUN_ID", None)
    if info.program:
        sys.argv = [info.program, *info.argv]
    try:
        with _quiet():
            yield
    finally:
        sys.argv = kept
        if own is not None:
            os.environ["WANDB_RUN_ID"] = own


@contextlib.contextmanager
def _without_launch() -> Iterator[None]:
    """Have ``wandb.init`` not look for inputs of W&B Launch that this process has staged, where it can't have staged
    any: to look, it imports all of Launch and the public API, which takes longer than all else that it does."""
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
def _without_capture() -> Iterator[None]:
    """Have ``wandb.init`` leave this process's own output alone: the lines of W&B's Logs tab are training's."""
    import wandb

    before = wandb.Run._redirect
    wandb.Run._redirect = lambda run, *_, **__: None
    try:
        yield
    finally:
        wandb.Run._redirect = before


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """wandb writes to the terminal whatever ``silent`` says; here what matters is raised."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


def monotonic() -> float:
    """Seconds that no change of the clock bends."""
    return time.monotonic()
