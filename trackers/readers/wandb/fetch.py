"""Fetches one run of W&B whole: the complete history and all system events, patiently, and each but once.

The real client is asked. It waits and asks again by itself when the server says 429 (``Retry-After``) or 5xx; what
takes it longer than its patience is asked again from here, for :data:`PATIENCE_S`.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from trackers.errors import CredentialsMissing, Damaged, NotFound, TrackersError, Unavailable
from trackers.readers.boundary import DATA_ERRORS, why
from trackers.readers.progress_bar import Progress
from trackers.readers.wandb.cache import RunCache

CLIENT_TIMEOUT_S = 60
"""Timeout of the client for an answer, in seconds, including its pauses between retries."""
PATIENCE_S = 900.0
PAUSE_S = 2.0
PAGE_STEPS = 1000
"""Page size of the client, in steps (https://docs.wandb.ai/ref/python/public-api/run#scan_history)."""
MOST_STEPS = 1_000_000_000
MOST_PAGES = 100_000
"""Maximum number of pages of a history beyond its number of rows; nearly all of them would be empty."""
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
    kept = cache.rows
    _fetch(run, cache, end, _page_steps(count - kept, end - cache.last - 1), progress, count)
    if cache.rows < count and (kept or _page_steps(count, end) > PAGE_STEPS):
        # Rows were put in place of others, or a server gives less than a page's steps: by the client's own pages.
        cache.clear()
        _fetch(run, cache, end, PAGE_STEPS, progress, count)


def _fetch(run: Any, cache: RunCache, end: int, page: int, progress: Progress, count: int) -> None:
    rows: list[dict[str, Any]] = []
    if (end - cache.last) // page > MOST_PAGES + count:
        raise Damaged(f"wandb: the server claims {end:,} steps for {count:,} rows: that has no end")
    while cache.last + 1 < end:
        try:
            scan = patiently(lambda: run.scan_history(min_step=cache.last + 1, max_step=end, page_size=page))
            for row in _each(scan):
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


def _each(scan: Any) -> Iterator[dict[str, Any]]:
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


def event_count(run: Any) -> int | None:
    """How many system events the server has; None where it doesn't say."""
    try:
        answer = patiently(partial(run._exec, EVENT_COUNT))
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
    said = False
    while True:
        try:
            return ask()
        except Exception as error:
            problem = translate(error)
            if not isinstance(problem, Unavailable) or time.monotonic() + pause > until:
                raise problem from error
            if not said:
                print(f"{problem}; asking again for {until - time.monotonic():.0f} s", file=sys.stderr)
                said = True
            time.sleep(pause)
            pause = min(60.0, pause * 2)


def translate(error: Exception) -> Exception:
    """The client's error in our words; one that isn't the client's is given back."""
    from wandb.errors import AuthenticationError, CommError, Error, UsageError
    from wandb.sdk.lib.service.service_connection import WandbApiFailedError

    text = " ".join(str(error).split())
    lower = text.lower()
    if isinstance(error, UsageError) and "api key" in lower:
        return CredentialsMissing("wandb: no API key; run `wandb login`, or set WANDB_API_KEY")
    away = ("did not respond in time", "timed out", "connection", "502", "503", "504", "429", "rate limit", "eof")
    if isinstance(error, (AuthenticationError, CommError, WandbApiFailedError, Error)):
        if "could not find" in lower:
            return NotFound(f"wandb: {text}")
        if isinstance(error, CommError) and isinstance(error.exc, DATA_ERRORS) and not isinstance(error.exc, OSError):
            # Asking again won't help.
            return Damaged(f"wandb: the server's answer isn't what it must be: {why(error.exc)}")
        if any(word in lower for word in away):
            return Unavailable(f"wandb: the server can't be reached or is busy: {text[:300]}")
        if isinstance(error, AuthenticationError) or any(word in lower for word in ("401", "403", "permission")):
            return CredentialsMissing(f"wandb: login refused: {text[:300]}; run `wandb login --relogin`")
        if "404" in lower:
            return NotFound(f"wandb: {text[:300]}")
        return Unavailable(f"wandb: {text[:300]}")
    if isinstance(error, ValueError) and "could not find" in lower:
        return NotFound(f"wandb: {text}")
    return error
