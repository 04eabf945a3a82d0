"""``wandb:entity/project[/run]``: runs on W&B's servers, by the real client, at full resolution.

The complete history and all system metrics, never a sample of 500. What was fetched is kept
(:mod:`trackers.readers.wandb.fetch`): a finished run is fetched once, a running one from where the last reading
ended.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import hashlib
import heapq
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from trackers.errors import UNDECODABLE, Damaged, NotFound, TrackersError, Unavailable, UsageError, examples
from trackers.readers.boundary import bounded, reason
from trackers.readers.reader import PAUSES, REPEATED, Reader, SourceRun
from trackers.readers.wandb import fetch
from trackers.readers.wandb.cells import TableCells, files_of
from trackers.readers.wandb.fetch import RunCache, artifacts, patiently
from trackers.readers.wandb.rows import RESERVED, STATUS, Decoder, is_ours, table
from trackers.records import Config, Environment, Finish, Media, MediaFile, Record, Start
from trackers.support import confined
from trackers.support.progress import progress

METADATA = "wandb-metadata.json"
PAGE_RUNS = 200
MOST_RUNS = 200_000  # a server's list may have no end
LISTED = 20
"""Maximum number of runs named in a message."""
START_PATIENCE_S = 20.0
"""Maximum wait for an unreachable server, in seconds."""
LOOK_PATIENCE_S = 5.0
"""The same where somebody looks at a page and waits."""


@bounded
class WandbReader(Reader):
    """Reads projects and single runs; a run is named by its id, its name, a glob of names, or its address."""

    scheme = "wandb"
    needs = ("wandb",)

    def __init__(self) -> None:
        self._client: Any = None

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`. One request for each two hundred runs."""
        entity, project, name = self.address(where)
        return self.find(entity, project, _name_filter(name), name)

    def find(self, entity: str, project: str, filters: dict[str, Any], name: str = "") -> list[SourceRun]:
        """The runs of a project that meet W&B's filters (Mongo-style), the newest first.

        Args:
            name: what was asked for: one run by id or name, or a glob.

        Raises:
            NotFound: the project, or such a run, isn't there; or several runs have that name.
        """
        runs = self.api().runs(f"{entity}/{project}", filters=filters, order="-created_at", per_page=PAGE_RUNS)
        with self._project(entity, project):
            remote_runs = fetch.listed(runs, MOST_RUNS + 1)
        if len(remote_runs) > MOST_RUNS:
            raise Damaged(f"wandb: {entity}/{project} lists more than {MOST_RUNS:,} runs: name some of them")
        matching = [_source_run(run) for run in remote_runs]
        label = f"{entity}/{project} on {self.host()}"
        if any(sign in name for sign in "*?["):
            matching = [run for run in matching if fnmatch.fnmatchcase(run.name, name)]
        elif name and len(matching) > 1:
            exact = [run for run in matching if run.id == name]
            if len(exact) != 1:
                listed = examples((f"{run.id} ({run.status})" for run in matching), LISTED)
                raise NotFound(
                    f"wandb: {len(matching)} runs of {label} are called {name!r}: {listed}; name one by its id"
                )
            matching = exact
        if not matching:
            what = f"no run {name!r} in {label}" if name else f"{label} has no runs"
            raise NotFound(f"wandb: {what}" + (self._runs_hint(entity, project) if name or filters else ""))
        return matching

    def newest(self, entity: str, project: str) -> SourceRun:
        """The run of a project that was made last.

        Raises:
            NotFound: the project isn't there, or has no runs.
        """
        runs = self.api().runs(f"{entity}/{project}", order="-created_at", per_page=1)
        with self._project(entity, project):
            newest = fetch.listed(runs, 1)
        if not newest:
            raise NotFound(f"wandb: {entity}/{project} on {self.host()} has no runs")
        return _source_run(newest[0])

    def keys(self, run: SourceRun) -> list[str]:
        """Names of everything in a run, without its history: of rows, system metrics and results."""
        remote = self._remote(run)
        history = (remote._attrs.get("historyKeys") or {}).get("keys") or {}
        system = {name for row in fetch.events(remote) for name in row}
        return sorted({*history, *system, *remote.summary_metrics} - RESERVED)

    def system(self, run: SourceRun) -> Iterator[Record]:
        """Only a run's system metrics, without fetching its history."""
        remote = self._remote(run)
        cache = self._cache(remote, run)
        self._complete_events(remote, cache, run)
        decoder = Decoder(ours=False)
        for row in cache.events():
            yield from decoder.event(row)

    def version(self, run: SourceRun) -> str:
        """What the listing says: state, number of rows, last sign of life, and what people can edit."""
        native = run.native
        own = hashlib.sha256(repr((run.name, run.group, run.tags, run.notes)).encode()).hexdigest()[:8]
        return f"{native['state']}/{native['rows']}/{native['heartbeat']}/{own}"

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`. Shows a progress bar while it fetches, on a terminal."""
        if files is not None:
            run.directory = str(files)
        remote = self._remote(run)
        cache = self._cache(remote, run)
        self._complete(remote, cache, run)
        ours = is_ours(remote.rawconfig.get("_wandb", {}).get("m"))
        decoder = Decoder(ours, _Files(remote, files).get if files is not None else None)
        yield Start(time=run.created, rank=0)
        if remote.config:
            yield Config(time=run.created, values=dict(remote.config))
        metadata = self._metadata(remote, run)
        if metadata:
            yield Environment(time=run.created, values=metadata)
        history: Iterator[Record] = (record for row in cache.history() for record in decoder.row(row))
        if files is not None:
            history = self._with_cells(history, remote, cache, files)
        events = (record for row in cache.events() for record in decoder.event(row))
        yield from heapq.merge(history, events, key=lambda record: record.time)
        decoder.time = max(decoder.time, run.created)
        if files is not None:
            yield from artifacts(remote, files, decoder.time)
        yield from decoder.results(remote.summary_metrics)
        run.native[REPEATED] = decoder.repeated
        run.native[PAUSES] = decoder.pauses
        if run.status not in ("", "running"):
            ended = _time(remote._attrs.get("heartbeatAt")) or decoder.time
            yield Finish(time=max(ended, decoder.time), status=run.status)

    def served(self, run: SourceRun, files: Path) -> _Served:
        """See :class:`trackers.readers.reader.Reader`."""
        remote = self._remote(run)
        cache = self._cache(remote, run)
        self._complete(remote, cache, run)
        decoder = Decoder(is_ours(remote.rawconfig.get("_wandb", {}).get("m")), named=True)
        media = (record for row in cache.history() for record in decoder.row(row) if isinstance(record, Media))
        return _Served(remote, files, [record for record in media if any(item.file for item in record.items)])

    def _with_cells(self, history: Iterator[Record], remote: Any, cache: RunCache, files: Path) -> Iterator[Record]:
        """Records whose tables have the media of their cells, the files of which are fetched."""
        decoder = Decoder(is_ours(remote.rawconfig.get("_wandb", {}).get("m")), named=True)
        records = (record for row in cache.history() for record in decoder.row(row))
        cells = TableCells(
            remote, files, Counter(record.name for record in records if isinstance(record, Media) and _is_table(record))
        )
        numbers: Counter[str] = Counter()
        for record in history:
            if isinstance(record, Media) and _is_table(record):
                for item in record.items:
                    item.data = cells.filled(record.name, numbers[record.name], item.data)
                    for file in files_of(item.data):
                        with contextlib.suppress(NotFound):
                            cells.fetch(file)
                numbers[record.name] += 1
            yield record

    def address(self, where: str) -> tuple[str, str, str]:
        """Entity, project and run ("" for all) of ``where``: ``entity/project[/run]``, ``project``, or an address.

        Raises:
            UsageError: it has other parts.
        """
        parts = where.strip("/").split("/")
        if "://" in where:
            parts = [unquote(part) for part in urlsplit(where).path.strip("/").split("/")]
        parts = [part for index, part in enumerate(parts) if not (part in ("runs", "workspace") and index == 2)]
        if len(parts) == 1 and parts[0]:
            return self._entity(), parts[0], ""
        if len(parts) not in (2, 3) or not all(parts):
            raise UsageError(f"wandb:{where}: give wandb:entity/project or wandb:entity/project/run")
        return parts[0], parts[1], parts[2] if len(parts) == 3 else ""

    def api(self) -> Any:
        """The client, logged in.

        Raises:
            CredentialsMissing: there is no login, or it is refused. Unavailable: the server can't be reached.
        """
        if self._client is None:
            import wandb
            from wandb.errors import term
            from wandb.sdk import wandb_login

            def connect() -> Any:
                log, term.termlog = term.termlog, lambda *words, **options: None  # clients before 0.31 name the login
                checks, patience = getattr(wandb_login, "InternalApi", None), timedelta(seconds=START_PATIENCE_S)
                if checks is not None:  # those before 0.28 ask a dead server for days
                    wandb_login.InternalApi = functools.partial(checks, retry_timedelta=patience)
                try:
                    return wandb.Api(timeout=fetch.CLIENT_TIMEOUT_S)
                finally:
                    term.termlog = log
                    if checks is not None:
                        wandb_login.InternalApi = checks

            self._client = patiently(connect, START_PATIENCE_S)
        return self._client

    def host(self) -> str:
        """The server's name."""
        address = str(self.api().settings["base_url"])
        return urlsplit(address).netloc or address

    def _remote(self, run: SourceRun) -> Any:
        """The client's run, as the server has it now."""
        api = self.api()
        api.flush()
        remote = patiently(lambda: api.run(f"{run.native['entity']}/{run.native['project']}/{run.id}"))
        patiently(remote.load_full_data)
        return remote

    def _cache(self, remote: Any, run: SourceRun) -> RunCache:
        key = f"{self.host()}/{run.native['entity']}/{run.native['project']}/{run.id}"
        return RunCache(key, str(remote.created_at))

    def _entity(self) -> str:
        entity = patiently(lambda: self.api().default_entity)
        if not entity:
            raise UsageError("wandb: your login has no default entity; give wandb:entity/project")
        return str(entity)

    @contextlib.contextmanager
    def _project(self, entity: str, project: str) -> Iterator[None]:
        """Add the projects that exist to the error about one that doesn't."""
        try:
            yield
        except NotFound as error:
            names: list[str] = []
            with contextlib.suppress(TrackersError, ValueError):  # it is but a help
                answer = self.api().projects(entity, per_page=LISTED)
                names = [item.name for item in fetch.listed(answer, LISTED, patience_s=0.0)]
            hint = f"{entity} has {examples(names, LISTED)}" if names else f"your login sees no project of {entity!r}"
            raise NotFound(f"wandb: no project {entity}/{project} on {self.host()}; {hint}") from error

    def _runs_hint(self, entity: str, project: str) -> str:
        runs = self.api().runs(f"{entity}/{project}", order="-created_at", per_page=LISTED)
        names = [f"{run.name} ({run.id})" for run in fetch.listed(runs, LISTED)]
        return f"; there are {examples(names, LISTED)}" if names else "; it has no runs"

    def _complete(self, remote: Any, cache: RunCache, run: SourceRun) -> None:
        """Update the cache to what the server has now."""
        self._complete_events(remote, cache, run)
        token = _token(remote)
        if cache.index.token == token:
            return
        with progress(f"fetching {run.name} ({run.id})", "rows") as tell:
            fetch.history(remote, cache, tell)
        cache.complete(token)

    def _complete_events(self, remote: Any, cache: RunCache, run: SourceRun) -> None:
        """Have the cache hold the system events; say so where the server gives but a sample of them."""
        token = _token(remote)
        if cache.index.events_token != token:
            rows = fetch.events(remote)
            cache.set_events(rows, token, fetch.event_count(remote) or len(rows))
        stored = cache.index.events.rows if cache.index.events is not None else 0
        total = cache.index.events_there
        if stored < total:
            run.note = f"system metrics: sampled {stored:,} of {total:,}"

    def _metadata(self, remote: Any, run: SourceRun) -> dict[str, Any]:
        with (
            contextlib.suppress(OSError, Unavailable, NotFound, *UNDECODABLE),
            tempfile.TemporaryDirectory() as temporary,
        ):
            path = _Files(remote, Path(temporary)).get(METADATA)
            metadata = json.loads(confined.read(path)) if path is not None else {}
            return metadata if isinstance(metadata, dict) else {}
        return {}


def _is_table(record: Record) -> bool:
    return isinstance(record, Media) and record.type == "table"


class _Served:
    """Media of a run, fetched when they are looked at: see :class:`trackers.readers.reader.ServedMedia`."""

    def __init__(self, remote: Any, files: Path, media: list[Media]) -> None:
        self.media = media
        self._files = _Files(remote, files)
        self._numbers: dict[int, int] = {}
        counts: Counter[str] = Counter()
        for record in filter(_is_table, media):
            self._numbers[id(record)] = counts[record.name]
            counts[record.name] += 1
        self._cells = TableCells(remote, files, counts, LOOK_PATIENCE_S)

    def whole(self, record: Media, most_bytes: int) -> Media:
        """See :class:`trackers.readers.reader.ServedMedia`."""
        if record.type != "table":
            return record
        items = []
        for item in record.items:
            path = self._files.fetch(item.file, most_bytes, LOOK_PATIENCE_S)
            try:
                data = self._cells.filled(record.name, self._numbers.get(id(record), 0), table(path, most_bytes))
                items.append(MediaFile(format="json", data=data))
            except (*UNDECODABLE, KeyError, TypeError) as error:
                raise Damaged(f"wandb: {item.file} is no table: {reason(error)}") from error
        return Media(name=record.name, type=record.type, items=items, step=record.step, time=record.time)

    def fetch(self, record: Media, number: int, most_bytes: int) -> None:
        """See :class:`trackers.readers.reader.ServedMedia`."""
        self._files.fetch(record.items[number].file, most_bytes, LOOK_PATIENCE_S)

    def fetch_cell(self, path: str, most_bytes: int) -> None:
        """See :class:`trackers.readers.reader.ServedMedia`."""
        if not self._cells.fetch(path, most_bytes):
            self._files.fetch(path, most_bytes, LOOK_PATIENCE_S)


class _Files:
    """Fetches a run's files, each once."""

    def __init__(self, remote: Any, directory: Path) -> None:
        self._remote = remote
        self._directory = directory

    def get(self, path: str) -> Path | None:
        """The file; None where the run has none of this name."""
        try:
            return self.fetch(path) if confined.is_inside(path) else None
        except NotFound:
            return None

    def fetch(self, path: str, most_bytes: int | None = None, patience_s: float | None = None) -> Path:
        """The file.

        Args:
            most_bytes: maximum size; None: any. patience_s: see :func:`trackers.readers.wandb.fetch.patiently`.

        Raises:
            NotFound: the run has none of this name, or it is larger. Unavailable: the server can't be reached.
        """
        if not confined.is_inside(path):
            raise NotFound(f"wandb: {path!r:.200} is no path inside of the run")
        target = self._directory / path
        if not target.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            patiently(lambda: self._download(path, most_bytes), patience_s)
        if not target.is_file():
            raise NotFound(f"wandb: the run has no file {path!r:.200}")
        return target

    def _download(self, path: str, most_bytes: int | None) -> None:
        listed = fetch.listed(self._remote.files(names=[path]), 1, patience_s=0.0)
        if not listed:
            raise NotFound(f"wandb: the run has no file {path!r:.200}")
        (file,) = listed
        if file.name != path:  # the client writes to the name that the server answers
            raise NotFound(f"wandb: the server gives {file.name!r:.200} for {path!r:.200}")
        if most_bytes is not None and int(file.size or 0) > most_bytes:
            raise NotFound(f"wandb: {path!r:.200} has {int(file.size):,} bytes, more than {most_bytes:,}")
        file.download(root=str(self._directory), replace=True).close()


def _name_filter(name: str) -> dict[str, Any]:
    """The server's filter for a run by id or name; all runs for a glob, which is matched here."""
    if not name:
        return {}
    if any(sign in name for sign in "*?["):
        fixed = re.split(r"[*?\[]", name)[0]
        return {"display_name": {"$regex": f"^{re.escape(fixed)}"}} if fixed else {}
    return {"$or": [{"name": name}, {"display_name": name}]}


def _token(remote: Any) -> str:
    """What the server says of how far a run has got."""
    attributes = remote._attrs
    return f"{attributes.get('historyLineCount')}/{attributes.get('heartbeatAt')}/{attributes.get('state')}"


def _source_run(run: Any) -> SourceRun:
    attributes = run._attrs
    state = str(attributes.get("state") or "")
    return SourceRun(
        source=f"wandb:{run.entity}/{run.project}/{run.id}",
        id=run.id,
        name=attributes.get("displayName") or run.id,
        project=run.project,
        group=attributes.get("group") or None,
        tags=list(attributes.get("tags") or []),
        notes=attributes.get("notes") or None,
        created=_time(attributes.get("createdAt")),
        status=STATUS.get(state, ""),
        native={
            "entity": run.entity,
            "project": run.project,
            "state": state,
            "rows": attributes.get("historyLineCount") or 0,
            "heartbeat": attributes.get("heartbeatAt") or "",
            "url": run.url,
        },
    )


def _time(text: Any) -> float:
    """Unix seconds of one of W&B's times: ISO, UTC where it says no zone."""
    try:
        when = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return 0.0
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
