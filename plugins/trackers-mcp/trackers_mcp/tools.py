"""The tools: what an agent can ask of runs, and, where it is allowed, do to them. Each is what a command does.

:data:`TOOLS` is the one table: the server, the skill, ``llms.txt`` and docs/agents.md are made from it.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trackers.alerts import project_rules
from trackers.analysis import best as ranking
from trackers.analysis import choosing, compare, comparison, diff, span_tree
from trackers.analysis.alert_list import alerts_of, of_records
from trackers.analysis.collect import gather
from trackers.analysis.curves import open_runs
from trackers.analysis.run_stats import RunStats
from trackers.analysis.sql import sql
from trackers.editing import edits, requests
from trackers.editing.edits import Attributes, as_tags
from trackers.errors import NotFound, TrackersError, UsageError
from trackers.journal.naming import find_run
from trackers.journal.run_directory import RunDirectory, find_runs
from trackers.plotting import curve_math, matplotlib_figure, presets
from trackers.readers import registry
from trackers.readers.boundary import boundary
from trackers.readers.console import RunConsole, lines_of
from trackers.readers.run_data import RunData
from trackers.records import Finish, Span, name_floats, plain_name
from trackers_mcp import asking
from trackers_mcp.answers import BUDGET, MOST_BUDGET, answer, page, plain, within

EDIT, STOP, ALERTS = "edit", "stop", "alerts"
HANDS = (EDIT, STOP, ALERTS)
"""What ``--allow`` takes."""
MOST_POINTS = 2000
ANSWER_S = 10.0
"""How long `stop` waits for training to see it, in seconds."""


class Tools:
    """The tools over what a user has named.

    Args:
        root: directory of our own runs.
        sources: others that may be read: as commands take them.
        any_source: whatever an agent names may be read, also files of this machine.
    """

    def __init__(self, root: Path, sources: Sequence[str] = (), *, any_source: bool = False) -> None:
        self._root, self._sources, self._any = Path(os.path.abspath(root)), list(sources), any_source

    def projects(self) -> dict[str, Any]:
        """List the projects: how many runs each has by status, its newest run, and metrics that most of them have."""
        runs, problems = self._gather([])
        rows = []
        for project in dict.fromkeys(run.project for run in runs):
            own = [run for run in runs if run.project == project]
            counts = Counter(name for run in own for name in run.folds)
            rows.append({
                "project": project, "runs": len(own), "status": dict(Counter(run.status or "unknown" for run in own)),
                "newest": max(own, key=lambda run: run.created).name,
                "metrics": [name for name, _ in counts.most_common(12)],
            })  # fmt: skip
        kept, left = page(rows, 0, 100, BUDGET, "projects")
        return answer({"projects": kept}, left_out=left, notes=problems)

    def runs(
        self, project: str = "", status: str = "", where: str = "", sort: str = "", limit: int = 20, offset: int = 0
    ) -> dict[str, Any]:
        """List runs, the newest first: name, status, steps, settings that differ, results.

        Args:
            project: only this project's. status: running, finished, failed, crashed, preempted, stopped; a,b.
            where: a condition, as in "config.lr < 1e-3 and 'ablation' in tags and val_loss < 2".
            sort: a metric or result, the best first; "-NAME" the worst first.
        """
        found, problems = self._gather([])
        chosen = [run for run in found if project in ("", run.project)]
        chosen = choosing.of_status(chosen, status, lambda run: run.status)
        if where:
            condition = ranking.RunFilter(where)
            chosen = [run for run in chosen if condition(run)]
        if sort:
            names = lambda: choosing.names(chosen)  # noqa: E731
            chosen = choosing.ordered(chosen, sort, choosing.figure, names, choosing.direction(chosen))
        else:
            chosen = sorted(chosen, key=lambda run: -run.created)
        settings = comparison.differing_settings([run.config for run in chosen])[:8]
        rows = [self._line(run, settings) for run in chosen]
        kept, left = page(rows, offset, limit, BUDGET, "runs")
        return answer({"count": len(chosen), "runs": kept}, left_out=left, notes=problems)

    def run(self, run: str, full: bool = False) -> dict[str, Any]:
        """Everything about one run in short: identity, status and why it ended, settings, results, each metric's
        count, first and last step, last, best, smallest and largest value, and what went wrong.

        Args:
            run: a name, id, "project/id" or "latest".
            full: all settings and metrics, not the first of them.
        """
        (facts,), problems = self._gather([run], one=True)
        data, left = self._data(run), list[str]()
        settings = dict(facts.config)
        metrics: dict[str, Any] = {}
        for name, fold in facts.folds.items():
            best = facts.value(name, "best")
            metrics[name] = {
                "count": fold.count, "first_step": fold.first_step, "last_step": fold.last_step, "last": fold.last,
                "min": fold.low, "min_step": fold.low_step, "max": fold.high, "max_step": fold.high_step, "best": best,
                "nan": fold.nans,
            }  # fmt: skip
            metrics[name] = {
                key: value for key, value in metrics[name].items() if value not in (None, 0) or key == "last"
            }
        if not full:
            for what, values, most in (("settings", settings, 40), ("metrics", metrics, 30)):
                if len(values) > most:
                    left.append(f"{len(values) - most} of {len(values)} {what}: full=true has all")
                    for name in list(values)[most:]:
                        del values[name]
        about = {
            "run": self._short(facts.source), "id": facts.id, "name": facts.name, "project": facts.project,
            "group": facts.group, "tags": facts.tags, "notes": facts.notes, "status": data.status,
            "why": self._why(data), "steps": facts.steps, "attempts": facts.attempts, "gpus": facts.gpus,
            "gpu": facts.gpu_name,
            "config": settings, "results": data.summary, "metrics": metrics,
        }  # fmt: skip
        notes = [*problems, *([facts.note] if facts.note else [])]
        return answer({key: value for key, value in about.items() if value not in (None, "", [], {})}, left_out=left,
                      notes=notes)  # fmt: skip

    def history(
        self, run: str, metrics: str, points: int = 60, first_step: int | None = None, last_step: int | None = None,
        full: bool = False, budget: int = BUDGET,
    ) -> dict[str, Any]:  # fmt: skip
        """Values of metrics over steps, thinned so that every spike, NaN and infinity stays.

        Args:
            metrics: names or patterns, a,b: "train_loss,val_*".
            points: about how many values of each metric. full: all of them, as far as the budget allows.
            first_step, last_step: only between these.
            budget: maximum size of the answer, in tokens.
        """
        data = self._data(run)
        names = self._matching(data, metrics)
        budget = min(max(budget, 100), MOST_BUDGET)
        share, left, series = budget // len(names), list[str](), dict[str, Any]()
        for name in names:
            rows = self._points(data, name, first_step, last_step)
            kept = rows if full else _thinned(rows, min(max(points, 4), MOST_POINTS))
            values = [[step, value] for step, value in kept]
            fitting, more = within(values, share)
            if more and not full:
                fitting = [[step, value] for step, value in _thinned(rows, max(len(fitting), 4))]
                more = 0
            series[name] = fitting
            if not rows and (steps := [step for step, _ in self._points(data, name, None, None)]):
                left.append(f"{name}: no value there: its {len(steps)} values are at steps {steps[0]} to {steps[-1]}")
            if more:
                left.append(f"{name}: {more} of {len(rows)} values: first_step={values[len(fitting)][0]} goes on")
            elif len(fitting) < len(rows):
                left.append(f"{name}: {len(rows)} values, thinned to {len(fitting)}: full=true has all")
        found = {"columns": ["step", "value"], "series": series}
        return answer({**found, "left_out": left} if left else found)  # they begin with a metric's name

    def compare(self, runs: list[str], metrics: str = "", baseline: str = "") -> dict[str, Any]:
        """Compare runs: final and best values, the settings that differ, speed, memory, energy, and what makes the
        comparison unfair.

        Args:
            runs: names, ids or patterns. metrics: names or patterns, a,b; default training's and validation's.
        """
        found, problems = self._gather(runs)
        made = compare.compare(found, _words(metrics) or None, baseline=baseline or None)
        rows = [self._named_short(row) for row in made.to_dict()["runs"]]
        kept, left = page(rows, 0, len(rows), MOST_BUDGET // 4, "runs")
        left = [text.partition(":")[0] + ": name fewer runs or metrics" for text in left]
        notes = [*problems, *made.warnings]
        return answer({"runs": kept, "settings_that_differ": made.differing}, left_out=left, notes=notes)

    def best(self, metric: str, where: str = "", mode: str = "", top: int = 5) -> dict[str, Any]:
        """The best runs by a metric or result, with the step of the best value and the settings that differ.

        Args:
            metric: a metric ("val_loss"), of which each run's best value counts, or a result ("final/accuracy").
            where: a condition as for runs. mode: min or max; default by definition or name.
        """
        found, problems = self._gather([])
        entries = ranking.best(found, metric, mode or None, where or None, None)
        kept, left = page([self._named_short(entry.to_dict()) for entry in entries], 0, top, MOST_BUDGET // 4, "runs")
        lacks = [text.partition(":")[0] + ": a larger top, or where" for text in left]
        return answer({"count": len(entries), "ranking": kept}, left_out=lacks, notes=problems)

    def diff(self, first: str, second: str, budget: int = BUDGET) -> dict[str, Any]:
        """What differs between two runs: settings, command, git, code line by line, data, packages, hardware."""
        found = diff.diff(*[diff.portrait(self._data(each)) for each in (first, second)])
        kept, left = within(diff.to_json(found), min(max(budget, 100), MOST_BUDGET))
        lacks = [f"{left} of {len(found)} differences: a larger budget has them"] if left else []
        return answer({"first": first, "second": second, "differences": kept}, left_out=lacks)

    def sql(self, query: str, limit: int = 50, budget: int = BUDGET) -> dict[str, Any]:
        """DuckDB's SQL over all runs, in memory. Tables: runs (run, name, project, status, steps, tags, notes, created,
        steps_per_s, …), metrics (run, name, step, time, value), system (run, name, time, value), config and summary
        (run, name, value, number).
        """
        columns, rows, count = asking.ask(query, self._named([]), self._root, limit, min(max(budget, 100), MOST_BUDGET))
        more = count - len(rows)
        left = [f"{more} of {count} rows: say LIMIT and OFFSET, or a larger limit"] if more else []
        return answer({"columns": columns, "rows": rows}, left_out=left)

    def console(self, run: str, tail: int = 40, search: str = "", rank: int | None = None) -> dict[str, Any]:
        """The last lines that a run printed, or the lines with a text in them and their numbers.

        Args:
            tail: how many, the last. search: only lines that contain this, upper and lower case alike.
        """
        data = self._data(run)
        if data.run.directory and (Path(data.run.directory) / "streams").is_dir():
            console = RunConsole(RunDirectory(data.run.directory))
            lines = sorted(lines_of([*console.read(), *console.waiting()], console.main()), key=lambda line: line.time)
        else:
            lines = list(lines_of(data.records()))
        if rank is not None:
            lines = [line for line in lines if line.rank == rank]
        rows = [[number, line.rank, line.text] for number, line in enumerate(lines, 1)
                if search.lower() in line.text.lower()]  # fmt: skip
        tail = max(tail, 1)
        kept, over = within(rows[-tail:][::-1], BUDGET)
        left = len(rows) - len(kept)
        way = "search" if over else f"tail={2 * tail} or search"  # more lines than these have no room
        lacks = [f"{left} earlier lines: {way}"] if left else []
        return answer({"columns": ["line", "rank", "text"], "lines": kept[::-1]}, left_out=lacks)

    def alerts(self, run: str) -> dict[str, Any]:
        """Alerts of a run: when, how serious, by which rule, and whether they were sent."""
        data = self._data(run)
        if data.run.directory and (Path(data.run.directory) / "streams").is_dir():
            found = alerts_of(RunDirectory(data.run.directory))
        else:
            found = of_records(data.records())
        kept, _ = within([alert.to_dict() for alert in found[:-31:-1]], BUDGET)
        left = len(found) - len(kept)
        lacks = [f"{left} of {len(found)} alerts, the earlier ones: `trackers alerts RUN` lists them"] if left else []
        return answer({"count": len(found), "alerts": kept[::-1]}, left_out=lacks)

    def spans(self, run: str, failed: bool = False, limit: int = 5) -> dict[str, Any]:
        """Traces of a run (calls of models and tools), the newest: each span's name, kind, seconds, error.

        Args:
            failed: only traces in which a span failed.
        """
        data = self._data(run)
        trees = span_tree.traces(record for record in data.records() if isinstance(record, Span))
        trees = [tree for tree in trees if not failed or any(span.status == "error" for span in tree.spans)]
        rows = [
            {"trace": tree.id, "spans": [
                {"name": span.name, "depth": depth, "kind": span.type, "seconds": span.seconds, "error": span.error}
                for depth, span in tree.rows if span is not None
            ]} for tree in trees[::-1]
        ]  # fmt: skip
        kept, left = page(rows, 0, limit, BUDGET, "traces")
        return answer({"count": len(trees), "traces": kept}, left_out=left)

    def samples(self, run: str) -> dict[str, Any]:
        """What GPUs and machine did while a run trained: each sample's number of values, mean, smallest, largest."""
        data = self._data(run)
        query = (
            "select name, count(*) as samples, avg(value) as mean, min(value) as smallest, max(value) as largest "
            "from {} where name like 'gpu/%' or name like 'system.%' group by name order by name"
        )
        rows = []
        for table in ("system", "metrics"):
            rows += sql(query.format(table), data.run.source, root=self._root).table.to_pylist()
        kept, left = page(rows, 0, 200, MOST_BUDGET // 5, "samples")
        return answer({"samples": kept}, left_out=left)

    def plot(self, runs: list[str], metrics: str = "", log_y: bool = False) -> bytes:
        """A picture (PNG) of metrics over steps; every spike stays visible, NaN and infinity are marked.

        Args:
            runs: names, ids or patterns. metrics: names or patterns, a,b; default losses first.
        """
        drawn = presets.metrics(open_runs(self._named(runs), self._root), presets.PlotOptions(log_y=log_y),
                                _words(metrics))  # fmt: skip
        drawn.leave_out_absent()
        with tempfile.TemporaryDirectory(prefix="trackers-") as folder:
            path = Path(folder, "plot.png")
            matplotlib_figure.save(drawn, path)
            return path.read_bytes()

    def stop(self, run: str, reason: str, checkpoint: bool = False, only_checkpoint: bool = False) -> dict[str, Any]:
        """Ask a run that goes on to stop, or to save a checkpoint; says what became of it.

        Args:
            reason: why, in a line: every tracker shows it. checkpoint: it saves before it stops.
            only_checkpoint: it saves, and goes on.
        """
        directory = self._changeable(run)
        asked = requests.ask(
            directory, stop=not only_checkpoint, checkpoint=checkpoint or only_checkpoint, reason=reason, by="an agent"
        )
        said = requests.wait(directory, asked, ANSWER_S)
        return answer({"run": directory.path.name, "state": said.state, "looks": said.looks, "text": said.text})

    def edit(
        self, run: str, name: str | None = None, add_tags: str = "", remove_tags: str = "", notes: str | None = None
    ) -> dict[str, Any]:
        """Change a run's name, tags or notes, in every tracker that has it; `trackers edit --undo` takes it back.

        Args:
            add_tags, remove_tags: a,b. notes: in place of the present ones.
        """
        directory = self._changeable(run)

        def change(now: Attributes) -> Attributes:
            tags = [*now.tags, *as_tags(add_tags)]
            return Attributes(
                name=now.name if name is None else name, notes=now.notes if notes is None else notes, group=now.group,
                tags=tuple(tag for tag in dict.fromkeys(tags) if tag not in as_tags(remove_tags)),
            )  # fmt: skip

        edits.need_editable(directory)
        changed = edits.edit(directory, change)
        note = f"in the journal; `trackers sync {directory.quoted}` brings it to the run's trackers"
        return answer(
            {"changed": {key: list(values) for key, values in changed.items()}}, notes=[note] if changed else []
        )

    def rules(self, project: str, add: str = "", remove: str = "") -> dict[str, Any]:
        """Change the alert rules that hold for all runs of a project which begin from now on; without `add` and
        `remove` say which there are. Places that alerts go to are the user's to name.

        Args:
            add, remove: rules, as in "nan(train_loss) -> stop; mean(val_loss[10]) > 2; stall(10m)".
        """
        folder = self._root / project
        if ".." in Path(project).parts or not folder.is_dir() or folder.resolve().parent != self._root.resolve():
            raise NotFound(f"no project {project!r} in the directory of runs")
        texts = project_rules.change(folder, add, remove) if add or remove else project_rules.read(folder).texts
        return answer({"rules": texts}, notes=project_rules.read(folder).problems)

    # What names may mean.

    def _own(self, reference: str) -> str:
        """A reference to one of our own runs, in the directory of runs.

        Raises:
            UsageError: it leads elsewhere.
        """
        name = _bare(reference)
        path = Path(os.path.expanduser(name))
        is_path = path.is_absolute() or ".." in path.parts or os.path.lexists(path)
        # A pattern is one of paths, too, from the current directory.
        places = [path] if is_path else [found for found in map(Path, glob.glob(str(path))) if any(find_runs(found))]
        for place in places:
            self._need_inside(place, reference)
        return name

    def _need_inside(self, path: Path, reference: str) -> None:
        if not self._any and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self._root)):
            raise UsageError(f"{reference!r} lies outside of the directory of runs: name a run in it")

    def _changeable(self, reference: str) -> RunDirectory:
        """One of our own runs, to be changed: a project that is a link to elsewhere is only read.

        Raises:
            NotFound, UsageError: there is no such run; it lies elsewhere.
        """
        found = find_run(self._own(reference), self._root)
        self._need_inside(found.path, reference)
        return found

    def _named(self, references: Sequence[str]) -> list[str]:
        """References as sources that may be read; without any, all that there are."""
        if not references:
            return [*([str(self._root)] if self._root.is_dir() or not self._sources else []), *self._sources]
        return [name if self._is_given(name) else self._own(name) for name in map(_bare, references)]

    def _is_given(self, reference: str) -> bool:
        """Whether a reference is of another source than our own runs, which the user has named.

        Raises:
            UsageError: it is of one that he hasn't.
        """
        try:
            scheme = registry.parse(reference).scheme
        except UsageError:  # a run of ours with a colon in its name, if anything
            return False
        if scheme == registry.OWN:
            return False
        given = any(_is_below(reference, source) for source in self._sources)
        if self._any or reference in self._sources or given or reference in self._listed():
            return True
        known = ", ".join(self._sources) or "none"
        raise UsageError(
            f"{reference!r} isn't among the sources that `trackers mcp` was given ({known}): it can't be read"
        )

    def _listed(self) -> set[str]:
        return {run.source for run in gather(self._sources, self._root).runs} if self._sources else set()

    def _short(self, source: str) -> str:
        """A source as an agent names it: of our own runs ``project/id``."""
        path = Path(source.removeprefix("run:"))
        return "/".join(path.parts[-2:]) if path.is_relative_to(self._root) else source

    def _gather(self, references: Sequence[str], *, one: bool = False) -> tuple[list[RunStats], list[str]]:
        named = self._named(references)
        try:
            gathered = gather(named, self._root)
        except NotFound:
            matches = self._by_name(references)
            if not matches:
                raise
            return matches, []
        if one and len(gathered.runs) > 1:
            names = ", ".join(run.source for run in gathered.runs[:3])
            raise UsageError(f"{references[0]!r} names {len(gathered.runs)} runs: name one, as in {names}")
        return gathered.runs, [f"left out: {text}" for text in gathered.problems]

    def _by_name(self, references: Sequence[str]) -> list[RunStats]:
        """Runs of the other sources by their names or ids."""
        if not self._sources:
            return []
        others = gather(self._sources, self._root).runs
        return [run for run in others
                if any(fnmatch.fnmatchcase(run.name, name) or run.id == name for name in references)]  # fmt: skip

    def _data(self, reference: str) -> RunData:
        (facts,), _ = self._gather([reference], one=True)
        reader, runs = registry.open_source(facts.source, self._root)
        return RunData(reader, runs[0])

    def _matching(self, data: RunData, metrics: str) -> list[str]:
        known = [name for name, seen in data.series().items() if seen.first is not None]
        names = [name for name in known
                 if any(name == word or fnmatch.fnmatchcase(name, word) for word in _words(metrics))]  # fmt: skip
        if not names:
            raise NotFound(f"the run has no metric {metrics!r}; it has {', '.join(known[:30])}")
        return names

    def _points(self, data: RunData, name: str, first: int | None, last: int | None) -> list[tuple[int, float]]:
        table = data.metrics([name]).table
        pairs = zip(table.column("step").to_pylist(), table.column(name).to_pylist(), strict=True)
        return [
            (step, value) for step, value in pairs
            if value is not None and (first is None or step >= first) and (last is None or step <= last)
        ]  # fmt: skip

    def _why(self, data: RunData) -> str:
        ends = [record for record in data.records() if isinstance(record, Finish)]
        return ends[-1].reason if ends else ""

    def _named_short(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of a command, without what it doesn't say, its source as an agent names it."""
        own = {"run": self._short(row["source"]), **{key: value for key, value in row.items() if key != "source"}}
        return {key: value for key, value in own.items() if value not in (None, "", [], {})}

    def _line(self, run: RunStats, settings: Sequence[str]) -> dict[str, Any]:
        results = {plain_name(name): value for name, value in list(run.summary.items())[:6]}
        line = {
            "run": self._short(run.source), "name": run.name, "project": run.project, "status": run.status,
            "steps": run.steps, "tags": run.tags, "group": run.group, "results": name_floats(results),
            "config": {name: run.config[name] for name in settings if name in run.config},
        }  # fmt: skip
        return {key: value for key, value in line.items() if value not in (None, "", [], {})}


def _bare(reference: str) -> str:
    """A reference without the scheme of our own runs, however often it stands there: what is judged is what is read."""
    while reference.startswith(f"{registry.OWN}:"):
        reference = reference.removeprefix(f"{registry.OWN}:")
    return reference


def _is_below(reference: str, source: str) -> bool:
    """Whether a reference goes on from a source that was named, and leads out of it by neither ``..`` nor a link."""
    rest = reference.removeprefix(source)
    if rest == reference or rest[:1] not in ("/", "#") or ".." in rest.replace("#", "/").split("/"):
        return False
    base = os.path.expanduser(source.partition(":")[2])
    if not os.path.exists(base):  # a server's, or a pattern, which says itself what is read
        return not glob.has_magic(base)
    real = os.path.realpath(base)
    named = [base + rest, base + rest.partition("#")[0]]
    paths = [path for name in named for path in (name, *glob.glob(name, recursive=True))]
    return all(Path(os.path.realpath(path)).is_relative_to(real) for path in paths)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _thinned(rows: list[tuple[int, float]], points: int) -> list[tuple[int, float]]:
    """About so many rows, with every spike: of each part of the steps the first, smallest, largest and last value.
    What is no number stays, up to as many again, the first and last of each stretch."""
    import numpy as np

    if len(rows) <= points:
        return rows
    steps, values = np.array([row[0] for row in rows], float), np.array([row[1] for row in rows], float)
    finite = np.flatnonzero(np.isfinite(values))
    kept: set[int] = set()
    if len(finite):
        bins = curve_math.bins_of(steps[finite], curve_math.Scale(smooth=0, bins=max(points // 4, 1)))
        kept.update(finite[curve_math.thin(bins, values[finite])].tolist())
    odd = np.flatnonzero(~np.isfinite(values))
    edges = [int(at) for place, at in enumerate(odd)
             if place in (0, len(odd) - 1) or odd[place - 1] != at - 1 or odd[place + 1] != at + 1]  # fmt: skip
    kept.update(edges[:points])
    return [rows[at] for at in sorted(kept)]


class Tool(NamedTuple):
    """A tool: its name, what must be allowed for it ("": nothing), a question that it answers."""

    name: str
    needs: str
    question: str


TOOLS = (
    Tool("projects", "", "What is there?"),
    Tool("runs", "", "Which runs failed last week?"),
    Tool("run", "", "How did this run go, and why did it end?"),
    Tool("history", "", "When did the loss diverge?"),
    Tool("compare", "", "Which of these settings was better?"),
    Tool("best", "", "Which run has the lowest validation loss?"),
    Tool("diff", "", "What did I change between these two?"),
    Tool("sql", "", "Anything over all runs"),
    Tool("console", "", "What did it print before it died?"),
    Tool("alerts", "", "What went wrong while I slept?"),
    Tool("spans", "", "Which calls failed?"),
    Tool("samples", "", "Were the GPUs busy?"),
    Tool("plot", "", "Show me the curves"),
    Tool("edit", EDIT, "Tag the best run"),
    Tool("rules", ALERTS, "Tell me when the loss diverges"),
    Tool("stop", STOP, "Stop the one that diverges"),
)
"""All tools, in the order in which they are listed."""


def allowed(hands: Sequence[str]) -> list[Tool]:
    """The tools of a server that allows these hands.

    Raises:
        UsageError: one of them isn't known.
    """
    for hand in hands:
        if hand not in HANDS:
            raise UsageError(f"--allow {hand}: known are {', '.join(HANDS)}")
    return [tool for tool in TOOLS if not tool.needs or tool.needs in hands]


def call(tools: Tools, name: str, arguments: dict[str, Any]) -> Any:
    """Call a tool; what the package refuses comes back as ``error`` below ``from_runs``, for the agent to do better."""
    function: Callable[..., Any] = getattr(tools, name)
    try:
        with boundary("what was asked for"):
            return function(**arguments)
    except TrackersError as error:
        return {"from_runs": {"error": plain(str(error), 1000)}}  # it quotes names that are known
