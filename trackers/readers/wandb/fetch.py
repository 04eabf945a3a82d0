"""Fetches one run of W&B whole: the complete history and all system events, patiently, and each but once.

The real client is asked. It waits and asks again by itself when the server says 429 (``Retry-After``) or 5xx; what
takes it longer than its patience is asked again from here, for :data:`PATIENCE_S`.
What was fetched is kept in a cache; artifacts are read on demand.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib.util
import itertools
import json
import os
import re
import secrets
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from trackers.errors import UNDECODABLE, CredentialsMissing, Damaged, NotFound, TrackersError, Unavailable, causes
from trackers.journal.run_directory import replace_file
from trackers.readers.boundary import DATA_ERRORS, reason
from trackers.readers.helpers import warn
from trackers.records import MAX_STEP, ArtifactFile, ArtifactRecord
from trackers.support import confined, user_directories
from trackers.support.progress import Progress

VERSION = 2
PARQUET, LINES = ".parquet", ".jsonl.gz"
KEEP_S = 60 * 24 * 3600.0
"""An entry that nobody has read for so long is deleted."""


class RowsFile(msgspec.Struct):
    """One file of rows. last: the highest ``_step`` in it. size, crc: the file's bytes, and their CRC-32."""

    name: str
    rows: int
    size: int
    crc: int
    last: Annotated[int, msgspec.Meta(ge=-1, le=MAX_STEP)] = -1


class WandbCacheIndex(msgspec.Struct, kw_only=True):
    """What ``index.json`` holds.

    created: of the run, as the server says it: another run of the same name begins anew.
    token: what the server said when everything was fetched; "" while something is missing.
    events: the file of system events; events_there: how many the server has.
    """

    version: int = 0
    key: str = ""
    created: str = ""
    token: str = ""
    parts: list[RowsFile] = []
    events: RowsFile | None = None
    events_there: int = 0
    events_token: str = ""


class RunCache:
    """One run's entry.

    Args:
        key: host, entity, project and id.
        created: when the run was made, as the server says it.
    """

    def __init__(self, key: str, created: str) -> None:
        self.path = user_directories.of("CACHE") / "wandb" / hashlib.sha256(key.encode()).hexdigest()[:32]
        self._fresh = WandbCacheIndex(version=VERSION, key=key, created=created)
        self.index = self._load()

    @property
    def rows(self) -> int:
        """How many rows are kept."""
        return sum(part.rows for part in self.index.parts)

    @property
    def last(self) -> int:
        """The highest ``_step`` that is kept; -1 without rows."""
        return self.index.parts[-1].last if self.index.parts else -1

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Keep more rows of the history, which come after those that are kept."""
        if rows:
            part = self._write(rows)
            part.last = max(int(row["_step"]) for row in rows)
            self.index.parts.append(part)
            self._save()

    def set_events(self, rows: Sequence[dict[str, Any]], token: str, total: int) -> None:
        """Store the system events as of ``token``, with the server's count of them."""
        old = self.index.events
        self.index.events, self.index.events_there = self._write(rows), total
        self.index.events_token = token
        self._save()
        if old is not None:
            (self.path / old.name).unlink(missing_ok=True)

    def complete(self, token: str) -> None:
        """Everything that the server has at ``token`` is kept."""
        self.index.token = token
        self._save()

    def clear(self) -> None:
        """Forget the history: it isn't what the server has any more."""
        self.index.parts, self.index.token = [], ""
        self._save()
        names = {"index.json"} | ({self.index.events.name} if self.index.events is not None else set())
        for file in self.path.iterdir():
            if file.name not in names:
                file.unlink(missing_ok=True)

    def history(self) -> Iterator[dict[str, Any]]:
        """The rows that are kept."""
        for part in list(self.index.parts):
            yield from self._read(part.name)

    def events(self) -> Iterator[dict[str, Any]]:
        """The system events that are kept."""
        if self.index.events is not None:
            yield from self._read(self.index.events.name)

    def _write(self, rows: Sequence[dict[str, Any]]) -> RowsFile:
        """Keep rows in a file of their own: Parquet, or packed lines where pyarrow isn't installed."""
        content, end = _packed(rows)
        name = secrets.token_hex(6) + end
        with self._writing():
            confined.make_private(self.path)
            try:
                (self.path / name).write_bytes(content)
            except OSError:
                (self.path / name).unlink(missing_ok=True)
                raise
        return RowsFile(name, len(rows), len(content), zlib.crc32(content))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Translate an error of writing into one line that names the directory."""
        try:
            yield
        except OSError as error:
            raise NotFound(
                f"wandb: what is fetched can't be kept in {self.path}: {error.strerror or error}; "
                "XDG_CACHE_HOME names another place"
            ) from error

    def _read(self, name: str) -> Iterator[dict[str, Any]]:
        if name.endswith(LINES):
            with gzip.open(self.path / name, "rt") as packed:
                yield from map(json.loads, packed)
            return
        from pyarrow import parquet

        with parquet.ParquetFile(self.path / name) as file:
            for batch in file.iter_batches(10_000, columns=["row"]):
                for text in batch.column(0).to_pylist():
                    yield json.loads(text)

    def _load(self) -> WandbCacheIndex:
        with contextlib.suppress(OSError, *UNDECODABLE):
            index = msgspec.json.decode((self.path / "index.json").read_bytes(), type=WandbCacheIndex)
            same = (index.version, index.key, index.created) == (VERSION, self._fresh.key, self._fresh.created)
            parts = [*index.parts, *([index.events] if index.events is not None else [])]
            if same and all(map(self._is_whole, parts)):
                os.utime(self.path)
                return index
        return msgspec.json.decode(msgspec.json.encode(self._fresh), type=WandbCacheIndex)

    def _is_whole(self, part: RowsFile) -> bool:
        content = (self.path / part.name).read_bytes() if confined.is_plain_name(part.name) else b""
        return len(content) == part.size > 0 and zlib.crc32(content) == part.crc

    def _save(self) -> None:
        with self._writing():
            confined.make_private(self.path)
            replace_file(self.path / "index.json", msgspec.json.encode(self.index))
        now = time.time()
        for entry in self.path.parent.iterdir():
            with contextlib.suppress(OSError):
                if now - entry.stat().st_mtime > KEEP_S:
                    shutil.rmtree(entry)


def _packed(rows: Sequence[dict[str, Any]]) -> tuple[bytes, str]:
    """Rows as the content of a file, and the suffix of its name."""
    if importlib.util.find_spec("pyarrow") is None:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        return gzip.compress(lines.encode(), 1), LINES
    import io

    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({
        "_step": pyarrow.array([row.get("_step") for row in rows], pyarrow.int64()),
        "row": pyarrow.array([json.dumps(row) for row in rows], pyarrow.string()),
    })  # fmt: skip
    content = io.BytesIO()
    parquet.write_table(table, content, compression="zstd")
    return content.getvalue(), PARQUET


CLIENT_TIMEOUT_S = 60
"""Timeout of the client for an answer, in seconds, including its pauses between retries."""
PATIENCE_S = 900.0
PAUSE_S = 2.0
PAGE_STEPS = 1000
"""Page size of the client, in steps (https://docs.wandb.ai/ref/python/public-api/run#scan_history)."""
MOST_STEPS = 1_000_000_000
MOST_EMPTY_PAGES = 20_000
"""Maximum number of pages of a history without a row."""
LISTED_PAGES = 20_000
"""Maximum number of pages of a list."""
MOST_MORE = 100_000
"""Rows that a server may send beyond twice its own count: a running run may have grown meanwhile."""
KEPT_ROWS = 5000
"""Number of rows stored on disk at a time."""
EVENTS_FIRST = 20_000
EVENTS_MOST = 20_000_000

EVENT_COUNT = """
query RunEventCount($project: String!, $entity: String!, $name: String!) {
    project(name: $project, entityName: $entity) { run(name: $name) { eventsLineCount } }
}
"""

Result = TypeVar("Result")


def history(run: Any, cache: RunCache, progress: Progress) -> None:
    """Fetch into the cache what it lacks of the history.

    Args:
        run: of ``wandb.Api``, just loaded.

    Raises:
        Unavailable: the server can't be reached. Damaged: its answers have no end.
    """
    count = int(run._attrs.get("historyLineCount") or 0)
    end = patiently(lambda: run.lastHistoryStep) + 1
    if cache.rows > count or cache.last >= end:
        cache.clear()  # the run was rewound, or written anew
    cached = cache.rows
    _fetch(run, cache, end, _page_steps(count - cached, end - cache.last - 1), progress, count)
    if cache.rows < count and (cached or _page_steps(count, end) > PAGE_STEPS):
        # Rows were put in place of others, or a server gives less than a page's steps: by the client's own pages.
        cache.clear()
        _fetch(run, cache, end, PAGE_STEPS, progress, count)


def _fetch(run: Any, cache: RunCache, end: int, page: int, progress: Progress, count: int) -> None:
    rows: list[dict[str, Any]] = []
    if (end - cache.last) // page > MOST_EMPTY_PAGES + count:
        raise _endless(end, count)
    while cache.last + 1 < end:
        try:
            scan = patiently(lambda: run.scan_history(min_step=cache.last + 1, max_step=end, page_size=page))
            for row in _rows_of(_with_page_limit(scan, _endless(end, count))):
                rows.append(row)
                if cache.rows + len(rows) > 2 * count + MOST_MORE:
                    raise Damaged(f"wandb: the server sends more rows than the {count:,} that it has by its own count")
                if len(rows) >= KEPT_ROWS:
                    cache.add(rows)
                    rows = []
                    progress(cache.rows, count)
            break
        except Unavailable:
            cache.add(rows)  # the next attempt, now or another day, goes on behind them
            raise
    cache.add(rows)
    progress(cache.rows, count)


def listed(pages: Any, most: int, patience_s: float | None = None) -> list[Any]:
    """Items of one of the client's lists, read page by page.

    Args:
        most: maximum number of items. patience_s: see :func:`patiently`.

    Raises:
        Damaged: the list has no end: the same page is sent twice, or there are more than :data:`LISTED_PAGES`.
    """
    seen: set[Any] = set()
    load = pages._load_page

    def next_page() -> bool:
        if pages.last_response is not None and pages.more:
            if pages.cursor in seen or len(seen) >= LISTED_PAGES:
                raise Damaged("wandb: the server's list has no end: it sends the same page twice, or too many pages")
            seen.add(pages.cursor)
        return bool(load())

    pages._load_page = next_page
    return patiently(lambda: list(itertools.islice(pages, most)), patience_s)


def _endless(end: int, count: int) -> Damaged:
    return Damaged(f"wandb: the server claims {end:,} steps for {count:,} rows: that has no end")


def _with_page_limit(scan: Any, error: Damaged) -> Any:
    """The client's scan of a history, which ends with ``error`` after too many pages without a row."""
    load, empty = scan._load_next, 0

    def next_page() -> None:
        nonlocal empty
        load()
        empty += not scan.rows
        if empty > MOST_EMPTY_PAGES:
            raise error

    scan._load_next = next_page
    return scan


def _rows_of(scan: Any) -> Iterator[dict[str, Any]]:
    iterator = iter(scan)
    end = object()
    while (row := patiently(lambda: next(iterator, end))) is not end:
        yield row  # type: ignore[misc]


def _page_steps(rows: int, steps: int) -> int:
    """How many steps to ask for at a time, so that a page has about as many rows as the client's own.

    Where rows are a thousand steps apart, the client's own pages would be as many requests as rows.
    """
    if rows <= 0 or steps <= rows:
        return PAGE_STEPS
    return min(MOST_STEPS, PAGE_STEPS * -(-steps // rows))


def events(run: Any) -> list[dict[str, Any]]:
    """All system events. The server samples them to as many as are asked for: so more are asked for than there are."""
    samples = EVENTS_FIRST
    while True:
        rows: list[dict[str, Any]] = patiently(partial(run.history, stream="events", samples=samples, pandas=False))
        if len(rows) < samples or samples >= EVENTS_MOST:
            return rows
        samples *= 10


def _as_query(text: str) -> Any:
    """A GraphQL operation as the client's methods take it: text; before 0.27, parsed."""
    from wandb.apis.public.service_api import ServiceApi

    if hasattr(ServiceApi, "execute_graphql"):
        return text
    from wandb_gql import gql  # type: ignore[import-not-found]

    return gql(text)


def event_count(run: Any) -> int | None:
    """How many system events the server has; None where it doesn't say."""
    try:
        answer = patiently(partial(run._exec, _as_query(EVENT_COUNT)))
        return int(answer["project"]["run"]["eventsLineCount"])
    except (TrackersError, KeyError, TypeError, ValueError):
        return None


def patiently(ask: Callable[[], Result], patience_s: float | None = None) -> Result:
    """Ask W&B; where it can't answer now, ask again with growing pauses.

    Raises:
        NotFound, CredentialsMissing, Unavailable: what the client's error means.
    """
    until = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    pause = PAUSE_S
    announced = False
    while True:
        try:
            return ask()
        except Exception as error:
            if _lost_service(error):
                raise Unavailable("wandb: the client's helper process (wandb-core) has ended; run it again") from error
            problem = translate(error)
            if not isinstance(problem, Unavailable) or time.monotonic() + pause > until:
                raise problem from error
            if not announced:
                print(f"{problem}; asking again for {until - time.monotonic():.0f} s", file=sys.stderr)
                announced = True
            time.sleep(pause)
            pause = min(60.0, pause * 2)


def _lost_service(error: BaseException) -> bool:
    """Whether the client's helper process has ended. It would be asked for ever: whoever asks next gets another one."""
    from wandb.sdk import wandb_setup
    from wandb.sdk.mailbox.mailbox import MailboxClosedError

    if not any(isinstance(cause, MailboxClosedError) for cause in causes(error)):
        return False
    with contextlib.suppress(Exception):
        wandb_setup.teardown(exit_code=1)
    wandb_setup._singleton = None
    os.environ.pop("WANDB_SERVICE", None)
    return True


def translate(error: Exception) -> Exception:
    """The client's error in our words; one that isn't the client's is given back."""
    from wandb.errors import AuthenticationError, CommError, Error, UsageError
    from wandb.sdk.lib.service.service_connection import WandbApiFailedError

    text = " ".join(str(error).split())
    lower = text.lower()
    if isinstance(error, UsageError) and "api key" in lower:
        return CredentialsMissing("wandb: no API key; run `wandb login`, or set WANDB_API_KEY")
    # A number is a word: 503 stands in ports, too.
    numbers = set(re.findall(r"(?<![\d.:])\d{3}(?![\d.])", lower))
    away = ("did not respond in time", "timed out", "connection", "unable to connect", "rate limit", "eof")
    if isinstance(error, (AuthenticationError, CommError, WandbApiFailedError, Error)):
        if "could not find" in lower:
            return NotFound(f"wandb: {text}")
        if isinstance(error, CommError) and isinstance(error.exc, DATA_ERRORS) and not isinstance(error.exc, OSError):
            # Asking again won't help.
            return Damaged(f"wandb: the server's answer isn't what it must be: {reason(error.exc)}")
        if any(word in lower for word in away) or numbers & {"502", "503", "504", "429"}:
            return Unavailable(f"wandb: the server can't be reached or is busy: {text[:300]}")
        if isinstance(error, AuthenticationError) or numbers & {"401", "403"} or "permission" in lower:
            return CredentialsMissing(f"wandb: login refused: {text[:300]}; run `wandb login --relogin`")
        if "404" in numbers:
            return NotFound(f"wandb: {text[:300]}")
        return Unavailable(f"wandb: {text[:300]}")
    if isinstance(error, ValueError) and "could not find" in lower:
        return NotFound(f"wandb: {text}")
    return error


INTERNAL = ("run_table", "wandb-history", "wandb-run-history", "wandb-run-incremental-table", "job")
"""Types that W&B makes by itself: tables and histories are read where they belong."""
FOLDER = "artifacts"
MOST = 100_000
"""Maximum number of artifacts of one run that are read."""
LATEST = "latest"
"""An alias that W&B gives by itself."""


def artifacts(remote: Any, directory: Path, time: float) -> Iterator[ArtifactRecord]:
    """Each artifact of a run, in the order of their making; files are fetched into ``directory``, each once.

    Args:
        remote: the client's run.
        time: Unix seconds for an artifact that doesn't say when it was made.
    """
    for logged in listed(patiently(remote.logged_artifacts), MOST):
        if logged.type not in INTERNAL:
            yield _artifact(logged, directory, time)


def _artifact(logged: Any, directory: Path, time: float) -> ArtifactRecord:
    version = str(logged.name)
    folder = f"{FOLDER}/{re.sub(r'[^A-Za-z0-9._-]+', '-', version)}"
    metadata = dict(logged.metadata or {})
    name = str(metadata.pop("name", "") or version.rpartition(":")[0])
    files = []
    entries: dict[str, Any] = patiently(lambda: dict(logged.manifest.entries))
    for path, entry in sorted(entries.items()):
        if not confined.is_inside(path):
            warn(f"artifact {version}: {path!r:.200} isn't a path inside of it")
            continue
        if entry.ref:
            files.append(ArtifactFile(path=path, uri=str(entry.ref), size=entry.size or 0))
            continue
        target = directory / folder / path
        if not target.is_file() or (entry.size is not None and target.stat().st_size != entry.size):
            _download(logged, path, directory / folder)  # not there, or cut short as it was fetched
        files.append(ArtifactFile(path=path, file=f"{folder}/{path}", size=target.stat().st_size))
    return artifact_record(logged, _time(logged.created_at, time), name, files, metadata)


def artifact_record(
    logged: Any, time: float, name: str, files: list[ArtifactFile], metadata: dict[str, Any]
) -> ArtifactRecord:
    """The record of an artifact, as the client's object or a file's record describes it."""
    return ArtifactRecord(
        time=time,
        name=name,
        type=logged.type,
        files=files,
        aliases=[alias for alias in logged.aliases if alias != LATEST],
        description=logged.description or None,
        metadata=metadata,
    )


def _download(logged: Any, path: str, root: Path) -> None:
    patiently(lambda: logged.get_entry(path).download(root=str(root)))


def _time(text: Any, default: float) -> float:
    with contextlib.suppress(ValueError):
        when = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp() or default
    return default
