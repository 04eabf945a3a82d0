"""``trackers rerun``: a run's code, packages and arguments, in a directory of their own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipapp
from pathlib import Path
from typing import Any

import pytest
from trackers_rerun import leftovers, restore
from typer.testing import CliRunner, Result

from tests import ROOT
from tests.analysis.support import said_in_one_line
from tests.provenance.support import PROGRAM, git, record, repository
from trackers.cli.app import app
from trackers.errors import UsageError
from trackers.provenance import manifest
from trackers.provenance.packages import Origin


def run_cli(*arguments: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(app, list(arguments))


def dry(*arguments: str) -> dict[str, Any]:
    """What ``trackers rerun --dry-run`` says."""
    done = run_cli("rerun", "--dry-run", "--json", *arguments)
    assert done.exit_code == 0, done.output or done.exception
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def everything(place: Path) -> dict[str, tuple[int, bytes]]:
    """All that is in a directory."""
    files = [path for path in place.rglob("*") if path.is_file()]
    return {str(path.relative_to(place)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with what isn't committed: a changed file, a new one, a removed one, a link, a secret."""
    root = repository(
        tmp_path / "work",
        {"train.py": PROGRAM, "part.py": "V = 1\n", "old.py": "", "conf.ini": "password = 'hunter2hunter2'\na = 1\n",
         ".gitignore": "runs\n", "shown": ""},
    )  # fmt: skip
    (root / "part.py").write_text("from more import VALUE\n")
    (root / "more.py").write_text("VALUE = 'from a file that git does not know'\n")
    (root / "conf.ini").write_text("password = 'hunter2hunter2'\na = 2\n")
    (root / "old.py").unlink()
    (root / "shown").unlink()
    (root / "shown").symlink_to("part.py")
    monkeypatch.chdir(root)
    return root


MODULES = {"part": "part.py", "more": "more.py"}


def test_rerun_restores_code_and_arguments_and_starts_them(
    work: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Commit, uncommitted and untracked files as they were, though the checkout has gone on, which stays as it is."""
    record(work, argv=("--lr", "a b", "\0code/x".replace("\0", "%")), modules=MODULES)
    for name in ("train.py", "part.py", "more.py"):
        (work / name).write_text("raise SystemExit(5)\n")
    git(work, "commit", "-qam", "later")
    before = everything(work), git(work, "status", "--porcelain")
    done = run_cli("rerun", "one", "--into", str(tmp_path / "again"), "--env", "current")
    assert done.exit_code == 0, done.output
    code = tmp_path / "again/code"
    assert capfd.readouterr().out == (
        f"from a file that git does not know ['--lr', 'a b', '%code/x'] {code}\n"
    )  # fmt: skip
    assert git(work, "status", "--porcelain") == before[1]
    changed = {name for name, content in everything(work).items() if before[0].get(name) != content}
    assert all(name.startswith(".git/") for name in changed)
    assert (code / "conf.ini").read_text() == "password = 'hunter2hunter2'\na = 2\n"
    assert not (code / "old.py").exists()
    assert os.readlink(code / "shown") == "part.py"


def test_dry_run_writes_and_starts_nothing(work: Path, tmp_path: Path) -> None:
    """It says what would be done: the commit, the files, the packages, the command."""
    record(work, argv=("--lr", "1"), modules=MODULES)
    before = everything(tmp_path)
    found = dry("one", "--into", str(tmp_path / "again"))
    assert everything(tmp_path) == before
    assert found["commit"] == git(work, "rev-parse", "HEAD").strip()
    assert {file["path"]: file["origin"] for file in found["files"]} == {
        "part.py": "changed", "more.py": "imported", "conf.ini": "changed", "old.py": "deleted", "shown": "changed",
    }  # fmt: skip
    assert (found["environment"], found["differences"]) == ("current", [])
    assert found["command"] == [sys.executable, str(tmp_path / "again/code/train.py"), "--lr", "1"]
    shown = run_cli("rerun", "one", "--dry-run").stdout
    assert "\nchanged    conf.ini, part.py, shown\n" in shown


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("form", ["archive", "directory"])
def test_archive_or_directory_that_python_was_given_is_run_again(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """``python app.pyz`` and ``python app``: the whole archive, or the files that were imported, are the code."""
    source = tmp_path / "work/app"
    source.mkdir(parents=True)
    (source / "helper.py").write_text("VALUE = 'from the archive'\n")
    (source / "__main__.py").write_text(
        "import sys, trackers, helper\nwith trackers.init('json', id=sys.argv[1], project='p', mode='offline'):\n"
        "    print(helper.VALUE, sys.argv[1:])\n"
    )
    monkeypatch.chdir(tmp_path / "work")
    name = "app"
    if form == "archive":
        name = "app.pyz"
        zipapp.create_archive(source, name)
    done = subprocess.run([sys.executable, name, "one", "--lr", "1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(source)
    Path("app.pyz").unlink(missing_ok=True)
    again = run_cli("rerun", "p/one", "--env", "current", "--into", str(tmp_path / "again"))
    assert again.exit_code == 0, again.output
    assert capfd.readouterr().out == "from the archive ['one', '--lr', '1']\n"


def test_code_without_git_is_restored_from_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The script and what it imported are enough; data that an argument names is linked to by its name."""
    root = tmp_path / "work"
    (root / "data").mkdir(parents=True)
    (root / "train.py").write_text(PROGRAM)
    (root / "part.py").write_text("VALUE = open('data/a.txt').read()\n")
    (root / "data/a.txt").write_text("data")
    monkeypatch.chdir(root)
    record(root, argv=("--data=data/a.txt",), modules={"part": "part.py"})
    (root / "part.py").unlink()
    remarks = dry("one")["remarks"]
    assert any("data/a.txt; as they are now: --link data/a.txt" in remark for remark in remarks)
    done = run_cli("rerun", "one", "--env", "current", "--link", "data", "--into", str(tmp_path / "again"))
    assert done.exit_code == 0, done.output
    assert capfd.readouterr().out.startswith("data ['--data=data/a.txt']")


def test_commit_that_is_gone_leaves_the_recorded_files(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what can be done; another clone is taken where it has the commit."""
    record(work, modules=MODULES)
    git(tmp_path, "clone", "-q", str(work), "other")
    (work / ".git").rename(tmp_path / "away")
    code, said = said_in_one_line(["rerun", "one"], capsys, monkeypatch)
    assert code == 1
    assert "is in no repository at" in said
    assert "--snapshot" in said
    assert dry("one", "--repo", str(tmp_path / "other"))["repository"] == str(tmp_path / "other")
    found = dry("one", "--snapshot")
    assert {file["path"] for file in found["files"]} == {"part.py", "more.py", "train.py", "conf.ini", "shown"}


@pytest.mark.parametrize("how", ["changed", "copied"])
def test_code_of_others_runs_by_consent_only(
    how: str, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that somebody changed, or made elsewhere, is data: nothing is written or started without --trust."""
    run = record(work, argv=("one",), modules=MODULES)
    if how == "changed":
        path = run.path / manifest.name(1)
        path.write_text(path.read_text().replace('"argv": [\n    "one"', '"argv": [\n    "two"'))
    else:
        key = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser(), "trackers/seal.key")
        key.unlink()
    before = everything(tmp_path)
    code, said = said_in_one_line(["rerun", "one", "--env", "current"], capsys, monkeypatch)
    assert (code, "add --trust" in said) == (2, True)
    assert everything(tmp_path) == before
    assert dry("one")["own"] is False
    assert run_cli("rerun", "one", "--trust", "--env", "current", "--into", str(tmp_path / "again")).exit_code == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"program": "<notebook>"}, "was started in a notebook"),
        ({"program": "<python>"}, "was started in a console, from standard input or by python -c"),
        ({"program": "/elsewhere/train.py"}, "isn't part of its recorded code"),
        ({"argv": ("--api-key", "secret-one")}, "give all arguments again, behind --"),
        ({"attempts": [{"number": 1, "ranks": 8}]}, "ran on 8 ranks"),
        ({"attempts": [{"number": 1, "ranks": 8, "nodes": 2}]}, "ran on 2 nodes"),
    ],
)
def test_what_cannot_be_started_again_is_one_line(
    fields: dict[str, Any], said: str, work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook, a script elsewhere, a secret among the arguments, several ranks by an unknown launcher."""
    from trackers.support.redaction import mask_argv

    fields = {**fields, "argv": tuple(mask_argv(fields.get("argv", ())))}
    record(work, modules=MODULES, **fields)
    code, line = said_in_one_line(["rerun", "one"], capsys, monkeypatch)
    assert code == 2
    assert said in line


def test_program_of_no_file_is_said_to_be_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it imported nothing of its own either."""
    monkeypatch.chdir(tmp_path)
    record(tmp_path, program="<python>")
    said = said_in_one_line(["rerun", "one", "--no-start"], capsys, monkeypatch)[1]
    assert "no code in its record: it was started in a console, from standard input" in said


def test_cells_of_a_notebook_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They can't be started again; what ran is there to be read."""
    monkeypatch.chdir(tmp_path)
    run = record(tmp_path, program="<notebook>")
    (run.path / "notebook-1.py").write_text("# %% [1]\nrun.finish()\n")
    said = said_in_one_line(["rerun", "one", "--dry-run"], capsys, monkeypatch)[1]
    assert "the cells that ran are in runs/digits/one/notebook" in said


def test_run_without_a_record_says_so(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with the next command."""
    run = record(work)
    (run.path / manifest.name(1)).unlink()
    code, said = said_in_one_line(["rerun", "one"], capsys, monkeypatch)
    assert code == 1
    assert "trackers argv one" in said
    (run.path / manifest.name(1, "modules")).touch()
    assert "has no record of the code yet" in said_in_one_line(["rerun", "one"], capsys, monkeypatch)[1]


def test_damaged_record_is_one_line_and_leaves_nothing(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed archive isn't unpacked; the directory that was begun is gone, for git too."""
    run = record(work, modules=MODULES)
    archive = run.path / manifest.name(1, "zip")
    archive.write_bytes(archive.read_bytes().replace(b"PK\x01\x02", b"PK\x01\x03"))
    into = str(tmp_path / "again")
    code = run_cli("rerun", "one", "--env", "current", "--into", into)
    assert "is damaged" in str(code.exception)
    assert not Path(into).exists()
    assert git(work, "worktree", "list").count("\n") == 1


def test_hostile_record_stays_in_its_directory(work: Path, tmp_path: Path) -> None:
    """Paths that lead out are left out; a link of the commit isn't followed; a link of the record leads nowhere."""
    (tmp_path / "victim").mkdir()
    (work / "way").symlink_to(tmp_path / "victim")
    git(work, "add", "way")
    git(work, "commit", "-qm", "a link")
    run = record(work, modules=MODULES)
    found = manifest.read(run)
    (part,) = [file for file in found.files if file.path == "part.py"]
    for path in ("../evil.py", "/tmp/evil.py", "way/evil.py", "a/../../evil.py"):
        entry = manifest.SourceFile(path=path, origin="changed", digest=part.digest, bytes=part.bytes, kept=True)
        found.files.append(entry)
    found.files.append(manifest.SourceFile(path="out", origin="changed", link=str(tmp_path / "victim")))
    found.files.append(manifest.SourceFile(path="deep/up", origin="changed", link=".."))
    found.files.append(manifest.SourceFile(path="round", origin="changed", link="deep/up/../../victim"))
    found.files.append(manifest.SourceFile(path="none", origin="changed", link="\0"))
    found.packages["odd"] = "1"
    found.variables["\33]0;x\7;touch x;"] = "1"
    found.origins["odd"] = Origin(kind="archive", url="https://[x")
    found.python_version += "\n--index-url https://evil.example"
    manifest.write(run, found, None, 0o600)
    names = [file["path"] for file in dry("one")["files"]]
    assert "way/evil.py" in names
    assert not [name for name in names if ".." in name or name.startswith("/")]
    done = run_cli("rerun", "one", "--trust", "--env", "current", "--into", str(tmp_path / "again"))
    assert "way/evil.py can't be restored" in str(done.exception)
    assert not list((tmp_path / "victim").iterdir())
    assert not (tmp_path / "again").exists()
    found.files = [file for file in found.files if file.path != "way/evil.py"]
    manifest.write(run, found, None, 0o600)
    done = run_cli("rerun", "one", "--trust", "--env", "current", "--no-start", "--into", str(tmp_path / "again"))
    assert done.exit_code == 0, done.output
    assert "out isn't restored: it is a link to" in done.stderr
    assert not (tmp_path / "again/code/out").exists()
    assert not os.path.lexists(tmp_path / "again/code/round"), "deep/up leads to code: ../../victim is beside again"
    assert os.readlink(tmp_path / "again/code/deep/up") == ".."
    assert "none isn't restored" in done.stderr
    assert "\33" not in done.output, "a name that is none stands in no command"
    lines = run_cli("rerun", "one", "--requirements").stdout.splitlines()
    assert not [line for line in lines if line.startswith("--index-url")], "nor does it add options for pip"
    assert any("odd isn't restored: its address can't be read" in line for line in lines)
    assert not (tmp_path / "evil.py").exists()


def test_other_data_is_named(work: Path) -> None:
    """A file whose digest was recorded and that isn't the same, or isn't there."""
    run = record(work, modules=MODULES)
    found = manifest.read(run)
    for name, text in (("same", "same"), ("other", "more"), ("gone", "gone")):
        (work / name).write_text(text)
        digest = hashlib.sha256(b"same" if name != "gone" else b"gone").hexdigest()
        found.data.append(manifest.Data(str(work / name), 4, digest))
    (work / "gone").unlink()
    manifest.write(run, found, None, 0o600)
    said = [remark for remark in dry("one")["remarks"] if "other data" in remark]
    whole = f"other data than in the run: {work}/other, {work}/gone (gone)"
    assert [whole.startswith(remark.removesuffix("…")) for remark in said] == [True]
    assert f"{work}/other, " in said[0]


def test_hooks_of_the_repository_do_not_run(work: Path, tmp_path: Path) -> None:
    """``git worktree add`` would run ``post-checkout``."""
    hook = work / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    record(work, modules=MODULES)
    done = run_cli("rerun", "one", "--env", "current", "--no-start", "--into", str(tmp_path / "again"))
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "ran").exists()


PROGRAMS = """
[core]
	fsmonitor = {program}
	sshCommand = {program}
[submodule]
	recurse = true
[filter "own"]
	smudge = {program}
	clean = {program}
	process = {program}
	required = true
"""


@pytest.mark.parametrize("names_programs", [True, False])
def test_filters_of_the_repository_and_of_the_user_do_not_run(
    names_programs: bool, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``git worktree add`` would run smudge filters on each file: a repository's own, and with the user's git-lfs what
    the repository tells that. What git-lfs would have filled is said."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 $@ >> {tmp_path}/ran\ncat\n")
    program.chmod(0o755)
    (tmp_path / "gitconfig").write_text(f'[filter "lfs"]\n\tsmudge = {program}\n\tclean = {program}\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    (work / ".git/info").mkdir(exist_ok=True)
    filters = "*.py filter=own\n*.txt filter=lfs\n*.md filter=odd.name\n" if names_programs else "* filter=lfs\n"
    (work / ".git/info/attributes").write_text(filters)
    (work / ".git/more").write_text(f'[filter "odd.name"]\n\tsmudge = {program}\n\trequired = true\n')
    if names_programs:
        with (work / ".git/config").open("a") as file:
            file.write(PROGRAMS.format(program=program) + "[include]\n\tpath = more\n")
    record(work, modules=MODULES)
    (tmp_path / "ran").unlink(missing_ok=True)
    done = run_cli("rerun", "one", "--env", "current", "--no-start", "--into", str(tmp_path / "again"))
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert (tmp_path / "again/code/train.py").exists()


def test_no_start_prints_a_command_for_the_shell(work: Path, tmp_path: Path) -> None:
    """What it prints runs the restored code."""
    record(work, argv=("it's", "$HOME"), modules=MODULES)
    done = run_cli("rerun", "one", "--env", "current", "--no-start", "--into", str(tmp_path / "a b"))
    ran = subprocess.run(["bash", "-c", done.stdout], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("from a file that git does not know [\"it's\", '$HOME']")


def test_exit_code_is_the_programs(work: Path, tmp_path: Path) -> None:
    """Arguments behind -- replace the run's; --set gives a variable; the program's exit code is given on."""
    (work / "train.py").write_text("import os, sys; sys.exit(int(sys.argv[1]) + int(os.environ['MORE']))")
    record(work, argv=("1",))
    done = run_cli("rerun", "one", "--env", "current", "--into", str(tmp_path / "a"), "--set", "MORE=2", "--", "3")
    assert done.exit_code == 5


def test_program_of_a_package_is_called_as_it_was(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A new environment hasn't the programs of packages in editable form: one that calls their files is written."""
    (work / "part.py").write_text("import sys\n\ndef main():\n    print(__file__, sys.argv[1:], flush=True)\n")
    program = str(Path(sys.executable).parent / "nobody-has-it")
    run = record(work, program=program, argv=("-x",), modules={"part": "part.py"})
    found = manifest.read(run)
    assert found.entry == ""
    found.entry = "part:main"
    manifest.write(run, found, None, 0o600)
    done = run_cli("rerun", "one", "--env", "current", "--into", str(tmp_path / "again"))
    assert done.exit_code == 0, done.output
    assert capfd.readouterr().out == f"{tmp_path}/again/code/part.py ['-x']\n"


def test_launcher_of_ranks_starts_them_again(work: Path, tmp_path: Path) -> None:
    """The same launcher with the restored script; arguments behind -- go to the script."""
    run = record(work, argv=("-x",), modules=MODULES, attempts=[{"number": 1, "ranks": 2}])
    found = manifest.read(run)
    words = ["-m", "torch.distributed.run", "--nproc_per_node=2", "train.py", "-x"]
    found.launcher = manifest.Launcher(words, str(work))
    manifest.write(run, found, None, 0o600)
    script = str(tmp_path / "again/code/train.py")
    started = dry("one", "--into", str(tmp_path / "again"))["command"][1:]
    assert started == [*words[:3], script, "-x"]
    assert dry("one", "--into", str(tmp_path / "again"), "--", "-y")["command"][1:] == [*words[:3], script, "-y"]


def test_path_of_imports_leads_to_the_restored_files(work: Path, tmp_path: Path) -> None:
    """Directories of the repository are those of the restored files; others stay, and are named."""
    (work / "src").mkdir()
    (work / "src/inner.py").write_text("")
    variables = {"PYTHONPATH": os.pathsep.join(["src", str(work), "/elsewhere"]), "NCCL_ALGO": "Ring"}
    record(work, modules={"inner": "src/inner.py"}, head={"variables": variables})
    found = dry("one", "--into", str(tmp_path / "again"))
    code = str(tmp_path / "again/code")
    assert found["variables"]["PYTHONPATH"].split(os.pathsep) == [f"{code}/src", code, "/elsewhere"]
    assert found["variables"]["NCCL_ALGO"] == "Ring"
    assert "imported from PYTHONPATH as it is now: /elsewhere" in found["remarks"]


def test_options_of_the_run_are_its_own_again(work: Path, tmp_path: Path) -> None:
    """Those that differ from the defaults, but for what names the run; none of a run that isn't one's own."""
    options = {"TRACKER_PRIVATE": False, "TRACKER_GROUP": "g", "TRACKER_RUN_ID": "one", "TRACKER_RESUME": "must"}
    run = record(work, modules=MODULES, options=options)
    variables = dry("one")["variables"]
    assert {name: text for name, text in variables.items() if name in options} == {
        "TRACKER_PRIVATE": "n", "TRACKER_GROUP": "g",
    }  # fmt: skip
    assert variables["TRACKER_DIR"] == str(work / "runs")
    path = run.path / manifest.name(1)
    path.write_text(path.read_text().replace("train.py", "part.py"))
    assert not set(options) & set(dry("one")["variables"])


def test_submodules_are_restored_at_their_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the clone that is checked out here, with what wasn't committed; where there is none it is said."""
    repository(tmp_path / "inner", {"model.py": "a = 1\n"})
    root = repository(tmp_path / "work", {"train.py": "", ".gitignore": "runs\n"})
    monkeypatch.chdir(root)
    git(root, "submodule", "-q", "add", str(tmp_path / "inner"), "part")
    git(root, "commit", "-qm", "second")
    (root / "part/other.py").write_text("b = 1\n")
    git(root / "part", "add", ".")
    git(root / "part", "commit", "-qm", "further")
    (root / "part/model.py").write_text("a = 2\n")
    record(root)
    for name, there in (("first", True), ("second", False)):
        if not there:
            git(root, "submodule", "deinit", "-q", "-f", "part")
        done = run_cli("rerun", "one", "--env", "current", "--no-start", "--into", str(tmp_path / name))
        assert done.exit_code == 0, done.output
        part = tmp_path / name / "code/part"
        assert (part / "model.py").read_text() == "a = 2\n"
        assert (part / "other.py").exists() is there
        assert ("submodule part isn't restored" in done.stderr) is not there
    assert "-" in git(root, "submodule", "status")


def test_submodule_that_leads_elsewhere_is_not_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ``.git`` may name another repository of the user's: nothing is taken from or written to it."""
    secret = repository(tmp_path / "secret", {"secret.txt": "hunter2\n"})
    commit = git(secret, "rev-parse", "HEAD").strip()
    root = repository(tmp_path / "work", {"train.py": "", ".gitignore": "runs\n"})
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{commit},part")
    git(root, "commit", "-qm", "second")
    (root / "part").mkdir()
    (root / "part/.git").write_text(f"gitdir: {secret / '.git'}\n")
    monkeypatch.chdir(root)
    record(root)
    done = run_cli("rerun", "one", "--env", "current", "--no-start", "--into", str(tmp_path / "again"))
    assert done.exit_code == 0, done.output
    assert "submodule part isn't restored" in done.stderr
    assert not list((tmp_path / "again").rglob("secret.txt"))
    assert not (secret / ".git/worktrees").exists()


def test_two_at_once_have_a_directory_each(work: Path) -> None:
    """Nobody writes into a directory that another one made."""
    first = restore.directory_for("one", None)
    first.mkdir(parents=True)
    assert restore.make("one", None) == first.with_name("one-2")
    with pytest.raises(UsageError, match="is there already"):
        restore.make("one", first)


@pytest.mark.slow
def test_resumed_run_is_run_again_as_it_was_started_last(work: Path) -> None:
    """Each start has its record; --attempt chooses."""
    run = record(work, argv=("first",), modules=MODULES)
    found = manifest.read(run)
    (run.path / "streams/rank-0.2.jsonl").write_bytes((run.path / "streams/rank-0.1.jsonl").read_bytes())
    found.attempt, found.argv = 2, ["second"]
    manifest.write(run, found, manifest.pack({}), 0o600)
    assert dry("one")["command"][2:] == ["second"]
    assert dry("one", "--attempt", "1")["command"][2:] == ["first"]


def test_clean_removes_what_reruns_left(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the work trees that git knows of; by --yes only, and neither what is used now nor what a link leads to."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    record(work, modules=MODULES)
    assert run_cli("rerun", "latest", "--no-start").exit_code == 0
    (place,) = (tmp_path / "cache/trackers/reruns").iterdir()
    (place / "code/data").symlink_to(work)
    (place.parent / "elsewhere").symlink_to(work)
    environment = tmp_path / "cache/trackers/environments/abc"
    environment.mkdir(parents=True)
    with leftovers.lock_directories([environment]):
        said = run_cli("rerun", "--clean").stdout.splitlines()
        assert [line.split("  ")[::2] for line in said[:2]] == [
            [str(place), "to remove"], [str(environment), "stays: it is used now"],
        ]  # fmt: skip
        assert said[2] == "nothing was changed; add --yes to do it"
        assert run_cli("rerun", "--clean", "--yes").exit_code == 0
        assert not place.exists()
        assert environment.exists()
        assert (work / "train.py").exists()
        assert len(git(work, "worktree", "list").splitlines()) == 1
    told = json.loads(run_cli("rerun", "--clean", "--yes", "--json").stdout)
    assert [(one["kind"], one["state"]) for one in told] == [("environments", "removed")]
    assert run_cli("rerun", "--clean").stdout == "nothing is left of reruns\n"


@pytest.mark.slow
def test_directory_of_a_rerun_is_held_by_its_program(work: Path, tmp_path: Path) -> None:
    """Also where the command that started it is gone."""
    (work / "train.py").write_text(
        "import os\nfrom pathlib import Path\nfrom trackers_rerun import leftovers\n"
        "assert [one.used for one in leftovers.leftovers()] == [True]\n"
        "places = [os.path.realpath(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')]\n"
        "assert os.path.realpath('..') in places\n"
    )
    record(work, modules=MODULES)
    path = os.pathsep.join((str(ROOT), str(Path(leftovers.__file__).parents[1])))  # which stands behind the code's own
    done = run_cli("rerun", "latest", "--set", f"PYTHONPATH={path}")
    assert done.exit_code == 0


@pytest.mark.parametrize("arguments", [[], ["--clean", "latest"]], ids=["none", "clean"])
def test_rerun_is_of_one_run_or_cleans_all(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line otherwise."""
    assert "run" in said_in_one_line(["rerun", *arguments], capsys, monkeypatch)[1]
