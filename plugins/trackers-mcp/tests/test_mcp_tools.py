"""The tools for agents: thirty questions over a prepared project, hostile runs, sizes, and what may be named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_project as project
import pytest
import trackers_mcp.tools as tools_module
from trackers_mcp import asking
from trackers_mcp.answers import BUDGET, CHARACTERS, plain, shown
from trackers_mcp.tools import TOOLS, Tools, allowed, call

import trackers
from tests.analysis.support import write_run
from trackers.errors import UsageError
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.records import Console, encode
from trackers.support import run_requests
from trackers.training.run import Run


@pytest.fixture
def tools(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """The tools over them, from another directory."""
    monkeypatch.chdir(tmp_path)
    return Tools(root)


def ask(tools: Tools, name: str, **arguments: Any) -> dict[str, Any]:
    """A tool's answer, as it goes over the wire."""
    found: dict[str, Any] = json.loads(json.dumps(call(tools, name, arguments), allow_nan=False))
    return found


Question = tuple[str, list[tuple[str, dict[str, Any]]], Callable[[list[Any]], bool]]


def series(answer: Any, name: str = "train_loss") -> list[Any]:
    """Points of a history."""
    found: list[Any] = answer["series"][name]
    return found


MEANS = "select run, avg(value) from metrics where name = 'train_loss' and not isnan(value) group by run"
QUESTIONS: list[Question] = [
    (
        "Which projects are there?",
        [("projects", {})],
        lambda a: [p["project"] for p in a[0]["projects"]] == ["agents", "digits"],
    ),
    ("How many runs has digits?", [("runs", {"project": "digits"})], lambda a: a[0]["count"] == 5),
    (
        "Which runs failed?",
        [("runs", {"status": "failed"})],
        lambda a: [r["name"] for r in a[0]["runs"]] == ["diverged"],
    ),
    (
        "Which of these runs diverged?",
        [("sql", {"query": "select distinct run from metrics where isnan(value)"})],
        lambda a: len(a[0]["rows"]) == 1 and "diverged" in a[0]["rows"][0][0],
    ),
    (
        "When did it diverge?",
        [("history", {"run": "diverged", "metrics": "train_loss"})],
        lambda a: next(s for s, v in series(a[0]) if v == "NaN") == project.DIVERGED_AT,
    ),
    (
        "What does it differ in from the best?",
        [("best", {"metric": "val_loss", "top": 1}), ("diff", {"first": "diverged", "second": "deep"})],
        lambda a: (
            a[0]["ranking"][0]["name"] == "deep"
            and {d["name"] for d in a[1]["differences"] if d["part"] == "config"} == {"lr", "depth"}
        ),
    ),
    (
        "Was there a spike before?",
        [("run", {"run": "diverged"})],
        lambda a: (
            (a[0]["metrics"]["train_loss"]["max"], a[0]["metrics"]["train_loss"]["max_step"])
            == (project.SPIKE, project.SPIKE_AT)
        ),
    ),
    (
        "Show me the curve around the spike",
        [("history", {"run": "diverged", "metrics": "train_loss", "points": 8})],
        lambda a: [project.SPIKE_AT, project.SPIKE] in series(a[0]),
    ),
    (
        "Values at the spike, step by step",
        [
            (
                "history",
                {"run": "diverged", "metrics": "train_loss", "first_step": 1233, "last_step": 1235, "full": True},
            )
        ],
        lambda a: [s for s, _ in series(a[0])] == [1233, 1234, 1235],
    ),
    ("What was the exit code's reason?", [("run", {"run": "diverged"})], lambda a: a[0]["status"] == "failed"),
    ("Which alerts came?", [("alerts", {"run": "diverged"})], lambda a: a[0]["alerts"][0]["title"] == "loss is NaN"),
    (
        "Best run by validation loss?",
        [("best", {"metric": "val_loss", "top": 1})],
        lambda a: a[0]["ranking"][0]["name"] == "deep",
    ),
    (
        "Best with depth 4?",
        [("best", {"metric": "val_loss", "where": "config.depth == 4", "top": 1})],
        lambda a: a[0]["ranking"][0]["name"] == "lr0.001",
    ),
    (
        "At which step was it best?",
        [("best", {"metric": "val_loss", "top": 1})],
        lambda a: a[0]["ranking"][0]["step"] == 1990,
    ),
    (
        "Which runs carry the tag ablation?",
        [("runs", {"where": "'ablation' in tags"})],
        lambda a: {r["name"] for r in a[0]["runs"]} == {"lr0.1", "lr0.01"},
    ),
    (
        "Order by training loss",
        [("runs", {"project": "digits", "sort": "train_loss"})],
        lambda a: a[0]["runs"][0]["name"] == "deep",
    ),
    ("Settings of deep?", [("run", {"run": "deep"})], lambda a: a[0]["config"] == {"lr": 0.01, "depth": 12}),
    (
        "Compare the three rates",
        [("compare", {"runs": ["lr*"]})],
        lambda a: len(a[0]["runs"]) == 3 and a[0]["settings_that_differ"] == ["lr"],
    ),
    (
        "Final validation losses",
        [("compare", {"runs": ["lr*"], "metrics": "val_loss"})],
        lambda a: all(r["metrics"]["val_loss"]["best"] is not None for r in a[0]["runs"]),
    ),
    (
        "How many values did lr0.1 log?",
        [("run", {"run": "lr0.1"})],
        lambda a: a[0]["metrics"]["train_loss"]["count"] == 200,
    ),
    ("Mean training loss of each run", [("sql", {"query": MEANS})], lambda a: len(a[0]["rows"]) == 5),
    (
        "Runs with lr above 0.05",
        [("runs", {"where": "config.lr > 0.05"})],
        lambda a: {r["name"] for r in a[0]["runs"]} == {"lr0.1", "diverged"},
    ),
    (
        "How many steps in all?",
        [("sql", {"query": "select sum(steps) from runs where project = 'digits'"})],
        lambda a: a[0]["rows"] == [[4 * 1990 + 1999]],
    ),
    (
        "Which calls failed in chat?",
        [("spans", {"run": "chat", "failed": True})],
        lambda a: "no answer" in a[0]["traces"][0]["spans"][0]["error"],
    ),
    ("How many traces has chat?", [("spans", {"run": "chat"})], lambda a: a[0]["count"] == 2),
    (
        "Which tool did it call?",
        [("spans", {"run": "chat"})],
        lambda a: any(s["name"] == "search" for t in a[0]["traces"] for s in t["spans"]),
    ),
    ("Score of chat?", [("run", {"run": "chat"})], lambda a: a[0]["metrics"]["score"]["last"] == 0.75),
    (
        "Is anything running?",
        [("sql", {"query": "select count(*) from runs where status = 'running'"})],
        lambda a: a[0]["rows"] == [[0]],
    ),
    (
        "The newest run of agents?",
        [("runs", {"project": "agents", "limit": 1})],
        lambda a: a[0]["runs"][0]["name"] == "hostile",
    ),
    (
        "What code differs between two seeds?",
        [("diff", {"first": "lr0.1", "second": "lr0.01"})],
        lambda a: {d["name"] for d in a[0]["differences"] if d["part"] == "config"} == {"lr"},
    ),
]


@pytest.mark.parametrize(("question", "calls", "holds"), QUESTIONS, ids=[question for question, _, _ in QUESTIONS])
def test_question_is_answered_by_the_tools_alone(question: str, calls: Any, holds: Any, tools: Tools) -> None:
    """In at most two calls, each answer no larger than the budget."""
    answers = [ask(tools, name, **arguments) for name, arguments in calls]
    assert len(calls) <= 2
    assert all("error" not in each["from_runs"] for each in answers), answers
    assert all(len(json.dumps(each)) <= 1.2 * BUDGET * CHARACTERS for each in answers)
    assert holds([each["from_runs"] for each in answers]), answers


def test_thirty_questions_take_few_calls_and_characters(tools: Tools) -> None:
    """Counted together: calls, and characters of answers; docs/agents.md says them."""
    calls = [call for _, asked, _ in QUESTIONS for call in asked]
    characters = sum(len(json.dumps(ask(tools, name, **arguments))) for name, arguments in calls)
    assert len(QUESTIONS) == 30
    assert len(calls) == 31
    assert characters <= 45_000


@pytest.mark.parametrize("tool", [tool.name for tool in TOOLS if not tool.needs and tool.name != "plot"])
def test_what_a_hostile_run_says_is_data(tool: str, tools: Tools) -> None:
    """It is in no key of ours but from_runs, is short, and has no sign that nobody sees."""
    arguments: dict[str, dict[str, Any]] = {
        "history": {"run": "hostile", "metrics": "*"},
        "compare": {"runs": ["hostile", "chat"]},
        "best": {"metric": "score"},
        "diff": {"first": "hostile", "second": "chat"},
        "sql": {"query": "select * from config"},
        "projects": {},
        "runs": {},
    }
    answer = ask(tools, tool, **arguments.get(tool, {"run": "hostile"}))
    outside = json.dumps({key: value for key, value in answer.items() if key != "from_runs"})
    assert "error" not in answer["from_runs"]
    assert "IGNORE" not in outside
    text = json.dumps(answer, ensure_ascii=False)
    assert "\u202e" not in text
    assert "\u001b" not in text
    assert "\u200b" not in text
    assert len(text) <= 1.2 * BUDGET * CHARACTERS


@pytest.mark.parametrize(
    "reference",
    [
        "/etc",
        "../x",
        "log:/etc/passwd",
        "csv:/etc/passwd",
        "~/runs",
        "tb:/",
        "outside/p/run",
        "outside.wandb",
        "run:/etc",
        "outside/p/[r]un",
        "run:run:outside/p/run",
        "run:csv:outside.csv",
        "run:run:csv:outside.csv",
        "given/../outside.csv",
        "csv:outside.csv",
        "p\0",
        "p/" + "a" * 5000,
    ],
)
def test_nothing_but_what_was_named_is_read(reference: str, tools: Tools, tmp_path: Path) -> None:
    """Whatever a run's text has talked an agent into, it reads no other file of this machine."""
    write_run("run", [(1, 1.0, {"loss": 1.0})], project="p", root="outside")
    Path("outside.wandb").write_text("secret")
    Path("outside.csv").write_text("step,loss\n1,1\n")
    for name, arguments in (("run", {"run": reference}), ("compare", {"runs": [reference]})):
        error = ask(tools, name, **arguments)["from_runs"]["error"]
        assert "lies outside of the directory of runs" in error or "isn't among the sources" in error or (
            error.startswith(("no run", "what was asked for"))
        ), error  # fmt: skip


def test_named_sources_are_read_and_what_lies_beside_isnt(root: Path, tmp_path: Path) -> None:
    """A source of the command line is one of the runs; ``..`` leads out of it, and is refused."""
    path = tmp_path / "given" / "metrics.csv"
    path.parent.mkdir()
    path.write_text("step,loss\n0,1.5\n1,0.5\n")
    (tmp_path / "other.csv").write_text("step,loss\n0,1\n")
    named = Tools(root, [f"csv:{path}"])
    assert ask(named, "run", run=f"csv:{path}")["from_runs"]["metrics"]["loss"]["last"] == 0.5
    assert ask(named, "runs")["from_runs"]["count"] == 8
    assert "error" in ask(named, "run", run=f"csv:{tmp_path}/other.csv")["from_runs"]
    beside = Tools(root, [f"csv:{path.parent}"])
    assert "error" in ask(beside, "run", run=f"csv:{path.parent}/../other.csv")["from_runs"]
    anything = Tools(root, any_source=True)
    assert "error" not in ask(anything, "run", run=f"csv:{tmp_path}/other.csv")["from_runs"]


@pytest.mark.parametrize(
    "rest",
    ["/folder/private", "/file", "/*/private", "/folder/*", "/**/private", "/folder", "/file#x", "/a#b", "/fold?r/*"],
)
def test_no_link_leads_out_of_a_named_source(rest: str, root: Path, tmp_path: Path) -> None:
    """Also not one that lies in it already: whoever may write there chooses no file for an agent."""
    (tmp_path / "elsewhere").mkdir()
    private = tmp_path / "elsewhere/private"
    private.write_text("step,precious\n1,42\n")
    given = tmp_path / "given"
    (given / "below").mkdir(parents=True)
    (given / "below/private").write_text("step,loss\n1,0.5\n")
    (given / "folder").symlink_to(private.parent)
    (given / "file").symlink_to(private)
    (given / "a#b").symlink_to(private)
    named = Tools(root, [f"csv:{given}"])
    (given / "metrics.csv").write_text("step,loss\n1,0.5\n")
    assert "isn't among the sources" in ask(named, "run", run=f"csv:{given}{rest}")["from_runs"]["error"]


def test_what_lies_below_a_named_source_is_read(root: Path, tmp_path: Path) -> None:
    """By its path, by a pattern, and where the source itself is a link."""
    (tmp_path / "given/below").mkdir(parents=True)
    (tmp_path / "given/below/metrics.csv").write_text("step,loss\n1,0.5\n")
    (tmp_path / "linked").symlink_to(tmp_path / "given")
    for folder in ("given", "linked"):
        named = Tools(root, [f"csv:{tmp_path / folder}"])
        for rest in ("", "/below", "/below/metrics.csv", "/*/metrics.csv"):
            found = ask(named, "run", run=f"csv:{tmp_path / folder}{rest}")["from_runs"]
            assert found["metrics"]["loss"]["last"] == 0.5


def test_long_history_is_paged_within_its_budget(tools: Tools) -> None:
    """All values, a page after the other, each as large as was asked for."""
    seen: list[Any] = []
    first = 0
    for _ in range(100):
        answer = ask(tools, "history", run="diverged", metrics="val_loss", full=True, first_step=first, budget=1000)
        seen += series(answer["from_runs"], "val_loss")
        assert len(json.dumps(answer)) < 1000 * CHARACTERS * 1.3
        if "left_out" not in answer["from_runs"]:
            break
        first = seen[-1][0] + 1
    assert [step for step, _ in seen] == list(range(project.STEPS))


@pytest.mark.parametrize("steps", [{"first_step": 10**6}, {"first_step": 5, "last_step": 4}, {"last_step": -1}])
def test_empty_part_of_a_history_says_which_steps_there_are(tools: Tools, steps: dict[str, int]) -> None:
    """An agent that asked for steps that aren't there knows where to ask."""
    found = ask(tools, "history", run="diverged", metrics="val_loss", **steps)["from_runs"]
    assert (series(found, "val_loss"), found["left_out"]) == (
        [],
        [f"val_loss: no value there: its {project.STEPS} values are at steps 0 to {project.STEPS - 1}"],
    )


def test_runs_are_paged(tools: Tools) -> None:
    """What isn't in an answer is said, with what comes next."""
    answer = ask(tools, "runs", limit=3)
    assert answer["left_out"] == ["4 of 7 runs: offset=3 goes on"]
    assert len(ask(tools, "runs", limit=3, offset=6)["from_runs"]["runs"]) == 1


def test_what_is_left_out_can_be_had_as_it_says(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rankings and comparisons: how much is left out, and an argument that the tool has."""
    ranked = [len(ask(tools, "best", metric="train_loss", top=top)["from_runs"]["ranking"]) for top in (-1, 0, 2)]
    assert ranked == [1, 1, 2]
    answer = ask(tools, "best", metric="train_loss", top=2)
    count = answer["from_runs"]["count"]
    assert answer["left_out"] == [f"{count - 2} of {count} runs: a larger top, or where"]
    assert "left_out" not in ask(tools, "best", metric="train_loss", top=count)

    monkeypatch.setattr(tools_module, "MOST_BUDGET", 4)
    assert ask(tools, "compare", runs=["lr*"])["left_out"][0].endswith(" runs: name fewer runs or metrics")


def test_newest_alerts_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, and where the earlier ones are."""
    monkeypatch.chdir(tmp_path)
    run = project.begin("shouter", "digits")
    for number in range(40):
        run.alert(f"alert {number}", "text")
    run.finish()
    answer = ask(Tools(tmp_path / "runs"), "alerts", run="shouter")
    assert [alert["title"] for alert in answer["from_runs"]["alerts"]] == [
        f"alert {number}" for number in range(10, 40)
    ]
    assert answer["left_out"] == ["10 of 40 alerts, the earlier ones: `trackers alerts RUN` lists them"]


@pytest.mark.parametrize(
    ("tail", "told", "way"), [(0, 1, "tail=2 or search"), (-3, 1, "tail=2 or search"), (2, 2, "tail=4 or search"),
                              (1_000_000, 24, "search")]
)  # fmt: skip
def test_console_names_a_way_to_more(
    tail: int, told: int, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A larger tail, also where none, or fewer than none, was asked for; not where no more lines have room."""
    monkeypatch.chdir(tmp_path)
    run = project.begin("talker", "digits")
    run.finish()
    writer = StreamWriter(RunDirectory(Path(run.dir)).stream(StreamName("console", 0, 1)))
    for number in range(100):
        writer.write(encode(Console(time=run.start_time + number, lines=[f"{number} {'x' * 600}"])))
    writer.release()
    answer = ask(Tools(tmp_path / "runs"), "console", run="talker", tail=tail)
    assert (len(answer["from_runs"]["lines"]), answer["left_out"]) == (told, [f"{100 - told} earlier lines: {way}"])


def test_picture_is_one(tools: Tools) -> None:
    """A PNG."""
    assert call(tools, "plot", {"runs": ["lr*"], "metrics": "train_loss"})[:8] == b"\x89PNG\r\n\x1a\n"


def test_sql_reads_no_file(tools: Tools) -> None:
    """The tables alone."""
    assert "error" in ask(tools, "sql", query="select * from read_csv('/etc/passwd')")["from_runs"]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("select levenshtein(repeat('a', 1000000), repeat('b', 1000000))", "more than 1 seconds"),
        ("select count(*) from range(1000000000000)", "more than 1 seconds"),
        ("select * from range(1000000000000)", "more than 1 seconds|more memory"),
        ("select list_sum(range(4000000000))", "more memory|more than 1 seconds"),
    ],
)
def test_sql_that_never_ends_is_ended(
    query: str, says: str, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Also where DuckDB looks at nothing in the midst of a value, and the next query is answered."""
    monkeypatch.setattr(asking, "QUERY_S", 1.0)
    assert re.search(says, ask(tools, "sql", query=query)["from_runs"]["error"])
    monkeypatch.undo()
    assert ask(tools, "sql", query="select 1 as one")["from_runs"] == {"columns": ["one"], "rows": [[1]]}


def test_sql_whose_process_ends_is_an_error(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server goes on."""
    monkeypatch.setattr(asking, "_BOOT", "import os; os.abort()")
    assert "ended its process" in ask(tools, "sql", query="select 1")["from_runs"]["error"]


def test_sql_takes_no_module_from_the_directory(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """What lies where the agent works is no program."""
    for name in ("json", "duckdb", "trackers", "trackers_mcp", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert ask(tools, "sql", query="select 1 as one")["from_runs"]["rows"] == [[1]]
    assert not (tmp_path / "ran").exists()


def test_hands_are_only_what_was_allowed() -> None:
    """Read-only unless it was said otherwise; an unknown word is an error."""
    assert not {tool.name for tool in allowed([])} & {"stop", "edit", "rules"}
    assert {tool.name for tool in allowed(["stop"])} - {tool.name for tool in allowed([])} == {"stop"}
    with pytest.raises(UsageError, match="known are edit, stop, alerts"):
        allowed(["everything"])


def test_stop_and_edit_do_what_the_commands_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request lies in the run's directory, an edit in its journal."""
    monkeypatch.chdir(tmp_path)
    run = trackers.init("json", project="p", name="one", mode="offline", options={"TRACKER_RELAY": False})
    assert isinstance(run, Run)
    hands = Tools(Path("runs"))
    monkeypatch.setattr("trackers.editing.requests.time.sleep", lambda seconds: None)
    monkeypatch.setattr("trackers_mcp.tools.ANSWER_S", 0.0)
    answer = ask(hands, "stop", run="one", reason="it diverges")
    assert answer["from_runs"]["looks"] is False
    (asked,) = run_requests.read(Path(run.path))
    assert (asked.by, asked.reason) == ("an agent", "it diverges")
    run.finish()
    ask(hands, "edit", run="one", add_tags="good", notes="kept")
    opened = trackers.open("one")
    assert (tuple(opened.tags), opened.notes) == (("good",), "kept")


def test_rules_are_those_of_runs_that_begin_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the named project alone, as the command changes them; a place to send to isn't an agent's to name."""
    monkeypatch.chdir(tmp_path)
    hands = Tools(Path("runs"))
    Path("runs/p").mkdir(parents=True)
    Path("alerts.txt").write_text("crashed\n")
    assert ask(hands, "rules", project="p")["from_runs"]["rules"] == []
    assert ask(hands, "rules", project="p", add="nan -> stop")["from_runs"]["rules"] == ["nan -> stop"]
    run = trackers.init("json", project="p", mode="offline", options={"TRACKER_RELAY": False})
    assert isinstance(run, Run)
    run.finish()
    assert RunDirectory(Path(run.path)).read_info().option("TRACKER_ALERTS") == "nan -> stop"
    assert ask(hands, "rules", project="p", remove="nan -> stop")["from_runs"]["rules"] == []
    for wrong in ("..", "p/..", "q", "", f"p/{Path(run.path).name}", str(tmp_path)):
        assert "no project" in ask(hands, "rules", project=wrong, add="nan")["from_runs"]["error"]
    assert "no duration" in ask(hands, "rules", project="p", add="stall(never)")["from_runs"]["error"]
    assert Path("alerts.txt").read_text() == "crashed\n"


@pytest.mark.parametrize("text", ["a\u202eb", "\x00", "x\x1b[31m", "a\u200b", "\ufeff", "\U000e0041"])
def test_hidden_signs_are_visible(text: str) -> None:
    """Also tags of Unicode, in which text can be hidden from people."""
    assert shown(text, 100).isprintable()


def test_letters_that_are_not_drawn_are_visible() -> None:
    """Variation selectors hide text behind any letter, fillers are letters without ink; an emoji keeps its own."""
    text = "a\ufe01\U000e0154\u3164\u115f\u2800\u034f!"
    assert shown(text, 100) == r"a\ufe01\ue0154\u3164\u115f\u2800\u034f!"
    assert shown("\u26a0\ufe0f", 9) == "\u26a0\ufe0f"
    assert shown("\u26a0\ufe0f\ufe0fa\ufe0f", 99) == "\u26a0\ufe0f" + r"\ufe0fa\ufe0f"


def test_linked_project_is_only_read(root: Path, tools: Tools, tmp_path: Path) -> None:
    """A link among the projects leads elsewhere: what lies there is changed by nobody who only has the tools."""
    run = trackers.init("json", project="p", name="theirs", dir=tmp_path / "others", mode="offline",
                        options={"TRACKER_RELAY": False})  # fmt: skip
    assert isinstance(run, Run)
    run.finish()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/linked").symlink_to(tmp_path / "others/p")
    hands = Tools(tmp_path / "mine")
    for name in (f"linked/{run.id}", "linked/*", "theirs", run.id):
        assert ask(hands, "run", run=name)["from_runs"]["name"] == "theirs", name
        for changed in (ask(hands, "edit", run=name, notes="x"), ask(hands, "stop", run=name, reason="x")):
            assert "outside of the directory of runs" in changed["from_runs"]["error"], name


def test_numbers_keep_their_meaning() -> None:
    """NaN has a name, a time keeps its seconds, a long integer is a text."""
    assert plain(float("nan")) == "NaN"
    assert plain(1795850123.25) == 1795850123.25
    assert plain(2**60) == str(2**60)
    assert plain({"a": [1, 0.1234567]}) == {"a": [1, 0.123457]}


def test_refusals_and_remarks_mark_what_they_quote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of a hostile run's metrics in an error or in what is left out: below from_runs, with their signs seen."""
    monkeypatch.chdir(tmp_path)
    tools = Tools(tmp_path / "runs")
    run = project.begin("long", "agents")
    for step in range(100):
        run.log({project.HOSTILE: step**2}, step=step)
    run.finish()
    for answer in (
        ask(tools, "history", run="long", metrics="nosuch"),
        ask(tools, "best", metric="nosuch"),
        ask(tools, "history", run="long", metrics="*", points=4),
    ):
        text = json.dumps(answer["from_runs"], ensure_ascii=False)
        assert "IGNORE" in text
        assert "\u202e" not in text
        assert "IGNORE" not in json.dumps({key: value for key, value in answer.items() if key != "from_runs"})
    assert "thinned" in text
