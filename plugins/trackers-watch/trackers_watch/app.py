"""The terminal's page of ``trackers watch``, by Textual: it draws what :mod:`trackers_watch.looking` finds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, OptionList, Static

from trackers.analysis.tables import format_value, plain
from trackers.errors import TrackersError
from trackers.plotting import braille
from trackers.ui import answers
from trackers.ui.catalogue import Catalogue
from trackers_watch.looking import AXES, WEIGHTS, RunWatcher, ViewOptions, ViewState, table

PERIOD_S = 1.0
"""Between two looks at the runs."""
COLOURS = ("#4C9BE8", "#E8853B", "#2FB98F", "#D98CBF", "#E6B022", "#8FD3F4", "#B8B8B8", "#E05A5A")
"""Of runs: told apart on dark and light ground, by the colour-blind, and as the nearest of 256."""
CHART = (38, 9)
"""Cells that a chart needs, across and down; what is more becomes further charts."""
MOST_COLUMNS = 4
MOST_MACHINE = 5
"""Maximum number of lines on the machine of a run."""

HELP = """\
↑ ↓ Home End    choose a run
space           draw its curves, or no longer
o               draw this run alone; again: as before
Enter           settings, results, delivery and messages of the run
← →             other metrics
z               one large chart, or several
m               choose the metrics
/               filter: mnist, status:run, lr>0.001, -failed; Esc: all
s S             more smoothing, less
l               logarithmic y axis
x               steps, or time since the run began
d               dark or light
q Ctrl-C        quit

A run's colour is that of its ●. NaN is ×, infinities are ▲ and ▼.
Runs that are running are drawn by themselves, until you choose."""


def colour(style: int) -> str:
    """The colour of a run's curves, as rich names it."""
    return COLOURS[style % len(COLOURS)]


class _Page(ModalScreen[None]):
    """A text over the rest, scrolled with the arrows."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark", "dismiss", "Back")]

    def __init__(self, title: str, text: Callable[[], Text]) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="page") as page:
            page.border_title = plain(self._title)
            page.border_subtitle = "Esc: back"
            yield Static(self._text(), id="text")

    def on_mount(self) -> None:
        self.set_interval(PERIOD_S, lambda: self.query_one("#text", Static).update(self._text()))


class _Metrics(ModalScreen["list[str] | None"]):
    """A choice of metrics."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back"),
        Binding("enter", "take", "Take", priority=True),
        Binding("space", "choose", "Choose"),
    ]

    def __init__(self, names: Sequence[str], chosen: Sequence[str]) -> None:
        super().__init__()
        self._names, self._chosen = list(dict.fromkeys([*chosen, *names])), list(chosen)
        self._fitting: list[str] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="page") as page:
            page.border_title = "Metrics"
            page.border_subtitle = "Space: choose, Enter: draw them, none: all, Esc: back"
            yield Input(placeholder="part of a name", id="part", compact=True)
            yield OptionList(id="list")

    def on_mount(self) -> None:
        self._fill("")
        self.query_one(OptionList).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._fill(event.value)

    def on_key(self, event: events.Key) -> None:
        if event.key == "down" and self.focused is self.query_one("#part"):
            self.query_one(OptionList).focus()

    def _fill(self, part: str) -> None:
        self._fitting = [name for name in self._names if part.lower() in name.lower()][:1000]
        chooser = self.query_one(OptionList)
        chooser.clear_options()
        chooser.add_options([self._line(name) for name in self._fitting])
        chooser.highlighted = 0 if self._fitting else None

    def _line(self, name: str) -> Text:
        return Text(f"{'●' if name in self._chosen else '○'} {plain(name)}")

    def action_choose(self) -> None:
        """The metric under the cursor, or not."""
        chooser = self.query_one(OptionList)
        if chooser.highlighted is not None:
            name = self._fitting[chooser.highlighted]
            if name in self._chosen:
                self._chosen.remove(name)
            else:
                self._chosen.append(name)
            chooser.replace_option_prompt_at_index(chooser.highlighted, self._line(name))

    def action_take(self) -> None:
        self.dismiss(self._chosen)


class WatchApp(App[None]):
    """The page. A thread looks at the runs; keys change what it looks for.

    Args:
        catalogue: open. wanted: changed by keys. named: somebody named the runs.
    """

    CSS = """
    Screen { layers: base over; }
    #head { height: 1; background: $panel; }
    #runs { height: auto; }
    #machine { height: auto; color: $text-muted; }
    #charts { height: 1fr; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    #filter.shown { display: block; }
    _Page, _Metrics { align: center middle; }
    #page { width: 90%; height: 90%; border: round $primary; background: $surface; padding: 0 1; }
    #list { height: 1fr; border: none; }
    """
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("space", "draw_run", "Draw"),
        Binding("enter", "show", "Run"),
        Binding("m", "metrics", "Metrics"),
        Binding("right", "page(1)", "Next", key_display="→"),
        Binding("left", "page(-1)", show=False),
        Binding("s", "smooth(1)", "Smooth"),
        Binding("S,upper_s", "smooth(-1)", show=False),
        Binding("l", "log", "Log"),
        Binding("x", "axis", "Axis"),
        Binding("z", "zoom", show=False),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("o", "only", show=False),
        Binding("d", "theme", show=False),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
        Binding("escape", "unfilter", show=False),
    ]

    def __init__(self, catalogue: Catalogue, options: ViewOptions, *, named: bool) -> None:
        super().__init__()
        self._catalogue, self._options = catalogue, options
        self._watched = RunWatcher(catalogue, named=named)
        self._state = ViewState([], {}, [], [], 0, 0, [])
        self._machine: list[str] = []
        self._cursor: str | None = None
        self._first = 0
        self._large = False
        self._why = ""
        self._wake = threading.Event()
        self._over = threading.Event()
        self._plain = "NO_COLOR" in os.environ
        self._grid = (1, 1, 80, 10)
        self._requests, self._drawing, self._answered = 1, 0, 0

    @property
    def drawn_state(self) -> ViewState:
        """The state that was drawn last."""
        return self._state

    @property
    def settled(self) -> bool:
        """Whether all that was asked for is on the screen."""
        return self._requests == self._answered

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="runs")
        yield Static(id="machine")
        yield Static("reading the runs…", id="charts")
        yield Input(placeholder="filter: mnist, status:run, lr>0.001", id="filter", compact=True, select_on_focus=False)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Begin to look."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # not the main thread
                loop.add_signal_handler(number, self.exit)
        threading.Thread(target=self._poll, name="look", daemon=True).start()

    def on_unmount(self) -> None:
        """Stop looking."""
        self._over.set()
        self._wake.set()

    def _poll(self) -> None:
        """Update the view in a thread: once in a period, and at each key."""
        while not self._over.is_set():
            self._wake.clear()
            asked = self._requests
            rows, columns, width, _ = self._grid
            try:
                state = self._watched.view(self._options, self._first, rows * columns, 2 * width)
                why = ""
            except TrackersError as error:
                state, why = self._state, str(error)
            cursor = self._cursor if self._cursor in {row.key for row in state.rows} else None
            if cursor is None and state.rows:
                cursor = next((row.key for row in state.rows if row.key in state.styles), state.rows[0].key)
            machine = self._watched.machine(cursor) if cursor else []
            with contextlib.suppress(RuntimeError):  # the page has been left meanwhile
                self.call_from_thread(self._show_state, state, cursor, machine, why, asked)
            self._wake.wait(PERIOD_S)

    def _show_state(self, state: ViewState, cursor: str | None, machine: list[str], why: str, asked: int) -> None:
        self._state, self._machine, self._why = state, machine, why
        if asked == self._requests:
            self._cursor = cursor
        self._drawing = asked
        self._draw()

    def on_resize(self, event: events.Resize) -> None:
        """Draw what there is in the new size, and look for what has room now."""
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        if self._over.is_set():
            return
        size = self.size
        self.query_one("#head", Static).update(self._head(size.width))
        self.query_one("#runs", Static).update(self._runs(size.width, max(2, size.height // 4)))
        count = min(MOST_MACHINE, 1 if size.height < 30 else MOST_MACHINE)
        self.query_one("#machine", Static).update(
            Text("\n".join(line[: size.width] for line in self._machine[:count]), no_wrap=True)
        )
        self.query_one("#machine").display = bool(self._machine)
        self.call_after_refresh(self._draw_charts)

    def _draw_charts(self) -> None:
        if self._over.is_set():
            return
        widget = self.query_one("#charts", Static)
        width, height = widget.size
        if not width or not height:
            return
        columns = 1 if self._large else min(max(width // CHART[0], 1), MOST_COLUMNS)
        rows = 1 if self._large else max(height // CHART[1], 1)
        count = max(len(self._state.names) - self._first, 1)
        while rows > 1 and (rows - 1) * columns >= count:
            rows -= 1
        while columns > 1 and (columns - 1) * rows >= count:
            columns -= 1
        grid = rows, columns, (width - 2 * (columns - 1)) // columns, height // rows
        if grid != self._grid:
            self._grid = grid
            self._request_update()
        widget.update(self._charts(*grid))
        self._answered = self._drawing

    def _head(self, width: int) -> Text:
        options, state = self._options, self._state
        words = [f"{state.total:,} run{'s' * (state.total != 1)}, {state.running:,} running"]
        if state.names:
            last = min(self._first + max(len(state.panels), 1), len(state.names))
            words.append(f"metrics {self._first + 1}–{last} of {len(state.names)}")
        words.append({"step": "by step", "relative": "by time"}[options.axis])
        words += [f"smoothing {options.weight:g}"] if options.weight else []
        words += ["log y"] if options.log_y else []
        words += [f"filter {options.where}"] if options.where else []
        problems = [self._why] if self._why else state.problems
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(" trackers watch ", style="bold")
        if problems:
            text.append(f"{plain(problems[0])} ", style="red")
        text.append(" · ".join(map(plain, words)))
        text.truncate(width, overflow="ellipsis", pad=True)
        return text

    def _runs(self, width: int, height: int) -> Text:
        state = self._state
        if not state.rows:
            why = "no runs yet: the first one will be shown when it begins"
            if state.total:
                why = "no run fits the filter"
            elif not self._catalogue.wait(0):
                why = "reading the runs…"
            return Text(why, style="italic")
        header, lines = table(state, width - 2, colored=not self._plain)
        keys = [row.key for row in state.rows]
        at = keys.index(self._cursor) if self._cursor in keys else 0
        room = max(height - len(header), 1)
        start = min(max(at - room // 2, 0), max(len(lines) - room, 0))
        parts = [Text.assemble("  ", Text.from_ansi(line)) for line in header]
        for number in range(start, min(start + room, len(lines))):
            style = state.styles.get(keys[number])
            sign, paint = (" ", "") if style is None else ("●", colour(style))
            if style is not None and self._plain:
                sign, paint = braille.LETTERS[style % len(braille.LETTERS)], ""
            words = Text.from_ansi(lines[number])
            if number == at:
                words.truncate(width - 2, pad=True)
                words = Text(words.plain, style="reverse")
            parts.append(Text.assemble((f"{sign} ", paint), words))
        if len(lines) > room:
            parts[0].truncate(width, pad=True)
            note = f"{at + 1}/{len(lines)}"
            parts[0] = Text.assemble(parts[0][: width - len(note) - 1], " ", (note, "dim"))
        return Text("\n", no_wrap=True).join(parts)

    def _charts(self, rows: int, columns: int, width: int, height: int) -> Text:
        state = self._state
        if not state.panels:
            return Text("" if not state.total else "these runs have no metrics yet", style="italic")
        paint = None if self._plain else colour
        drawn = [braille.chart(panel, width, height, paint).split("\n") for panel in state.panels[: rows * columns]]
        lines = []
        for start in range(0, len(drawn), columns):
            for number in range(height):
                line = Text(no_wrap=True)
                for column, chart in enumerate(drawn[start : start + columns]):
                    part = chart[number].copy() if number < len(chart) else Text("")
                    part.truncate(width, pad=True)
                    line.append("  " if column else "")
                    line.append_text(part)
                lines.append(line)
        return Text("\n", no_wrap=True).join(lines)

    def _request_update(self) -> None:
        """Request an update at once."""
        self._requests += 1
        self._wake.set()

    def _again(self) -> None:
        self._draw()
        self._request_update()

    def action_move(self, by: int) -> None:
        """Another run."""
        keys = [row.key for row in self._state.rows]
        if keys:
            at = keys.index(self._cursor) if self._cursor in keys else 0
            self._cursor = keys[min(max(at + by, 0), len(keys) - 1)]
            self._again()

    def action_draw_run(self) -> None:
        """Draw the run, or no longer."""
        if self._cursor:
            self._watched.toggle(self._cursor)
            self._again()

    def action_only(self) -> None:
        """Draw the run alone."""
        if self._cursor:
            self._watched.only(self._cursor)
            self._again()

    def action_page(self, by: int) -> None:
        """Other metrics."""
        count = self._grid[0] * self._grid[1]
        last = max(len(self._state.names) - 1, 0) // count * count
        self._first = min(max(self._first // count * count + by * count, 0), last)
        self._again()

    def action_smooth(self, by: int) -> None:
        """More smoothing, or less."""
        near = min(range(len(WEIGHTS)), key=lambda index: abs(WEIGHTS[index] - self._options.weight))
        self._options.weight = WEIGHTS[(near + by) % len(WEIGHTS)]
        self._again()

    def action_log(self) -> None:
        """A logarithmic y axis, or a linear one."""
        self._options.log_y = not self._options.log_y
        self._again()

    def action_axis(self) -> None:
        """Steps, or time."""
        self._options.axis = AXES[(AXES.index(self._options.axis) + 1) % len(AXES)]
        self._again()

    def action_zoom(self) -> None:
        """One large chart, or several."""
        self._large = not self._large
        self._again()

    def action_theme(self) -> None:
        """Dark or light."""
        self.theme = "textual-light" if self.theme == "textual-dark" else "textual-dark"

    def action_help(self) -> None:
        """What the keys do."""
        self.push_screen(_Page("Keys", lambda: Text(HELP)))

    def action_metrics(self) -> None:
        """Choose the metrics."""
        names = [name for name in self._state.names if name not in self._options.metrics]
        if self._options.metrics:  # all others, too
            names = self._watched.view(ViewOptions(), 0, 0, 2).names
        chosen = [name for name in self._state.names if self._options.metrics]
        self.push_screen(_Metrics(names, chosen), self._choose_metrics)

    def _choose_metrics(self, names: list[str] | None) -> None:
        if names is not None:
            self._options.metrics, self._first = names, 0
            self._again()

    def action_show(self) -> None:
        """All about the run."""
        key = self._cursor
        row = next((row for row in self._state.rows if row.key == key), None)
        if key and row:
            self.push_screen(_Page(row.name or row.id, lambda: about(self._catalogue, key)))

    def action_filter(self) -> None:
        """A filter of the runs."""
        line = self.query_one("#filter", Input)
        line.add_class("shown")
        line.focus()

    def action_unfilter(self) -> None:
        """All runs."""
        line = self.query_one("#filter", Input)
        line.value = ""
        line.remove_class("shown")
        self.set_focus(None)
        self._options.where = ""
        self._again()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while somebody writes."""
        if event.input.id == "filter":
            self._options.where = event.value
            self._again()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter."""
        if event.input.id == "filter":
            event.input.remove_class("shown")
            self.set_focus(None)


def about(catalogue: Catalogue, key: str) -> Text:
    """Results, delivery, settings, messages and environment of a run."""
    try:
        details = answers.run(catalogue, {"run": key})
        log = answers.log(catalogue, {"run": key})
    except TrackersError as error:
        return Text(plain(str(error)))
    row = details["row"]
    text = Text()

    def part(title: str, lines: Sequence[tuple[str, str]]) -> None:
        if lines:
            text.append(f"{title}\n", style="bold")
            width = min(max(len(name) for name, _ in lines), 40)
            for name, value in lines:
                text.append(f"  {plain(name):<{width}}  {plain(value)}\n")

    note = f", {row['note']}" if row["note"] else ""
    part("Run", [("id", row["id"]), ("project", row["project"]), ("status", row["status"] + note),
                 ("step", format_value(row["step"])), ("tags", ", ".join(row["tags"])),
                 ("source", row["source"])])  # fmt: skip
    part("Delivery", [(name, _standing(entry)) for name, entry in details["delivery"].items()])
    part("Results", [(f"final/{name}", format_value(value)) for name, value in details["results"]])
    part("Last values", [(name, format_value(value)) for name, value in row["last"].items()])
    part("Settings", [(name, format_value(value)) for name, value in details["config"]])
    part("Messages", [(level, f"{source}: {line}" if source else line)
                      for _, level, source, line in log["messages"][-50:]])  # fmt: skip
    part("Alerts", [("", line) for _, line in details["alerts"]])
    part("Environment", [(name, format_value(value)) for name, value in details["environment"][:100]])
    return text


def _standing(entry: dict[str, object]) -> str:
    words = [str(entry["state"]), f"{entry['delivered']:,} records" if entry.get("delivered") else ""]
    words.append(f"{entry['waiting_bytes']:,} bytes wait" if entry.get("waiting_bytes") else "")
    words.append(f"{entry['rejected']:,} rejected" if entry.get("rejected") else "")
    words += [str(entry.get("error") or ""), str(entry.get("url") or "")]
    return ", ".join(filter(None, words))
