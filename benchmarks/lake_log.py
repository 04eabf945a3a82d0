"""A lake's log by this package, and by delta-rs: eight writers that replace their own runs' files, killed or not.

Each writer replaces the file of its run by a new one, again and again, as a run that is rewound does. In a directory,
and in an S3 server (moto) where each request takes 50 ms. A killed writer goes on from what the log says is there: by
this package's tags of a file, or by delta-rs's application transactions. In the end each run has its last file, once.
Then logs as somebody else may have made them are opened by both.

Needs what ``make lake-check`` installs: ``.venv-lake/bin/python benchmarks/lake_log.py``.
"""

from __future__ import annotations

import http.client
import http.server
import io
import json
import os
import random
import resource
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins/trackers-lake"))

import pyarrow as pa
from pyarrow import parquet
from trackers_lake.delta import LOG, DeltaTable
from trackers_lake.schema import COLUMNS, arrow_schema
from trackers_lake.tables import Lake

from benchmarks.common import Figure, main
from tests.object_storage.support import BucketServer

WRITERS, CHANGES, KILLS = 8, 15, 12
REQUEST_S = 0.05
TABLE = "metrics"
KIND = arrow_schema(COLUMNS[TABLE])
MOST_BYTES = 4 * 1024**3
HOSTILE_S = 120.0


def rows(run: str, number: int) -> Any:
    """The rows of a run's file: how many says which change it was."""
    count = number + 1
    columns = {"project": ["p"] * count, "run": [run] * count, "name": ["loss"] * count, "row": range(count)}
    return pa.table([pa.array(columns.get(one.name, [None] * count), one.type) for one in KIND], schema=KIND)


class Ours:
    """This package's log."""

    def __init__(self, where: str) -> None:
        self.lake = Lake(where)
        self.log: DeltaTable = self.lake.tables[TABLE]
        self.lost = 0

    def done(self, run: str) -> int:
        """How many changes of a run the log has."""
        return int(self.lake.fingerprints(TABLE).get(("p", run), "0"))

    def replace(self, run: str, number: int) -> None:
        """One change."""
        added = self.lake._write(TABLE, rows(run, number), {("p", run): str(number + 1)})
        while True:
            base = self.log.snapshot()
            gone = [file.path for file in base.files.values() if file.runs and ("p", run) in file.runs]
            if self.log.commit(base, [added], gone, "WRITE", COLUMNS[TABLE]):
                break
            self.lost += 1
            time.sleep(random.uniform(0, min(0.005 * 2**self.lost, 1)))
        self.lake._sum_up(self.log)


class DeltaRs:
    """The log of the deltalake distribution: runs as application transactions, files found by statistics."""

    def __init__(self, where: str) -> None:
        import deltalake

        self.place = f"{where}/{TABLE}"
        self.options = {"AWS_ALLOW_HTTP": "true"} if where.startswith("s3:") else None
        if not where.startswith("s3:"):
            self.place = self.place.removeprefix("file://")
        self.store = Lake(where).store
        if not deltalake.DeltaTable.is_deltatable(self.place, self.options):
            deltalake.DeltaTable.create(self.place, KIND, storage_options=self.options)
        self.table = deltalake.DeltaTable(self.place, storage_options=self.options)
        self.lost = 0

    def done(self, run: str) -> int:
        """How many changes of a run the log has."""
        return self.table.transaction_version(f"p/{run}") or 0

    def replace(self, run: str, number: int) -> None:
        """One change."""
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

        sink = io.BytesIO()
        parquet.write_table(rows(run, number), sink)
        name, now = f"part-{uuid.uuid4()}.parquet", int(time.time() * 1000)
        self.store.put(f"{TABLE}/{name}", sink.getvalue())
        ends = {"project": "p", "run": run}
        stats = {"numRecords": number + 1, "minValues": ends, "maxValues": ends, "nullCount": {}}
        add = AddAction(name, len(sink.getvalue()), {}, now, True, json.dumps(stats))
        done = CommitProperties(app_transactions=[Transaction(f"p/{run}", number + 1)], max_commit_retries=50)
        while True:
            self.table.update_incremental()
            there = pa.table(self.table.get_add_actions(flatten=True)).to_pylist()
            gone = [
                RemoveAction(one["path"], True, now, one["size_bytes"], {}) for one in there if one["min.run"] == run
            ]
            try:
                self.table.create_write_transaction([*gone, add], "append", KIND, commit_properties=done)
                return
            except CommitFailedError:
                self.lost += 1


KINDS = {"ours": Ours, "delta-rs": DeltaRs}


def write(kind: str, where: str, run: str, changes: int) -> None:
    """A writer's process: what is left of its changes."""
    began = time.monotonic()
    log = KINDS[kind](where)
    for number in range(log.done(run), changes):
        log.replace(run, number)
    print(json.dumps({"s": time.monotonic() - began, "cpu": time.process_time(), "lost": log.lost}))


class Slow(http.server.BaseHTTPRequestHandler):
    """Hands requests on to a server, each after a while, and counts them."""

    protocol_version = "HTTP/1.1"
    to = 0
    requests = 0

    def _hand_on(self) -> None:
        Slow.requests += 1
        time.sleep(REQUEST_S)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server = http.client.HTTPConnection("127.0.0.1", Slow.to)
        server.request(self.command, self.path, body, dict(self.headers))
        answer = server.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "server", "date"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(content)
        server.close()

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _hand_on

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


def crowd(kind: str, where: str, changes: int, kills: int) -> dict[str, float]:
    """The writers at once; what they took, and whether each run has its last file alone."""
    began, source = time.monotonic(), random.Random(7)
    command = [sys.executable, __file__, "--write", kind, where]

    def start(run: str, changes: int = changes) -> subprocess.Popen[str]:
        return subprocess.Popen([*command, run, str(changes)], stdout=subprocess.PIPE, text=True)

    Lake(where, make=True)
    # In a process of its own: delta-rs keeps the interpreter's lock while it asks; the slow server's threads are here.
    start("none", 0).communicate()
    working = {run: start(run) for run in (f"r{number}" for number in range(WRITERS))}
    for _ in range(kills):
        time.sleep(source.uniform(0.5, 1.5))
        run = source.choice(sorted(working))
        working[run].kill()
        working[run].communicate()
        working[run] = start(run)
    said = [json.loads(one.communicate()[0] or "{}") for one in working.values()]
    took = time.monotonic() - began
    reader = Lake(where)
    held: dict[str, int] = {}
    for file in reader.snapshot(TABLE).files.values():
        for row in reader.rows(TABLE, file, ["run"]).to_pylist():
            held[row["run"]] = held.get(row["run"], 0) + 1
    return {
        "s": took, "cpu": sum(one.get("cpu", 0) for one in said), "lost": sum(one.get("lost", 0) for one in said),
        "wrong": sum(held.get(run) != changes for run in working) + len(held.keys() - working.keys()),
    }  # fmt: skip


def hostile(place: Path) -> dict[str, str]:
    """Logs as somebody else may have made them, by what is wrong with them: each a table's folder."""
    schema = {"type": "struct", "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in COLUMNS[TABLE]]}  # fmt: skip
    meta = {"metaData": {"id": "a", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
                         "schemaString": json.dumps(schema), "configuration": {}, "createdTime": 0}}  # fmt: skip
    head = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, meta]

    def add(path: str, **more: Any) -> dict[str, Any]:
        added = {"path": path, "partitionValues": {}, "size": 9, "modificationTime": 0, "dataChange": True}
        return {"add": {**added, **more}}

    place.mkdir()
    outside = place / "secret.parquet"
    parquet.write_table(rows("x", 1), outside)
    logs: dict[str, list[dict[str, Any]]] = {
        "a path out of the table": [*head, add("../../secret.parquet")],
        "an absolute path": [*head, add(quote(f"file://{outside}", safe=":/"))],
        "a size of 9e18": [*head, add("a.parquet", size=9 * 10**18)],
        "a deletion vector": [
            *head, add("a.parquet", deletionVector={"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1,
                                                    "cardinality": 1})],
        "nothing of its columns": [head[0], add("a.parquet")],
        "statistics that are no JSON": [*head, add("a.parquet", stats="{")],
    }  # fmt: skip
    for name, actions in logs.items():
        folder = place / name / TABLE / LOG
        folder.mkdir(parents=True)
        (folder / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    bomb = place / "a checkpoint of 100 million equal rows" / TABLE / LOG
    bomb.mkdir(parents=True)
    kind = pa.schema([("add", pa.struct([("path", pa.string()), ("size", pa.int64())]))])
    with parquet.ParquetWriter(bomb / f"{1:020d}.checkpoint.parquet", kind, compression="zstd") as writer:
        part = pa.table([pa.array([{"path": "a" * 64, "size": 1}] * 10**6, kind[0].type)], schema=kind)
        for _ in range(100):
            writer.write_table(part)
    (bomb / "_last_checkpoint").write_text('{"version": 1, "size": 100000000}')
    for name in [*logs, bomb.parent.parent.name]:
        (place / name / "lake.json").write_text('{"format": "trackers-lake", "version": 1}')
    return {name: str(place / name) for name in [*logs, bomb.parent.parent.name]}


def look(kind: str, where: str) -> None:
    """A reader's process: open a table and read all of its rows."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    try:
        if kind == "ours":
            lake = Lake(where)
            found = sum(len(lake.rows(TABLE, file)) for file in lake.snapshot(TABLE).files.values())
        else:
            import deltalake

            found = deltalake.DeltaTable(f"{where}/{TABLE}").to_pyarrow_table().num_rows
        print(f"{found} rows")
    except BaseException as error:
        print(f"{type(error).__name__}: {' '.join(str(error).split())[:90]}")


def looked(kind: str, where: str) -> str:
    """What a reader's process says of a table, in one line."""
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--look", kind, where], capture_output=True, text=True, timeout=HOSTILE_S,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"hangs for more than {HOSTILE_S:.0f} s"
    text = done.stdout.strip() or f"ended by {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1][:90]}"
    return text.replace(str(Path(where).parent), "…") + f" ({time.monotonic() - began:.1f} s)"


def measure(quick: bool) -> list[Figure]:
    """The figures."""
    figures: list[Figure] = []
    changes = 3 if quick else CHANGES
    for kind in KINDS:
        for kills in (0, 2 if quick else KILLS):
            got = crowd(kind, f"file://{Path.cwd()}/{kind}{kills}", changes, kills)
            figures += told(f"directory, {kills} kills, {kind}", got)
    server = BucketServer()
    server.start()
    slow = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=slow.serve_forever, daemon=True).start()
    Slow.to = server.port
    os.environ.update({**server.variables(), "AWS_ENDPOINT_URL": f"http://127.0.0.1:{slow.server_port}"})
    try:
        for kind in KINDS:
            for kills in (0, 2 if quick else KILLS):
                Slow.requests = 0
                got = crowd(kind, f"s3://bucket/{kind}{kills}", changes, kills)
                name = f"S3 at 50 ms, {kills} kills, {kind}"
                figures += [*told(name, got), Figure(f"{name}: requests a change", Slow.requests / WRITERS / changes)]
    finally:
        slow.shutdown()
        server.stop()
    for name, where in hostile(Path.cwd() / "hostile").items():
        for kind in KINDS:
            print(f"{name}, {kind}: {looked(kind, where)}", file=sys.stderr)
    return figures


def told(name: str, got: dict[str, float]) -> Sequence[Figure]:
    """The figures of a crowd."""
    return [Figure(f"{name}: all", got["s"], "s"), Figure(f"{name}: processor", got["cpu"], "s"),
            Figure(f"{name}: races lost that it was told of", got["lost"]),
            Figure(f"{name}: wrong runs", got["wrong"], at_most=0)]  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(*sys.argv[2:5], int(sys.argv[5]))  # type: ignore
    elif sys.argv[1:2] == ["--look"]:
        look(*sys.argv[2:4])
    else:
        main(measure, "a lake's log: ours and delta-rs's")
