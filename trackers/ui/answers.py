"""Answers to the page's questions, as JSON values. Each takes the catalogue and what stands in the address."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from trackers import records
from trackers.analysis import span_tree
from trackers.analysis.figures import best_of
from trackers.analysis.groups import NONE, labelled
from trackers.analysis.tables import format_value
from trackers.errors import UNDECODABLE, NotFound, TrackersError, UsageError
from trackers.formats import gen_ai
from trackers.formats.csv_cell import csv_cell
from trackers.journal.messages import Message
from trackers.journal.run_directory import RunDirectory
from trackers.metrics import groups, roles, styles
from trackers.plotting import curve_math, html_page
from trackers.plotting.curve_math import Curve
from trackers.readers.console import RunConsole, lines_of
from trackers.records import Alert, ArtifactRecord, Console, Environment, Record, Span, Start, Summary, name_floats
from trackers.relay.delivery.cursor_file import delivery_report
from trackers.support import confined
from trackers.ui import deeds, media, table, tables
from trackers.ui.catalogue import Catalogue, identity
from trackers.ui.importance import importance
from trackers.ui.series import SMOOTHINGS
from trackers.ui.table import Row, RunQuery
from trackers.ui.views import AXES, METRIC, RunView

LINES = 200
"""Maximum number of runs drawn in one chart."""
BINS = 2000
"""Maximum number of parts of the x axis of a chart, each with up to four points of a run."""
LOG_BYTES = 256 * 1024
"""Bytes of a log's end that are shown."""
MOST_SCATTERED = 10_000
"""Maximum number of runs in a scatter plot."""
MOST_COMPARED = 200
"""Maximum number of runs compared side by side."""
MOST_SAVED = 2_000_000
"""Maximum number of values saved as one CSV file."""
FIRST = ("min", "max", None)
"""Charts of losses come first, then accuracies and the like, then what is neither better nor worse."""
MOST_LINES = 1000
"""Maximum number of lines of a console that are shown."""
SIDE_BY_SIDE = 20
"""Maximum number of runs whose media are shown side by side."""
GALLERY = ("image", "video", "audio", "text", "histogram", "html")
"""The order of media."""
MOST_TRACES, MOST_SPANS = 200, 500
"""Maximum numbers of traces of a run that are listed, the newest, and of spans of one that are shown."""
MOST_PROJECTS = 1000
"""Maximum number of projects to choose from."""
MOST_FILES = 200
"""Maximum number of files of an artifact that are listed."""

Parameters = Mapping[str, str]


def answer(catalogue: Catalogue, question: str, parameters: Parameters) -> Any:
    """The answer to a question, for JSON: NaN and infinities are named, but for gaps of curves, which are null.

    Raises:
        NotFound: there is no such question, run or value. UsageError: what is given can't be understood.
    """
    ask = QUESTIONS.get(question)
    if ask is None:
        raise NotFound("there is no such page")
    return ask(catalogue, parameters)


def look(catalogue: Catalogue, parameters: Parameters) -> Any:
    """Colours and dashes that tell runs apart."""
    return html_page.styles()


def runs(catalogue: Catalogue, parameters: Parameters) -> Any:
    """Rows of the table: a page of those that fit."""
    state = catalogue.state()
    try:
        query = msgspec.json.decode(parameters.get("query") or "{}", type=RunQuery)
    except UNDECODABLE as error:
        raise UsageError(f"the query can't be read: {error}") from None
    page = table.page(state.rows.values(), query)
    listed = [_row(row) for row in page.rows]
    usual = table.usual_columns(page.rows if query.first == 0 else [])
    return {
        "version": state.version,
        "rows": listed,
        "usual": usual,
        "goals": {name: roles.direction(name.partition(".")[2]) for name in query.columns or usual},
        "total": page.total,
        "all": len(state.rows),
        "groups": name_floats(page.groups),
        "spreads": page.spreads,
        "lost": state.problems,
    }


def columns(catalogue: Catalogue, parameters: Parameters) -> Any:
    """Names of all columns."""
    state = catalogue.state()
    return {"version": state.version, "columns": table.columns(state.rows.values())}


def views(catalogue: Catalogue, parameters: Parameters) -> Any:
    """The saved views of a project, or of all, by name."""
    return {"views": deeds.views(catalogue, parameters.get("project", ""))}


def pulse(catalogue: Catalogue, parameters: Parameters) -> Any:
    """Whether something is new: the table's version, and that of each run that is looked at; and all projects."""
    versions: dict[str, int] = {}
    for key in _keys(parameters):
        with contextlib.suppress(TrackersError):
            versions[key] = catalogue.view(key).version
    state = catalogue.state()
    projects = sorted({row.project for row in state.rows.values() if row.project})
    return {"version": state.version, "runs": versions, "projects": projects[:MOST_PROJECTS]}


def names(catalogue: Catalogue, parameters: Parameters) -> Any:
    """Names of the metrics of some runs by group.

    axis: what each is drawn over, unless something else is chosen: the step metric that ``define_metric`` gave it, time
    for those without a step, as the machine's samples, else the step.
    """
    stepped: dict[str, bool] = {}
    axes: dict[str, str] = {}
    problems: list[str] = []
    for _, view in _views(catalogue, _keys(parameters), problems):
        for name, has in view.names().items():
            stepped[name] = stepped.get(name, False) or has
        axes.update(view.own_axes())
    listed = [
        {
            "title": groups.TITLES[group],
            "names": [
                {"name": name, "axis": axes.get(name, "step" if stepped[name] else "relative")}
                for name in sorted(members, key=lambda name: FIRST.index(roles.direction(name)))
            ],
        }
        for group, members in groups.grouped(stepped).items()
        if members and group != "final"
    ]
    return {"groups": listed, "problems": problems}


class CurveOptions(NamedTuple):
    """Which part of curves is wanted, and how fine. low, high: the axis' ends.

    axis: one of :data:`trackers.ui.views.AXES`, or another metric, with :data:`trackers.ui.views.METRIC` before it.
    bins: parts of the axis. weight: of the past in smoothing, 0 to below 1. kind: of smoothing.
    """

    axis: str = "step"
    low: float = -math.inf
    high: float = math.inf
    bins: int = 400
    weight: float = 0.0
    log_x: bool = False
    log_y: bool = False
    kind: str = "ema"


class CurveSet(NamedTuple):
    """One metric's curves. versions: of each run that was asked for. problems: why others can't be read."""

    lines: list[tuple[Row, Curve]]
    versions: dict[str, int]
    problems: list[str]

    def bounds(self, name: str) -> tuple[float | None, float | None]:
        """What the y axis reaches down and up to at least: see :class:`trackers.plotting.figure.Panel`."""
        highest = max(
            (value for _, curve in self.lines for value in _listed(curve.y) if math.isfinite(value)), default=0.0
        )
        return roles.bounds([name], highest)


def curve_set(catalogue: Catalogue, keys: Sequence[str], name: str, cut: CurveOptions, baseline: str = "") -> CurveSet:
    """One metric's curves, of those runs that have it.

    Args:
        baseline: a run; the others' values are then differences from its value at the same x, in percent.
    """
    result = CurveSet([], {}, [])
    styles = styles_of(keys)
    base: tuple[Any, Any] | None = None
    if baseline:
        view = catalogue.view(baseline)
        with view.lock:
            series = view.series(name, cut.axis)
            base = series.smoothed(0, len(series.x), cut.weight, cut.kind) if cut.weight > 0 else (series.x, series.y)
    for key, view in _views(catalogue, keys, result.problems):
        result.versions[key] = view.version
        with view.lock:
            series = view.series(name, cut.axis)
            if not len(series.x):
                continue
            curve = series.curve(
                low=cut.low, high=cut.high, bins=cut.bins, weight=cut.weight, log_x=cut.log_x, log_y=cut.log_y,
                kind=cut.kind,
            )  # fmt: skip
        if base is not None:
            curve.x, curve.y = curve.x, curve_math.percent_of(base, curve.x, curve.y)
            curve.smooth_y = curve_math.percent_of(base, curve.smooth_x, curve.smooth_y)
        row = catalogue.row(key)
        curve.label, curve.style = row.name or row.id, styles[key]
        result.lines.append((row, curve))
    return result


def curves(catalogue: Catalogue, parameters: Parameters) -> Any:
    """One metric's curves, a line for each run, or for each group of runs with the mean and spread of its runs."""
    name, axis = parameters.get("name", ""), parameters.get("axis", "step")
    if axis not in AXES and not axis.startswith(METRIC):
        raise UsageError(f"unknown axis {axis!r}: known are {', '.join(AXES)}, {METRIC}NAME")
    low, high = _number(parameters, "low", -math.inf), _number(parameters, "high", math.inf)
    weight = _number(parameters, "weight", 0.0)
    bins = int(_number(parameters, "bins", 400.0))
    kind, baseline = parameters.get("kind", "ema"), parameters.get("base", "")
    if kind not in SMOOTHINGS:
        raise UsageError(f"unknown smoothing {kind!r}: known are {', '.join(SMOOTHINGS)}")
    if not (0 <= weight < 1 and 2 <= bins <= BINS):
        raise UsageError(f"weight must be 0 to below 1, bins 2 to {BINS:,}")
    cut = CurveOptions(axis, low, high, bins, weight, parameters.get("log_x") == "1", parameters.get("log_y") == "1",
                       kind)  # fmt: skip
    by = parameters.get("by", "")
    # A mean has all values, also those without a place on a logarithmic axis.
    result = curve_set(catalogue, _keys(parameters), name, cut._replace(log_y=cut.log_y and not by), baseline)
    if by:
        drawn = _bands([catalogue.row(key) for key in result.versions], result, by, cut)
    else:
        drawn = [{**_curve_fields(curve), "run": row.key} for row, curve in result.lines]
    floor, ceiling = (None, None) if baseline else result.bounds(name)
    return {
        "name": name, "lines": drawn, "runs": result.versions, "problems": result.problems,
        "floor": floor, "ceiling": ceiling,
    }  # fmt: skip


def points(catalogue: Catalogue, parameters: Parameters) -> media.ServedFile:
    """Every value of some metrics, of some runs, as a CSV file: run, step, time (Unix seconds), value.

    Of several metrics, the name stands before the value.

    Raises:
        UsageError: they are more than :data:`MOST_SAVED`.
    """
    given = [parameters.get("name", "")]
    if "names" in parameters:
        given = list(dict.fromkeys(name for name in parameters["names"].split("\n") if name))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    several = len(given) > 1
    writer.writerow(["run", "step", "time", *(["metric", "value"] if several else map(csv_cell, given))])
    count = 0
    for key, view in _views(catalogue, _keys(parameters), []):
        row = catalogue.row(key)
        with view.lock:
            values = [(name, view.points(name)) for name in given]
        label = csv_cell(row.name or row.id)
        for name, points_of in values:
            count += len(points_of)
            if count > MOST_SAVED:
                raise UsageError(f"{name} has more than {MOST_SAVED:,} values here: `trackers sql` reads them all")
            metric = [csv_cell(name)] if several else []
            writer.writerows(
                [label, "" if step is None else step, time, *metric, value] for step, time, value in points_of
            )
    content = out.getvalue().encode("utf-8", "replace")
    return media.ServedFile(content, "text/csv; charset=utf-8", media.save_as(f"{'_'.join(given)}.csv"))


def _bands(rows: Sequence[Row], result: CurveSet, by: str, cut: CurveOptions) -> list[dict[str, Any]]:
    """A band for each group of those rows, with label and style as `trackers plot --by` has them."""
    curves = {row.key: curve for row, curve in result.lines}
    members: dict[str, list[Row]] = {}
    for label, row in _labelled(rows, by):
        members.setdefault(label, []).append(row)
    group_styles = styles.styles_of_groups(members)
    drawn = []
    for label, group in sorted(members.items()):
        parts = [curves[row.key] for row in group if row.key in curves]
        if parts:
            title = f"{label} (n = {len(group)})"
            band = curve_math.band(
                title, parts, style=group_styles[label], bins=cut.bins, log_x=cut.log_x, log_y=cut.log_y
            )
            drawn.append({**_curve_fields(band), "run": f"group {label}"})
    return drawn


def _labelled(rows: Sequence[Row], by: str) -> Iterable[tuple[str, Row]]:
    what = "tag" if by == "tags" else by
    known = what.startswith("config.") and any(row.cell(what) is not None for row in rows)
    if known or what in ("group", "tag", "seed"):
        return labelled(rows, what)
    return [(NONE if (value := row.cell(by)) in (None, "") else format_value(value), row) for row in rows]


def _curve_fields(curve: Curve) -> dict[str, Any]:
    """The fields of a curve for the page: lists of numbers; a gap is null."""
    arrays = ("x", "y", "smooth_x", "smooth_y", "low", "high", "nans", "highs", "lows")
    fields: dict[str, Any] = {name: _listed(getattr(curve, name)) for name in arrays}
    return {**fields, "label": curve.label, "style": curve.style, "dashed": False, "count": curve.count}


def _listed(values: Any) -> list[float]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def run(catalogue: Catalogue, parameters: Parameters) -> Any:
    """One run: its row, whole configuration, results, environment, attempts, deliveries, media and messages."""
    key = parameters.get("run", "")
    view = catalogue.view(key)
    row = catalogue.row(key)
    details: dict[str, Any] = {"row": _row(row), "version": view.version}
    try:
        details["media"] = media.names(catalogue.others(key))
    except TrackersError as error:  # its numbers are there
        details["media"], details["media_problem"] = media.names(view.others), str(error)[:300]
    config = view.config()
    about: dict[str, Any] = {}
    delivery: dict[str, Any] = {}
    if catalogue.is_own(key):
        about, config, delivery = _identity(catalogue, key, config)
    environment: dict[str, Any] = {}
    results: dict[str, Any] = {}
    attempts, alerts = [], []
    artifacts: list[dict[str, Any]] = []
    for record in view.others:
        match record:
            case Environment():
                records.merge(environment, record.values)
            case Summary():
                records.take_results(results, record)
            case Start() if record.rank is not None:
                attempts.append([record.attempt, record.time, record.host, record.world_size, record.from_step])
            case Alert():
                alerts.append([record.time, record.line()[:1000]])
            case ArtifactRecord():
                artifacts.append(_artifact(record, len(artifacts)))
    details["about"] = _leaves({name: value for name, value in about.items() if value and name not in environment})
    details["config"], details["results"], details["environment"] = map(_leaves, (config, results, environment))
    details["attempts"], details["alerts"], details["artifacts"] = attempts[-100:], alerts[-200:], artifacts[-200:]
    details["delivery"] = name_floats(delivery)
    return details


def _artifact(record: ArtifactRecord, index: int) -> dict[str, Any]:
    """index: the artifact's among the run's. kept: whether the page can save a file."""
    files = [
        {"path": file.path[:300], "size": file.size, "kept": bool(file.file) and file.size <= media.FILE_BYTES}
        for file in record.files[:MOST_FILES]
    ]
    size = sum(file.size for file in record.files)
    return {"place": index, "step": record.step, "type": record.type, "name": record.name, "size": size,
            "files": files, "more": len(record.files) - len(files)}  # fmt: skip


def _identity(catalogue: Catalogue, key: str, config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """What ``run.json`` says of a run, its configuration with the changes, and how each tracker stands.

    What Environment records hold, too, has their names, so that the page shows it once.
    """
    directory = RunDirectory(catalogue.directory(key) or "")
    info = directory.read_info()
    about = {
        "command": " ".join([info.program, *info.argv]), "directory": info.directory, "executable": info.python,
        "host": info.host, "user": info.user, "notes": info.notes or "", "job type": info.job_type or "",
        "forked from": info.forked_from,
        "git": {name: info.git.get(name) for name in ("commit", "branch", "remote") if info.git.get(name)},
    }  # fmt: skip
    return about, records.merge(info.config, config), delivery_report(directory, info.trackers)


def _leaves(values: dict[str, Any]) -> list[list[Any]]:
    """Name and value of each setting, texts cut."""
    leaves: list[list[Any]] = []
    for name, value in records.flatten(values, "."):
        if len(leaves) >= 5000:
            break
        number = value is None or isinstance(value, (bool, int, float))
        leaves.append([name[:300], _safe(value) if number else _value_text(value)])
    return leaves


def _value_text(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(name_floats(value)).decode()
    return text[: media.LONGEST]


def _safe(value: Any) -> Any:
    """A number that JavaScript holds; else as text."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
        return str(value)[:300] if value.bit_length() < 10_000 else "…"
    return name_floats(value)


def media_steps(catalogue: Catalogue, parameters: Parameters) -> Any:
    """Steps at which something of a name and type was logged."""
    key = parameters.get("run", "")
    steps = media.steps(catalogue.others(key), parameters.get("name", ""), parameters.get("type", ""))
    return {"steps": steps, "version": catalogue.view(key).version}


def media_items(catalogue: Catalogue, parameters: Parameters) -> Any:
    """One record of a name: its items, histograms with what they hold."""
    key = parameters.get("run", "")
    index = int(_number(parameters, "place", -1))
    name, kind, others = parameters.get("name", ""), parameters.get("type", ""), catalogue.others(key)
    return media.items(others, name, kind, index, catalogue.directory(key), partial(catalogue.whole, key))


def media_file(catalogue: Catalogue, parameters: Parameters) -> media.ServedFile:
    """The file of an item.

    Raises:
        NotFound: see :func:`trackers.ui.media.file`.
    """
    key = parameters.get("run", "")
    name, kind = parameters.get("name", ""), parameters.get("type", "")
    index, number = int(_number(parameters, "place", -1)), int(_number(parameters, "item", 0))
    others = catalogue.others(key)
    return media.file(others, name, kind, index, number, catalogue.directory(key), partial(catalogue.fetch, key))


def artifact_file(catalogue: Catalogue, parameters: Parameters) -> media.ServedFile:
    """A file of an artifact, to be saved.

    Raises:
        NotFound: see :func:`trackers.ui.media.artifact_file`.
    """
    key = parameters.get("run", "")
    index, number = int(_number(parameters, "place", -1)), int(_number(parameters, "item", 0))
    return media.artifact_file(catalogue.view(key).others, index, number, catalogue.directory(key))


def gallery(catalogue: Catalogue, parameters: Parameters) -> Any:
    """What some runs logged beside numbers and tables: name and type, and the steps of each run, in their order."""
    problems: list[str] = []
    by_media: dict[tuple[str, str], dict[str, list[int | None]]] = {}
    for key, others in _others(catalogue, parameters, problems):
        for entry in media.names(others):
            if entry["type"] != "table":
                by_run = by_media.setdefault((entry["name"], entry["type"]), {})
                by_run[key] = media.steps(others, entry["name"], entry["type"])
    listed = [{"name": name, "type": kind, "runs": runs} for (name, kind), runs in by_media.items()]
    return {"media": sorted(listed, key=lambda entry: GALLERY.index(entry["type"]) if entry["type"] in GALLERY else 9),
            "runs": _labels(catalogue, parameters), "problems": problems}  # fmt: skip


def table_names(catalogue: Catalogue, parameters: Parameters) -> Any:
    """The tables of some runs: names, and the steps of each run, in their order."""
    problems: list[str] = []
    by_name: dict[str, dict[str, list[int | None]]] = {}
    for key, others in _others(catalogue, parameters, problems):
        for name, steps in tables.steps(others).items():
            by_name.setdefault(name, {})[key] = steps
    listed = [{"name": name, "runs": runs} for name, runs in by_name.items()]
    return {"tables": listed, "runs": _labels(catalogue, parameters), "problems": problems}


def _labels(catalogue: Catalogue, parameters: Parameters) -> list[dict[str, str]]:
    rows = catalogue.state().rows
    return [
        {"key": key, "name": rows[key].name or rows[key].id} for key in _keys(parameters)[:SIDE_BY_SIDE] if key in rows
    ]


def table_page(catalogue: Catalogue, parameters: Parameters) -> Any:
    """Rows of a table: see :func:`trackers.ui.tables.page`."""
    return tables.page(_table(catalogue, parameters), _row_query(parameters))


def table_differences(catalogue: Catalogue, parameters: Parameters) -> Any:
    """The tables of two runs side by side: see :func:`trackers.ui.tables.differences`."""
    first, second = _table(catalogue, parameters), _table(catalogue, parameters, "other", "other_place")
    on = [name for name in parameters.get("on", "").split("\n") if name]
    query, every = _row_query(parameters), parameters.get("all") == "1"
    return tables.differences(catalogue.tables, first, second, on, query, all_rows=every)


def table_file(catalogue: Catalogue, parameters: Parameters) -> media.ServedFile:
    """All rows of a table that fit, as CSV: see :func:`trackers.ui.tables.saved`."""
    return tables.saved(_table(catalogue, parameters), parameters.get("name", ""), _row_query(parameters))


def cell_file(catalogue: Catalogue, parameters: Parameters) -> media.ServedFile:
    """The file that a cell of a table names: see :func:`trackers.ui.tables.cell_file`."""
    row, column = int(_number(parameters, "row", -1)), int(_number(parameters, "column", -1))
    key = parameters.get("run", "")
    logged = _table(catalogue, parameters)
    return tables.cell_file(logged, row, column, catalogue.directory(key), lambda file: catalogue.fetch_cell(key, file))


def _table(catalogue: Catalogue, parameters: Parameters, run: str = "run", index_name: str = "place") -> tables.Logged:
    key = parameters.get(run, "")
    others, number, root = catalogue.others(key), int(_number(parameters, index_name, -1)), catalogue.directory(key)
    whole = partial(catalogue.whole, key)
    return tables.logged(catalogue.tables, key, others, parameters.get("name", ""), number, root, whole)


def _row_query(parameters: Parameters) -> tables.RowQuery:
    first, most = int(_number(parameters, "first", 0)), int(_number(parameters, "most", 50))
    return tables.RowQuery(
        parameters.get("where", ""), parameters.get("sort", ""), parameters.get("descending") == "1", first, most
    )


def _others(
    catalogue: Catalogue, parameters: Parameters, problems: list[str]
) -> Iterator[tuple[str, Sequence[Record]]]:
    """The records of runs that are asked for and can be read; why others can't goes to ``problems``."""
    for key in _keys(parameters)[:SIDE_BY_SIDE]:
        try:
            yield key, catalogue.others(key)
        except TrackersError as error:
            problems.append(str(error)[:300])


def spans(catalogue: Catalogue, parameters: Parameters) -> Any:
    """The newest traces of a run, and the spans of one of them: the given one, else the newest.

    ``rows``: name, depth, kind, seconds since the trace began, seconds, status, error, tokens, inputs, outputs of each.
    """
    key, trace_id = parameters.get("run", ""), parameters.get("trace", "")
    view = catalogue.view(key)
    traces: list[span_tree.Trace] = catalogue.tables.get(
        ("spans", key, view.version),
        lambda: span_tree.traces(record for record in view.others if isinstance(record, Span)),
        lambda traces: 200 * sum(len(trace.rows) for trace in traces),
    )
    if not traces:
        return {"traces": [], "total": 0, "rows": []}
    chosen = next((trace for trace in traces if trace.id == trace_id), traces[-1])
    rows = []
    for depth, span in chosen.rows[:MOST_SPANS]:
        if span is None:
            rows.append([span_tree.LOST, depth, "", 0.0, 0.0, "", "", "", "", ""])
            continue
        used = gen_ai.tokens(span.attributes)
        usage = f"{used.get(gen_ai.INPUT, 0):,} + {used.get(gen_ai.OUTPUT, 0):,} tokens" if used else ""
        texts = ["" if value is None else _value_text(value)[: tables.LONGEST] for value in (span.inputs, span.outputs)]
        times = [max(0.0, span.start - chosen.began), span.seconds]
        rows.append([span.name[:300], depth, span.type[:100], *times, span.status[:20], span.error[: tables.LONGEST],
                     usage, *texts])  # fmt: skip
    listed = [_trace(trace) for trace in traces[-MOST_TRACES:]]
    more = len(chosen.rows) - len(rows)
    return {"traces": listed, "total": len(traces), "trace": _trace(chosen), "rows": name_floats(rows), "more": more}


def _trace(trace: span_tree.Trace) -> dict[str, Any]:
    first = next((span for span in trace.spans if not span.parent), trace.spans[0])
    return {"id": trace.id[:100], "name": first.name[:100], "time": trace.began, "seconds": trace.seconds,
            "failed": any(span.status == "error" for span in trace.spans)}  # fmt: skip


def log(catalogue: Catalogue, parameters: Parameters) -> Any:
    """The end of what the relay of a run said: messages to people, and its log."""
    key = parameters.get("run", "")
    catalogue.row(key)
    directory = catalogue.directory(key) if catalogue.is_own(key) else None
    if directory is None:
        return {"messages": [], "log": ""}
    run_directory = RunDirectory(directory)
    messages = []
    for line in _log_tail(run_directory.messages).splitlines():
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            message = msgspec.json.decode(line, type=Message)
            messages.append([message.time, message.level, message.source, message.text])
    return {"messages": messages[-500:], "log": _log_tail(run_directory.relay_log)}


def _log_tail(path: Any) -> str:
    try:
        with confined.open_file(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_BYTES))
            text = file.read(LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    return text if size <= LOG_BYTES else text.partition("\n")[2]


def console(catalogue: Catalogue, parameters: Parameters) -> Any:
    """The last lines of what a run printed: time, stream, rank and text of each.

    Parameters: ``find``, a text that lines must have, in either case; ``stream``. ``ranks``: how many printed.
    """
    key, find, stream = parameters.get("run", ""), parameters.get("find", "").lower(), parameters.get("stream", "")
    catalogue.row(key)
    directory = catalogue.directory(key) if catalogue.is_own(key) else None
    if directory is None:
        entries = [record for record in catalogue.view(key).others if isinstance(record, Console)]
        lines = list(lines_of(entries))
    else:
        printed = RunConsole(RunDirectory(directory))
        # What is looked for may be anywhere; else the end is enough.
        output = printed.read() if find else printed.read_tail(LOG_BYTES)
        lines = sorted(lines_of(output, printed.main()), key=lambda line: line.time)
    ranks = len({line.rank for line in lines})
    chosen = [line for line in lines if (not stream or line.stream in (stream, "output")) and find in line.text.lower()]
    shown = [[line.time, line.stream, line.rank, line.text] for line in chosen[-MOST_LINES:]]
    return {"lines": shown, "more": len(chosen) - len(shown), "ranks": ranks}


def compare(catalogue: Catalogue, parameters: Parameters) -> Any:
    """Settings of some runs side by side, those that differ and the others; their results, then their last values.

    ``best``: which runs have the best value of each.
    """
    rows = [row for key in _keys(parameters)[:MOST_COMPARED] if (row := catalogue.state().rows.get(key)) is not None]
    differ, same = table.differing([_config(catalogue, row) for row in rows])
    values = [{**{f"final/{name}": value for name, value in row.result.items()}, **row.last} for row in rows]
    results = {name: cells for part in table.differing(values) for name, cells in part.items()}
    results = dict(sorted(results.items(), key=lambda item: not item[0].startswith("final/")))
    goals = {name: roles.direction(records.plain_name(name)) for name in results}
    return name_floats(
        {
            "runs": [{"key": row.key, "name": row.name or row.id, "status": row.status} for row in rows],
            "differ": list(differ.items()),
            "same": list(same.items()),
            "results": list(results.items()),
            "best": {name: sorted(best_of(cells, goals[name])) for name, cells in results.items()},
        }
    )


def _config(catalogue: Catalogue, row: Row) -> dict[str, Any]:
    """A run's settings with the changes that were recorded later."""
    try:
        return {**row.config, **table.leaf_values(catalogue.view(row.key).config())}
    except TrackersError:
        return row.config


def scatter(catalogue: Catalogue, parameters: Parameters) -> Any:
    """Values of some columns, a row for each run that fits; for a scatter plot or parallel coordinates."""
    column_names = [name for name in parameters.get("columns", "").split("\n") if name][:12]
    rows = [
        [row.key, row.name or row.id, *map(_with_named_floats, map(row.cell, column_names))]
        for row in _fitting(catalogue, parameters)
    ]
    return {"columns": column_names, "rows": rows}


def settings(catalogue: Catalogue, parameters: Parameters) -> Any:
    """Which settings matter for a column: see :func:`trackers.ui.importance.importance`."""
    rows, forest = _fitting(catalogue, parameters), parameters.get("forest") == "1"
    return {"settings": importance(rows, parameters.get("column", ""), forest=forest)}


def _fitting(catalogue: Catalogue, parameters: Parameters) -> list[Row]:
    """The runs that a question is about."""
    fits, project = table.condition(parameters.get("where", "")), parameters.get("project", "")
    chosen = set(_keys(parameters))
    rows = (
        row
        for row in catalogue.state().rows.values()
        if not (project and row.project != project)
        and not (chosen and row.key not in chosen)
        and (fits is None or fits(row))
    )
    return list(itertools.islice(rows, MOST_SCATTERED))


def _with_named_floats(value: Any) -> Any:
    return value if type(value) is not float or math.isfinite(value) else name_floats(value)


QUESTIONS: dict[str, Callable[[Catalogue, Parameters], Any]] = {
    "look": look, "runs": runs, "columns": columns, "pulse": pulse, "views": views, "names": names,
    "curves": curves, "run": run, "log": log, "console": console, "media": media_steps, "items": media_items,
    "compare": compare, "scatter": scatter, "settings": settings, "gallery": gallery, "spans": spans,
    "tables": table_names, "rows": table_page, "differences": table_differences,
}  # fmt: skip
"""By their names in an address."""
FILES: dict[str, Callable[[Catalogue, Parameters], media.ServedFile]] = {
    "media": media_file, "artifact": artifact_file, "points": points, "cell": cell_file, "table": table_file,
}  # fmt: skip
"""Files, by their names in an address."""


def _row(row: Row) -> Any:
    return name_floats(msgspec.to_builtins(row))


def styles_of(keys: Sequence[str]) -> dict[str, int]:
    """The style of each run's curves: see :func:`trackers.metrics.styles.styles_of`."""
    return dict(zip(keys, styles.styles_of([identity(key) for key in keys]), strict=True))


def _keys(parameters: Parameters) -> list[str]:
    return list(dict.fromkeys(key for key in parameters.get("runs", "").split(",") if key))[:LINES]


def _views(catalogue: Catalogue, keys: Sequence[str], problems: list[str]) -> list[tuple[str, RunView]]:
    """The runs that are asked for and can be read; why others can't goes to ``problems``."""
    views = []
    for key in keys:
        try:
            views.append((key, catalogue.view(key)))
        except TrackersError as error:
            problems.append(str(error)[:300])
    return views


def _number(parameters: Parameters, name: str, default: float) -> float:
    text = parameters.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        raise UsageError(f"{name} must be a number, not {text[:40]!r}") from None
    if value != value:
        raise UsageError(f"{name} must be a number")
    return value
