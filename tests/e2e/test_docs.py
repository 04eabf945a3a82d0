"""What README.md and docs/*.md show is run. A fenced block says in its first line what it is:

    ```bash run            a command, run as shown
    ```python run          a script, run as shown
    ```python file=a.py    written to a.py, for the commands after it
    ```text output         what the block before it prints: these lines, in this order; … stands for anything
    ```bash show           not run: needs what a test can't have (an account, a cluster, minutes)
    ```python show frameworks   run by `make test-frameworks`, which has the packages (and time): `frameworks` says so
                           also of a file, a command and an output

Where an example prints something else each time, the block shows what it printed once, and a comment before it, which
readers don't see, has the lines with … in place of what varies: ``<!-- prints`` … ``-->``.

Blocks of one page run in order in one directory, which has the checkout's examples/ and defconfigs/. Their ``python``,
``trackers`` and ``torchrun`` are forks (:mod:`tests.forked`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import ROOT, forked

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
LANGUAGES = {"bash", "sh", "shell", "console", "python"}
PRINTS = re.compile(r"<!-- prints\n(?P<lines>(?:(?!-->).)*?)^ *-->\n\Z", re.M | re.S)
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<info>[^`\n]*)\n(?P<body>.*?)^ *(?P=ticks)[ ]*$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    language: str
    tags: tuple[str, ...]
    body: str
    line: int
    prints: str | None = None
    """What an output is compared with, if not with what is shown."""

    def tag(self, name: str) -> str | None:
        """The value of ``name=value``, or "" for a bare ``name``, or None."""
        for tag in self.tags:
            key, _, value = tag.partition("=")
            if key == name:
                return value
        return None


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for match in FENCE.finditer(text):
        language, *tags = match["info"].split() or [""]
        indent = len(match["indent"])
        body = "".join(line[indent:] if line.strip() else "\n" for line in match["body"].splitlines(keepends=True))
        hidden = PRINTS.search(text, 0, match.start())
        line = text.count("\n", 0, match.start()) + 1
        yield Block(language, tuple(tags), body, line, hidden["lines"] if hidden else None)


def run_page(text: str, name: str, directory: Path, *, everything: bool = False) -> None:
    """Run a page's blocks in ``directory``; AssertionError names the page's line that doesn't hold.

    Args:
        everything: also those with the tag ``frameworks``.
    """
    for part in ("examples", "defconfigs"):
        (directory / part).symlink_to(ROOT / part)
    folders = (*([] if everything else [forked.commands(forked.ALL)]), str(Path(sys.executable).parent))
    path = os.pathsep.join((*folders, os.environ["PATH"]))
    # What a page shows must not depend on how busy the machine is while it is tested.
    environment = {**os.environ, "PATH": path, "TRACKER_FINISH_TIMEOUT": "120"}
    for variable in ("TRACKER_SAMPLE", "TRACKER_CONSOLE_CAPTURE", "TRACKER_CODE"):  # as readers have it
        environment.pop(variable, None)
    printed: str | None = None
    for block in blocks(text):
        where = f"{name}:{block.line}"
        if block.tag("frameworks") is not None and not everything:
            continue
        if (file := block.tag("file")) is not None:
            (directory / file).write_text(block.body)
        is_run = block.tag("run") is not None or (block.tag("show") is not None and block.tag("frameworks") is not None)
        if is_run:
            if block.language == "python":
                command = ["python", "-c", block.body]
            else:
                command = ["bash", "-euo", "pipefail", "-c", block.body]
            result = subprocess.run(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=150,
            )
            printed = result.stdout
            assert result.returncode == 0, f"{where} ended with exit code {result.returncode}:\n{printed}"
        elif block.tag("output") is not None:
            assert printed is not None, f"{where}: output of what? No block was run before it"
            wanted = block.body if block.prints is None else block.prints
            missing = first_missing(wanted, block.body)
            assert missing is None, f"{where}: the page doesn't show what its comment says: {missing!r}"
            missing = first_missing(wanted, printed)
            assert missing is None, f"{where}: not printed, or not in this order: {missing!r}\nPrinted was:\n{printed}"


def first_missing(shown: str, printed: str) -> str | None:
    """The first line of ``shown`` that ``printed`` doesn't have after the lines before it; … matches anything."""
    rest = iter([" ".join(line.split()) for line in printed.splitlines()])
    for line in shown.splitlines():
        wanted = " ".join(line.split())
        if wanted in ("", "…"):
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in wanted.split("…")))
        if not any(pattern.fullmatch(candidate) for candidate in rest):
            return line
    return None


PLUGGED = ("agents", "console-logs", "lake", "more-frameworks", "reproducing", "session", "sweeps", "watch")
"""Pages about distributions in plugins/, which run them in tests of theirs."""
SLOW_PAGES = (
    "analysis",
    "hardware",
    "ranks",
    "resume",
    "tables",
    "tensor-inspection",
    "troubleshooting",
    "wandb-scripts",
)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page.stem in SLOW_PAGES else [])
        for page in PAGES
        if page.stem not in PLUGGED
    ],
    ids=lambda page: page.name,
)
def test_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    """A reader who copies a page's commands, top to bottom, gets what the page shows."""
    run_page(page.read_text(), page.name, tmp_path)


def test_slow_pages_are_pages() -> None:
    """A page that is renamed takes its mark along."""
    assert set(SLOW_PAGES) <= {page.stem for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_shows_real_output(page: Path) -> None:
    """Readers see what a command prints, not a pattern; a line of … alone says that lines are left out."""
    outputs = [block for block in blocks(page.read_text()) if block.tag("output") is not None]
    lines = [line for block in outputs for line in block.body.splitlines() if "…" in line and line.strip() != "…"]
    assert not lines


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_says_of_each_command_whether_it_is_run(page: Path) -> None:
    """No command stands in the documentation unchecked by oversight."""
    untagged = [
        f"{page.name}:{block.line}"
        for block in blocks(page.read_text())
        if block.language in LANGUAGES and not any(block.tag(tag) is not None for tag in ("run", "file", "show"))
    ]
    assert not untagged, f"blocks without run, file= or show: {', '.join(untagged)}"


GOOD = """
Write this:
```python file=hello.py
print("one\\ntwo   2\\nthree")
```
1. and run it:
   ```bash run
   python hello.py
   test -d examples
   ```
```text output
one
two …
```
"""


def test_blocks_of_a_page_build_on_each_other(tmp_path: Path) -> None:
    """A file block is there for the command after it, whose output is compared line by line."""
    run_page(GOOD, "page", tmp_path)
    assert (tmp_path / "hello.py").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("two …", "four", "page:11: not printed, or not in this order: 'four'"),
        ("one\ntwo …", "two …\none", "not in this order: 'one'"),
        ("python hello.py\n", "false | cat\n", "page:7 ended with exit code 1"),
        ("bash run", "bash show", "output of what"),
    ],
)
def test_page_that_is_wrong_fails(old: str, new: str, message: str, tmp_path: Path) -> None:
    """A wrong output, a wrong order or a failing command is found, with the page's line."""
    with pytest.raises(AssertionError, match=re.escape(message)):
        run_page(GOOD.replace(old, new), "page", tmp_path)


HIDDEN = """
```python run
import os
print("run", os.getpid(), "ended")
```
<!-- prints
run … ended
-->
```text output
run 4711 ended
```
"""


def test_page_shows_an_example_of_what_varies(tmp_path: Path) -> None:
    """The comment before a block is what the output is compared with; the block has to be an example of it."""
    run_page(HIDDEN, "page", tmp_path)
    for part in ("examples", "defconfigs"):
        (tmp_path / part).unlink()
    with pytest.raises(AssertionError, match="the page doesn't show what its comment says: 'run … ended'"):
        run_page(HIDDEN.replace("4711 ended", "4711 died"), "page", tmp_path)
