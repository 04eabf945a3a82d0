"""The page of the documentation lists the programs that are read, from their tables."""

from __future__ import annotations

import re

from log_samples import SAMPLES
from log_variants import VARIANTS
from test_console_log_reader import PREFIXES
from trackers_console_logs import own_format
from trackers_console_logs.forms.fields import AVERAGE
from trackers_console_logs.programs import ALL, megatron

from tests import ROOT
from tests.readers.test_sources_page import cells, code, passage

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


def test_sources_page_has_the_number_of_programs() -> None:
    """Its row counts those of the tables."""
    assert f"what {len(ALL)} training programs print" in cells("sources.md")["`log:FILE`"]


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
