"""``trackers diff`` of runs with a record of their code: what differs, in about fifty lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.provenance.support import PROGRAM, record, repository
from trackers.analysis.diff import shortened
from trackers.cli.app import app
from trackers.provenance import manifest

MODULES = {"part": "part.py", "more": "more.py"}


def run_cli(*arguments: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two modules."""
    root = repository(tmp_path / "work", {"train.py": PROGRAM, "part.py": "a = 1\nb = 2\n", "more.py": "c = 3\n"})
    monkeypatch.chdir(root)
    return root


def test_diff_shows_changed_lines_of_the_code(work: Path) -> None:
    """Each file with its counts, then its lines; files that only one run imported; nothing of the patch besides."""
    record(work, "one", modules=MODULES)
    (work / "part.py").write_text("a = 1\n    b = 5\x1b[31m\n")
    (work / "new.py").write_text("d = 4\n")
    record(work, "two", modules={"part": "part.py", "new": "new.py"})
    lines = run_cli("diff", "one", "two").stdout.splitlines()
    place = lines.index("code: 3 differ")
    assert [line.rstrip() for line in lines[place + 1 : place + 10]] == [
        "  more.py  -1  only -", "  new.py   +1  only +", "  part.py  +1 -1", "  part.py", "    @@ -1,2 +1,2 @@",
        "     a = 1", "    -b = 2", "    +    b = 5�[31m", "data: neither run says",
    ]  # fmt: skip
    found = json.loads(run_cli("diff", "one", "two", "--json").stdout)["differences"]
    (part,) = [entry for entry in found if entry["name"] == "part.py"]
    assert (part["part"], part["first"], part["second"]) == ("code", "b = 2", "    b = 5\x1b[31m")


def test_diff_of_many_differences_is_fifty_lines(work: Path) -> None:
    """A hundred packages, settings and changed lines: each part has its share and says what is missing."""
    (work / "part.py").write_text("".join(f"a{n} = 1\n" for n in range(100)))
    packages = {f"package{n}": "1" for n in range(100)}
    record(work, "one", modules=MODULES, config={f"k{n}": 1 for n in range(100)}, installed=packages)
    (work / "part.py").write_text("".join(f"a{n} = 2\n" for n in range(100)))
    packages = dict.fromkeys(packages, "2")
    record(work, "two", modules=MODULES, config={f"k{n}": 2 for n in range(100)}, installed=packages)
    lines = run_cli("diff", "one", "two").stdout.splitlines()
    assert len(lines) == 50
    assert sum("more lines: --full" in line for line in lines) == 3
    full = run_cli("diff", "one", "two", "--full").stdout.splitlines()
    assert len(full) > 300
    assert "more lines" not in "\n".join(full)


def test_same_code_elsewhere_is_the_same(tmp_path: Path) -> None:
    """Another directory, another branch at the same commit: what was run is the same."""
    for name in ("one", "two"):
        root = repository(tmp_path / name, {"train.py": PROGRAM, "part.py": "a = 1\n"})
        record(
            root, name, modules={"part": "part.py"}, where=tmp_path / "runs", git={"commit": "a" * 40, "branch": name}
        )
    shown = run_cli("diff", str(tmp_path / "runs/digits/one"), str(tmp_path / "runs/digits/two")).stdout
    assert shown.splitlines()[2] == "the same in all that was recorded"


def test_one_run_without_a_record_of_its_code(work: Path) -> None:
    """It is said which of both has one; a damaged one isn't compared, and is no traceback."""
    record(work, "one", modules=MODULES)
    run = record(work, "two", modules=MODULES)
    (run.path / manifest.name(1)).unlink()
    assert "code: only - has a record of it" in run_cli("diff", "one", "two").stdout
    (work / "part.py").write_text("a = 2\n")
    three = record(work, "three", modules=MODULES)
    (three.path / manifest.name(1, "zip")).write_bytes(b"")
    assert "part.py  no text, or not kept\n" in run_cli("diff", "one", "three").stdout


@pytest.mark.parametrize(
    ("sizes", "most", "shown"),
    [
        ([5, 5], 10, [5, 5]),
        ([2, 50], 10, [2, 8]),
        ([50, 50, 50], 12, [4, 4, 4]),
        ([9, 9, 9], 3, [3, 3, 3]),
        ([], 5, []),
    ],
)
def test_parts_share_the_lines(sizes: list[int], most: int, shown: list[int]) -> None:
    """What a short part doesn't need, a long one gets; a part that is cut says how many lines are missing."""
    parts = [[str(number) for number in range(size)] for size in sizes]
    found = shortened(parts, most)
    assert [len(part) for part in found] == shown
    for part, cut in zip(parts, found, strict=True):
        assert cut == part or cut[-1] == f"  and {len(part) - len(cut) + 1} more lines: --full"
