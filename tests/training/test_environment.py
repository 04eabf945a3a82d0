"""What a run ran on: a repository is data, whatever programs its own files name."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from trackers.provenance import snapshot
from trackers.provenance.repository import PATCH_BYTES, changed_files, quiet
from trackers.provenance.repository import state as state_of
from trackers.provenance.snapshot import SnapshotOptions
from trackers.support import git_head


def git(root: Path, *words: str) -> None:
    """Run git there, by nobody's configuration."""
    subprocess.run(
        ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always",
         *words],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a submodule and a file that isn't as it was committed."""
    root, inner = tmp_path / "work", tmp_path / "inner"
    for path in (root, inner):
        path.mkdir()
        git(path, "init", "-q")
        (path / "train.py").write_text("lr = 1\n")
        git(path, "add", ".")
        git(path, "commit", "-qm", "first")
    git(root, "submodule", "-q", "add", str(inner), "part")
    git(root, "commit", "-qm", "second")
    (root / "train.py").write_text("lr = 2\n")
    return root


def test_what_a_partial_clone_lacks_is_not_fetched(repository: Path, tmp_path: Path) -> None:
    """To fetch it, git would run what the repository names, or ask the address that it names."""
    program, ran = tmp_path / "evil.sh", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    settings = {
        "core.repositoryFormatVersion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true",
        "remote.origin.url": str(tmp_path / "inner"), "remote.origin.uploadpack": str(program),
        "protocol.file.allow": "always",
    }  # fmt: skip
    for name, value in settings.items():
        git(repository, "config", name, value)
    blob = subprocess.check_output(["git", "-C", str(repository), "rev-parse", "HEAD:train.py"], text=True).strip()
    (repository / ".git/objects" / blob[:2] / blob[2:]).unlink()
    state_of(str(repository))
    assert not ran.exists()


def test_repository_runs_no_program_of_its_own(repository: Path, tmp_path: Path) -> None:
    """Conversions, filters, monitors, hooks and diff programs that its .gitattributes and .git/config name are left
    alone, a submodule's too, also those of a file that the configuration includes; the patch is there."""
    program, ran = tmp_path / "evil.sh", tmp_path / "ran"
    program.write_text(f'#!/bin/sh\necho "$0 $@" >> {ran}\ncat "$1" 2>/dev/null\n')
    program.chmod(0o755)
    attributes = "*.py diff=evil filter=evil\n"
    (repository / ".gitattributes").write_text(attributes)
    (repository / ".git/info").mkdir(exist_ok=True)
    (repository / ".git/info/attributes").write_text("*.py filter=odd.name\n")
    settings = (
        f"[core]\n\tfsmonitor = {program}\n\tpager = {program}\n\tsshCommand = {program}\n\tgitProxy = {program}\n"
        f'[diff]\n\texternal = {program}\n[diff "evil"]\n\ttextconv = {program}\n\tcommand = {program}\n'
        f'[filter "evil"]\n\tclean = {program}\n\tsmudge = {program}\n\tprocess = {program}\n\trequired = true\n'
        f"[pager]\n\tdiff = {program}\n[interactive]\n\tdiffFilter = {program}\n[alias]\n\tdiff = !{program}\n"
        f'[hook "evil"]\n\tevent = post-index-change\n\tcommand = {program}\n'
    )
    (repository / ".git/more").write_text(f'[filter "odd.name"]\n\tclean = {program}\n\trequired = true\n')
    for config in (repository / ".git/config", repository / ".git/modules/part/config"):
        with config.open("a") as file:
            file.write(settings + "[include]\n\tpath = more\n")
    for hooks in (repository / ".git/hooks", repository / ".git/modules/part/hooks"):
        hooks.mkdir(exist_ok=True)
        for name in ("post-index-change", "fsmonitor-watchman", "query-watchman"):
            (hooks / name).symlink_to(program)
    (repository / "part/train.py").write_text("lr = 3\n")
    os.utime(repository / ".gitattributes", (1, 1))  # as unpacked elsewhere: git would write its index anew
    state = state_of(str(repository))
    os.utime(repository / ".gitattributes", (2, 2))
    git(repository, "config", "core.hooksPath", str(repository / ".git/modules/part/hooks"))
    assert state == state_of(str(repository))
    assert not ran.exists(), ran.read_text()
    assert "hook.evil.enabled=false" in quiet(str(repository))
    assert state["dirty"] is True
    assert "-lr = 1\n+lr = 2\n" in state["patch"]
    with (repository / ".git/config").open("a") as file:
        file.write(f'[filter "a=b"]\n\tclean = {program}\n')
    (repository / ".git/info/attributes").write_text("*.py filter=a=b\n")
    assert state_of(str(repository)) == {}
    assert not ran.exists(), ran.read_text()


@pytest.mark.parametrize("form", ["diff", "log"])
def test_other_commit_of_a_submodule_runs_no_program_of_the_submodule(
    form: str, repository: Path, tmp_path: Path
) -> None:
    """A repository may ask for submodules' own differences (``diff.submodule``): git would run itself in them."""
    ran = tmp_path / "ran"
    part = repository / "part"
    (part / ".gitattributes").write_text("* diff=evil\n")
    (part / "train.py").write_text("lr = 4\n")
    git(part, "add", ".")
    git(part, "commit", "-qm", "other")
    git(repository, "config", "diff.submodule", form)
    for name in ("diff.evil.command", "diff.evil.textconv", "diff.external"):
        git(part, "config", name, f"touch {ran}; true")
    assert "+Subproject commit" in state_of(str(repository))["patch"]
    assert not ran.exists()


def test_patch_holds_no_files_of_another_directory(repository: Path, tmp_path: Path) -> None:
    """``core.worktree`` of a repository names no directory whose files are compared and kept."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private/train.py").write_text("hunter2\n")
    git(repository, "config", "core.worktree", str(tmp_path / "private"))
    state = state_of(str(repository))
    assert "hunter2" not in state["patch"]
    assert "-lr = 1\n+lr = 2\n" in state["patch"]


@pytest.mark.parametrize("linked", ["refs/heads/main", "refs/heads", "commondir"])
def test_file_of_elsewhere_is_no_commit(tmp_path: Path, linked: str) -> None:
    """A key of 40 hexadecimal digits looks like a commit, where a link in ``.git`` names its file; none is said."""
    key = "1234567890abcdef1234567890abcdef12345678"
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/main").write_text(f"{key}\n")
    root = tmp_path / "work"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "first")
    link = root / ".git" / linked
    if link.resolve().is_dir():
        shutil.rmtree(link.resolve())
    link.resolve().unlink(missing_ok=True)
    link.symlink_to(tmp_path / ("keys" if linked == "refs/heads" else "keys/main"))
    notes: list[str] = []
    assert "commit" not in git_head.read(str(root), notes)
    assert len(notes) == 1
    assert key not in notes[0]


@pytest.mark.parametrize("name", ["{outside}", "../outside", "part/../../outside", ".git/config", ".GIT/config"])
def test_index_names_no_file_outside_of_the_work_tree(repository: Path, tmp_path: Path, name: str) -> None:
    """Git itself reads whatever path a written index has: an absolute one, one above, its own settings with logins."""
    outside = tmp_path / "outside"
    outside.write_text("hunter2\n")
    git(repository, "config", "user.signature", "hunter2")
    placeholder = "x" * len(name := name.format(outside=outside))
    (repository / placeholder).write_text("1\n")
    git(repository, "add", placeholder)
    assert repository.parent == tmp_path
    index = repository / ".git/index"
    content = index.read_bytes()[:-20].replace(placeholder.encode(), name.encode())
    index.write_bytes(content + hashlib.sha1(content).digest())
    assert state_of(str(repository)) == {}
    with pytest.raises(subprocess.SubprocessError):
        changed_files(str(repository))


def test_patch_of_worktrees_and_submodules_is_theirs(repository: Path, tmp_path: Path) -> None:
    """Repositories whose ``.git`` is elsewhere are compared with their own commit."""
    git(repository, "worktree", "add", "-q", str(tmp_path / "other"))
    for root, value in ((tmp_path / "other", 5), (repository / "part", 6)):
        assert state_of(str(root)) == {"dirty": False}
        (root / "train.py").write_text(f"lr = {value}\n")
        assert f"-lr = 1\n+lr = {value}\n" in state_of(str(root))["patch"]


@pytest.mark.slow
def test_long_patch_is_read_as_far_as_it_is_kept(repository: Path) -> None:
    """A repository with more changes than are kept is dirty, with a patch of that size."""
    (repository / "train.py").write_text("lr = 2\n" * 500_000)
    state = state_of(str(repository))
    assert state["dirty"] is True
    assert len(state["patch"]) == PATCH_BYTES


def test_filter_of_the_users_own_configuration_counts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As git-lfs is set up: the patch shows what git itself would."""
    own = repository.parent / "gitconfig"
    own.write_text('[filter "mine"]\n\tclean = tr 2 7\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    (repository / ".gitattributes").write_text("*.py filter=mine\n")
    assert "+lr = 7\n" in state_of(str(repository))["patch"]
    (repository / "train.py").write_text("lr = 1\n")
    assert state_of(str(repository)) == {"dirty": False}


def test_users_filter_does_not_run_where_the_repository_names_its_programs(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git-lfs starts extensions that .git/config names: then no filter runs at all."""
    own = repository.parent / "gitconfig"
    own.write_text(f'[filter "lfs"]\n\tclean = "touch {tmp_path}/ran; cat"\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    (repository / ".gitattributes").write_text("*.py filter=lfs\n")
    with (repository / ".git/config").open("a") as file:
        file.write('[lfs "extension.evil"]\n\tclean = touch evil\n')
    assert "+lr = 2\n" in state_of(str(repository))["patch"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "reference", ["/etc/passwd", "../../../../../../etc/passwd", "refs/../../secret", "refs/heads/x\n"]
)
def test_repository_names_no_file_of_another_place(reference: str, tmp_path: Path) -> None:
    """A reference that is a path has nothing recorded as the commit: it would go to every tracker."""
    (tmp_path / "secret").write_text("hunter2")
    (tmp_path / "repo/.git/refs/heads").mkdir(parents=True)
    (tmp_path / "repo/.git/refs/heads/x").write_text("hunter2")
    (tmp_path / "repo/.git/HEAD").write_text(f"ref: {reference}")
    found = git_head.read(str(tmp_path / "repo"), [])
    assert "commit" not in found
    assert "passwd" not in str(found.get("branch"))


@pytest.mark.parametrize("name", ["HEAD", "config", "refs/heads/main", "packed-refs", "commondir"])
@pytest.mark.parametrize("kind", ["pipe", "zero", "holes"])
def test_repository_of_pipes_and_devices_holds_nobody_up(name: str, kind: str, tmp_path: Path) -> None:
    """Training that begins in an unpacked repository waits for no pipe, and reads nothing without an end."""
    (tmp_path / ".git/refs/heads").mkdir(parents=True)
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    path = tmp_path / ".git" / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(12 << 40)
    found = git_head.read(str(tmp_path), [])
    assert "commit" not in found


def test_commit_of_a_repository_is_read(repository: Path) -> None:
    """By branch, packed and not, and where no branch is checked out."""
    said = subprocess.run(
        ["git", "-C", str(repository), "rev-parse", "HEAD"], capture_output=True, check=True, text=True
    )
    commit = said.stdout.strip()
    assert git_head.read(str(repository), [])["commit"] == commit
    git(repository, "pack-refs", "--all")
    assert git_head.read(str(repository), [])["commit"] == commit
    git(repository, "checkout", "-q", "--detach")
    assert git_head.read(str(repository), []) == {"root": str(repository), "commit": commit}


LEADS = {
    "file": "gitdir: {victim}/.git\n",
    "file to a worktree": "gitdir: {victim}/.git/worktrees/other\n",
    "file to a submodule": "gitdir: {victim}/.git/modules/part\n",
}


@pytest.fixture
def victim(repository: Path, tmp_path: Path) -> Path:
    """A repository of the user's, with a worktree of its own."""
    git(repository, "worktree", "add", "-q", str(tmp_path / "other"))
    return repository


def planted(how: str, victim: Path, place: Path) -> Path:
    """A directory whose ``.git`` leads into another directory's repository."""
    (place / "inner").mkdir(parents=True)
    inner = place / "inner"
    if how in LEADS:
        (place / ".git").write_text(LEADS[how].format(victim=victim))
    elif how == "link":
        (place / ".git").symlink_to(victim / ".git")
    elif how.startswith("link of "):
        git(place, "init", "-q")
        name = how.removeprefix("link of ")
        target = place / ".git" / name
        subprocess.run(["rm", "-rf", target], check=True)
        target.symlink_to(victim / ".git" / name)
    elif how == "commondir":
        git(place, "init", "-q")
        (place / ".git/commondir").write_text(f"{victim}/.git\n")
    elif how == "file to an own one with another's commondir":
        (inner / "worktrees/x").mkdir(parents=True)
        (inner / "worktrees/x/HEAD").write_text("ref: refs/heads/master\n")
        (inner / "worktrees/x/gitdir").write_text(f"{place}/.git\n")
        (inner / "worktrees/x/commondir").write_text(f"{victim}/.git\n")
        (place / ".git").write_text("gitdir: inner/worktrees/x\n")
    elif how == "own worktree's link":
        (inner / "worktrees").mkdir()
        (inner / "worktrees/x").symlink_to(victim / ".git/worktrees/other")
        (place / ".git").write_text("gitdir: inner/worktrees/x\n")
    return place


@pytest.mark.parametrize("how", [
    *LEADS, "link", "link of HEAD", "link of config", "link of objects", "link of refs", "link of objects/info",
    "commondir", "file to an own one with another's commondir", "own worktree's link",
])  # fmt: skip
def test_repository_of_another_directory_is_not_read(how: str, victim: Path, tmp_path: Path) -> None:
    """A ``.git`` that leads to one which doesn't name this directory: nothing of git is kept, and a line says so."""
    notes: list[str] = []
    assert git_head.read(str(planted(how, victim, tmp_path / "planted")), notes) == {}
    (line,) = notes
    assert "the run has no commit, branch or patch" in line


def test_repositories_elsewhere_that_name_the_directory_count(victim: Path, tmp_path: Path) -> None:
    """Worktrees, submodules, those of worktrees, and bare repositories with worktrees beside them."""
    git(tmp_path / "other", "merge", "-q", "HEAD")
    git(tmp_path / "other", "submodule", "-q", "update", "--init")
    git(tmp_path, "clone", "-q", "--bare", str(victim), str(tmp_path / "project/.bare"))
    (tmp_path / "project/.git").write_text("gitdir: ./.bare\n")
    git(tmp_path / "project", "worktree", "add", "-q", "main")
    git(tmp_path / "other/part", "config", "extensions.worktreeConfig", "true")
    (tmp_path / "linked").symlink_to(victim)
    for root in (
        victim, victim / "part", tmp_path / "other", tmp_path / "other/part", tmp_path / "project/main",
        tmp_path / "linked", tmp_path / "project",
    ):  # fmt: skip
        notes: list[str] = []
        said = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, check=True, text=True)
        assert git_head.read(str(root), notes).get("commit") == said.stdout.strip(), (root, notes)
        assert notes == []


def test_repository_that_git_can_not_read_is_not_looked_for_above(repository: Path) -> None:
    """A directory with half a repository inside of another one: the patch would hold the outer one's files."""
    (repository / "sub/.git").mkdir(parents=True)
    (repository / "sub/.git/HEAD").write_text("ref: refs/heads/master\n")
    assert git_head.read(str(repository / "sub"), [])["root"] == str(repository / "sub")
    assert state_of(str(repository / "sub")) == {}


def test_submodule_that_leads_elsewhere_is_not_read(victim: Path, tmp_path: Path) -> None:
    """What isn't committed in another repository is none of the run's code."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--recurse-submodules", str(victim), str(clone))
    (clone / "part/.git").write_text(f"gitdir: {victim}/.git\n")
    taken = snapshot.take(str(clone), [], str(clone / "train.py"), True, SnapshotOptions())
    assert any("part" in note for note in taken.notes)
    assert not any(file.path.startswith("part/") for file in taken.files)


def test_commits_objects_may_lie_elsewhere(repository: Path, tmp_path: Path) -> None:
    """As in a clone with ``--reference``: the page says what a planted repository can have the patch show by that."""
    git(tmp_path, "clone", "-q", "--shared", str(repository), str(tmp_path / "clone"))
    (tmp_path / "clone/train.py").write_text("lr = 7\n")
    assert git_head.read(str(tmp_path / "clone"), [])["root"] == str(tmp_path / "clone")
    state = state_of(str(tmp_path / "clone"))
    assert "-lr = 1\n+lr = 7\n" in state["patch"]
