"""Runs of other sources than our own, as ``trackers ls`` and ``trackers show`` show them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trackers.analysis.collect import kept_facts
from trackers.analysis.run_files import logged_items, summed
from trackers.analysis.run_list import Overview
from trackers.analysis.run_stats import RunStats
from trackers.metrics.groups import group_of
from trackers.readers import helpers
from trackers.readers.reader import Reader, SourceRun
from trackers.readers.registry import open_source
from trackers.readers.run_data import RunData
from trackers.records import SUMMARY_PREFIX, final_name
from trackers.tracker import RunInfo, Status


def overviews(sources: Sequence[str], say: Callable[[str], object], *, whole: bool = False) -> list[Overview]:
    """All runs that sources name; those that can't be read are left out, with a message.

    Args:
        whole: read all of each run, though its source may keep what a list shows: so that attempts, texts and files
            are there.

    Raises:
        NotFound: a source names none, or none that can be read. UsageError: it can't be understood.
    """
    views: dict[str, Overview] = {}
    for source in sources:
        reader, runs = open_source(source)
        made = helpers.those_of(runs, partial(_overview, reader, whole), say)
        views.update({view.info.directory: view for view in made})
    return list(views.values())


def _overview(reader: Reader, whole: bool, run: SourceRun) -> Overview:
    known = None if whole else kept_facts(reader, run)
    return overview_of_source(RunData(reader, run)) if known is None else told(run, known)


def told(run: SourceRun, known: RunStats) -> Overview:
    """A run by what its source keeps of it for lists."""
    view = _view(run, known.config, known.status)
    view.time = run.created + (known.speed.seconds or 0.0)
    numbers = {name: fold for name, fold in known.folds.items() if not name.startswith(SUMMARY_PREFIX)}
    view.last = {name: fold.last for name, fold in numbers.items()}
    view.steps = {name: fold.last_step for name, fold in numbers.items()}
    view.step = known.steps
    view.results = {final_name(name): value for name, value in known.summary.items()}
    return view


def overview_of_source(data: RunData) -> Overview:
    """A run of any other source, in the same words: no trackers, and ``info.directory`` is the source itself."""
    run = data.run
    view = _view(run, data.config, data.status, data.attempts)
    for name, known in data.series().items():
        view.records += known.count
        if not name.startswith(SUMMARY_PREFIX):
            view.last[name], view.steps[name] = known.value, known.last
    of_training = (name for name in view.steps if group_of(name) not in ("gpu", "system"))
    view.step = max((step for name in of_training if (step := view.steps[name]) is not None), default=None)
    for text in data.texts():
        view.last.update(text.values)
        view.steps.update(dict.fromkeys(text.values, text.step))
    view.results = {final_name(name): value for name, value in data.summary.items()}
    files = summed(logged_items([*data.media(), *data.artifacts()], Path(run.directory) if run.directory else None))
    view.media, view.artifacts = files["media"], files["artifacts"]
    return view


def _view(run: SourceRun, config: dict[str, Any], status: str, attempts: Sequence[dict[str, Any]] = ()) -> Overview:
    host = next((str(attempt["host"]) for attempt in reversed(attempts) if attempt.get("host")), "")
    info = RunInfo(
        id=run.id, name=run.name, project=run.project, group=run.group, tags=run.tags, notes=run.notes,
        created=run.created, config=config, host=host, attempts=list(attempts), directory=run.source, foreign=True,
        forked_from=_origin(config),
    )  # fmt: skip
    return Overview(info=info, status=Status(name=status or "unknown"), note=run.note)  # type: ignore[arg-type]


def _origin(config: dict[str, Any]) -> str:
    """What a run was forked from, which every tracker has among its settings; "": nothing."""
    origin = config.get("forked_from")
    return origin if isinstance(origin, str) and re.fullmatch(r".+/.+@[0-9]+", origin) else ""
