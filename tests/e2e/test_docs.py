"""What README.md and docs/*.md show is run. A fenced block says in its first line what it is:

    ```bash run            a command, run as shown
    ```python run          a script, run as shown
    ```python file=a.py    written to a.py, for the commands after it
    ```text output         what the block before it prints: these lines, in this order; … stands for anything
    ```bash show           not run: needs what a test can't have (an account, a cluster, minutes)

Blocks of one page run in order in one directory, which has the checkout's examples/ and defconfigs/.
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

from tests import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
LANGUAGES = {"bash", "sh", "shell", "console", "python"}
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<info>[^`\n]*)\n(?P<body>.*?)^ *(?P=ticks)[ ]*$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    language: str
    tags: tuple[str, ...]
    body: str
    line: int

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
        yield Block(language, tuple(tags), body, text.count("\n", 0, match.start()) + 1)


def run_page(text: str, name: str, directory: Path) -> None:
    """Run a page's blocks in ``directory``; AssertionError names the page's line that doesn't hold."""
    for part in ("examples", "defconfigs"):
        (directory / part).symlink_to(ROOT / part)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # What a page shows must not depend on how busy the machine is while it is tested.
    environment = {**os.environ, "PATH": path, "TRACKER_FINISH_TIMEOUT": "120"}
    environment.pop("TRACKER_SAMPLE", None)  # as readers have it
    printed: str | None = None
    for block in blocks(text):
        where = f"{name}:{block.line}"
        if (file := block.tag("file")) is not None:
            (directory / file).write_text(block.body)
        if block.tag("run") is not None:
            if block.language == "python":
                command = [sys.executable, "-c", block.body]
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
            missing = first_missing(block.body, printed)
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    """A reader who copies a page's commands, top to bottom, gets what the page shows."""
    run_page(page.read_text(), page.name, tmp_path)


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
