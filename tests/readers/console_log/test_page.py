"""The page of the documentation lists the programs that are read, from their tables."""

from __future__ import annotations

import re
from pathlib import Path

from tests import ROOT
from tests.readers.console_log.samples import SAMPLES
from tests.readers.console_log.variants import VARIANTS
from tests.readers.test_console_log import PREFIXES
from trackers.formats import text_file
from trackers.readers import registry
from trackers.readers.console_log import own_format
from trackers.readers.console_log.forms.fields import AVERAGE
from trackers.readers.console_log.programs import ALL, megatron
from trackers.readers.csv import DELIMITERS, MISSING, SETTINGS
from trackers.readers.row_layout import ELAPSED, EPOCHS, STEPS, TIMES

PAGE = ROOT / "docs/console-logs.md"
BEGIN, END = "<!-- programs -->\n\n", "\n<!-- end of programs -->\n"


def table() -> str:
    """The programs by name: a line of each, its step, the releases whose formats are known."""
    lines = ["| program | its rows | step | formats of |", "|---|---|---|---|"]
    for program in sorted(ALL, key=lambda program: program.name.lower()):
        shown = program.shown.replace("|", r"\|")
        releases = "; ".join(label for _, label in program.releases)
        lines.append(f"| {program.name} | `{shown}` | {program.steps} | {releases} |")
    return "\n".join(lines) + "\n"


def test_page_lists_the_programs() -> None:
    """What is between the marks is the table; where it isn't, this is what belongs there."""
    text = PAGE.read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table()


def code(text: str) -> list[str]:
    """What a text shows as code."""
    return re.findall(r"`([^`]+)`", text)


def cells(page: str) -> dict[str, str]:
    """The rows of a page's tables by their first cell, without it."""
    lines = [line for line in (ROOT / "docs" / page).read_text().splitlines() if line.startswith("| ")]
    return {line.split("|")[1].strip(): line.split("|", 2)[2] for line in lines}


def passage(page: str, begin: str, end: str) -> str:
    """A page's text between two others, of which it has the first once; its lines joined."""
    text = re.sub(r"\n *", " ", (ROOT / "docs" / page).read_text())
    assert text.count(begin) == 1, begin
    rest = text.partition(begin)[2]
    assert end in rest, end
    return rest.partition(end)[0]


def test_sources_page_lists_what_is_read() -> None:
    """Each scheme has its row and each such row its scheme; console logs have their number of programs."""
    rows = cells("sources.md")
    named = {match[1] for name in rows if (match := re.match(r"`(\w+):", name))}
    assert named == set(registry.schemes()) - {registry.OWN, registry.WANDB_FILE}
    assert {"an id, a name, `latest`, a project, …", "a `.wandb` file, or an offline directory"} <= rows.keys()
    assert f"what {len(ALL)} training programs print" in rows["`log:FILE`"]


def test_sources_page_lists_the_columns_that_are_known() -> None:
    """Steps in the order in which they count, times, those from a start, cells without a value, what is beside."""
    rows = cells("sources.md")
    assert code(rows["step"]) == [*STEPS, *EPOCHS]
    times, since = rows["time"].split(" A `time` that never falls, and ")
    assert code(times) == list(TIMES)
    assert code(since) == [*ELAPSED, "data_time"]
    assert set(code(rows["cells"])) == MISSING - {""}
    assert all(word in rows["cells"] for word in DELIMITERS.values())
    beside = code(passage("sources.md", "Recognised and tested are", "| what |"))
    assert {name for name in beside if name.endswith(".yaml") or name == "params.json"} == set(SETTINGS)


def test_sources_page_lists_files_that_need_no_scheme() -> None:
    """Their patterns with their schemes; how text files may be packed and written."""
    shown, patterns = [], list[str]()
    for name in code(passage("sources.md", "`runs/metrics.csv`):", ", and a `.wandb` file")):
        if name in registry.schemes():
            shown += [(pattern, name) for pattern in patterns]
            patterns = []
        else:
            patterns.append(name)
    assert (shown, patterns) == (list(registry.FILES), [])
    packed = passage("sources.md", "- Text files (", "- If one of several runs")
    suffixes = [Path(name).suffix or name for name in code(packed)]
    assert [name for name in suffixes if name.startswith(".")] == list(text_file.SUFFIXES)
    known = {name.split("-")[1] for _, name in text_file._MARKS} | {"8"}
    assert set(re.findall(r"UTF-(\d+)", packed)) == known


LAUNCHERS = {
    "`torchrun --tee`": "torchrun", "`srun -l`": "srun -l", "`mpirun --tag-output`": "mpirun",
    "`mpiexec -prepend-rank`": "mpiexec", "`horovodrun`": "horovodrun", "`pdsh`": "pdsh", "DeepSpeed": "deepspeed",
    "Ray": "ray", "SageMaker": "SageMaker", "Kubeflow": "kubeflow", "TorchX": "torchx",
    "`kubectl logs --prefix --timestamps`": "kubectl", "containers' log files": "a container's",
    "`docker logs -t`": "docker logs", "`docker compose logs`": "docker compose", "journald": "journald",
    "syslog": "syslog", "`ts`": "ts", "CI services": "a CI's",
}  # fmt: skip
"""What the page calls a launcher, and how the names of its prefixes in the tests begin."""


def test_page_lists_launchers_whose_prefixes_are_tried() -> None:
    """Each has a prefix in the tests, and each prefix there is of one of them, or of several behind each other."""
    listed = passage("console-logs.md", "puts before each line are recognised: ", ", and combinations of them")
    assert listed.split(", ") == list(LAUNCHERS)
    tried = [name for name in PREFIXES if " and " not in name]
    for name in LAUNCHERS.values():
        assert any(each.startswith(name) for each in tried), name
    assert [each for each in tried if not each.startswith(tuple(LAUNCHERS.values()))] == []


def test_page_lists_what_own_formats_can_say() -> None:
    """Kinds of lines, layouts of what follows, units."""
    kinds = passage("console-logs.md", " are values. Kinds are ", ". With `steps_per_epoch`")
    assert code(kinds) == list(own_format.KINDS)
    layouts = passage("console-logs.md", "- `rest` can be ", ". - Every command")
    assert [name.strip('"') for name in code(layouts)] == list(own_format.LAYOUTS)
    units = passage("console-logs.md", "[units] ", " t = ")
    assert set(re.findall(r"[a-z]{4,}", units)) == set(own_format.UNITS)


def spelt(name: str, before: str) -> list[str]:
    """The names that one of the page's stands for: ``a_{b,c}``, and ``…_d`` behind another one."""
    if name.startswith("…"):
        name = re.split(r"(?<=memory)_", before)[0] + name[1:]
    head, _, rest = name.partition("{")
    each, _, tail = rest.partition("}")
    return [head + part + tail for part in each.split(",")]


def test_page_names_values_that_programs_have() -> None:
    """Each name in its table is one that some log gives, and all of speed that a program's table gives are there."""
    tables = [megatron.NAMES, *(program.names for program in ALL), *(form.names for each in ALL for form in each.forms)]
    values = [names for table in tables for names in table.values()]
    given = {name for names in values for name in ((names,) if isinstance(names, str) else names)}
    listed, before = set[str](), ""
    for first in cells("console-logs.md"):
        for name in code(first) if first.startswith("`") else ():
            listed.update(spelt(name, before))
            before = name
    peak = ("rocm max mem usage/usage_ratio", "rocm max mem rank", "hip mem usage/free/total/usage_ratio")
    memory = {name for key in peak for name in megatron.metric_names(key)}
    read = {name for sample in (*SAMPLES.values(), *VARIANTS.values()) for row in sample.rows.values() for name in row}
    assert listed - given - memory - read == set()
    speeds = {name for name in given if name.startswith("perf/") and not name.endswith(AVERAGE)}
    assert speeds - listed == set()
