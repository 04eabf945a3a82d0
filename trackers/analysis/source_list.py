"""Runs of other sources than our own, as ``trackers ls`` and ``trackers show`` show them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trackers.analysis.run_files import logged_items, summed
from trackers.analysis.run_list import Overview
from trackers.metrics.groups import group_of
from trackers.readers import helpers
from trackers.readers.reader import Reader, SourceRun
from trackers.readers.registry import open_source
from trackers.readers.run_data import RunData
from trackers.records import SUMMARY_PREFIX, final_name
from trackers.tracker import RunInfo, Status


def overviews(sources: Sequence[str], say: Callable[[str], object]) -> list[Overview]:
    """All runs that sources name; those that can't be read are left out, with a message.

    Raises:
        NotFound: a source names none, or none that can be read. UsageError: it can't be understood.
    """
    views: dict[str, Overview] = {}
    for source in sources:
        reader, runs = open_source(source)
        made = helpers.those_of(runs, partial(_overview, reader), say)
        views.update({view.info.directory: view for view in made})
    return list(views.values())


def _overview(reader: Reader, run: SourceRun) -> Overview:
    return overview_of_source(RunData(reader, run))


def overview_of_source(data: RunData) -> Overview:
    """A run of any other source, in the same words: no trackers, and ``info.directory`` is the source itself."""
    run = data.run
    host = next((str(attempt["host"]) for attempt in reversed(data.attempts) if attempt.get("host")), "")
    info = RunInfo(
        id=run.id, name=run.name, project=run.project, group=run.group, tags=run.tags, notes=run.notes,
        created=run.created, config=data.config, host=host, attempts=data.attempts, directory=run.source, foreign=True,
        forked_from=_origin(data.config),
    )  # fmt: skip
    view = Overview(info=info, status=Status(name=data.status or "unknown"), note=run.note)  # type: ignore[arg-type]
    for name, known in data.series().items():
        view.records += known.count
        if name.startswith(SUMMARY_PREFIX):
            continue
        view.last[name], view.steps[name] = known.value, known.last
        if known.last is not None and group_of(name) not in ("gpu", "system"):
            view.step = known.last if view.step is None else max(view.step, known.last)
    for text in data.texts():
        view.last.update(text.values)
        view.steps.update(dict.fromkeys(text.values, text.step))
    view.results = {final_name(name): value for name, value in data.summary.items()}
    files = summed(logged_items([*data.media(), *data.artifacts()], Path(run.directory) if run.directory else None))
    view.media, view.artifacts = files["media"], files["artifacts"]
    return view


def _origin(config: dict[str, Any]) -> str:
    """What a run was forked from, which every tracker has among its settings; "": nothing."""
    origin = config.get("forked_from")
    return origin if isinstance(origin, str) and re.fullmatch(r".+/.+@[0-9]+", origin) else ""
