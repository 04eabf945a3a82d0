"""Environments that are made for trackers, and which Python delivers."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import trackers
from scripts.tested_versions import needed, text
from tests import ROOT
from tests.conftest import lacks_tested_versions
from tests.helpers import wait_for
from trackers.backends import registry
from trackers.backends.wandb.precheck import VERSIONS
from trackers.cli.app import app
from trackers.errors import UsageError
from trackers.support import client_versions, environments

WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data directory of the test's own, and no installer's settings."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(environments, "_own_pip", lambda: [sys.executable, "-m", "pip"])
    client_versions.installed.cache_clear()
    yield tmp_path / "data/trackers/environments"
    client_versions.installed.cache_clear()


def wheel(folder: Path, name: str, version: str, source: str) -> None:
    """A wheel, written by hand: one package of one file."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    content = {
        f"{name}/__init__.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": WHEEL,
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},\n"
        for path, text in content.items()
    )
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in (*content.items(), (f"{info}/RECORD", f"{record}{info}/RECORD,,\n")):
            archive.writestr(path, text)


def repacked(names: set[str], folder: Path) -> None:
    """Wheels of what is installed here."""
    folder.mkdir(exist_ok=True)
    for name in names:
        distribution = importlib.metadata.distribution(name)
        if distribution.read_text("RECORD") is None or distribution.read_text("direct_url.json"):
            continue
        *_, tag = re.findall(r"^Tag: (.*)$", distribution.read_text("WHEEL") or "", re.MULTILINE)
        stem = f"{distribution.metadata['Name'].replace('-', '_')}-{distribution.version}"
        with zipfile.ZipFile(folder / f"{stem}-{tag}.whl", "w") as archive:
            for file in distribution.files or []:
                path = Path(str(file.locate()))
                if ".." not in file.parts and file.suffix != ".pyc" and file.name != "INSTALLER" and path.exists():
                    archive.write(path, str(file))


def said(*words: str, code: int = 0) -> str:
    """What the program prints."""
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, done.output + repr(done.exception)
    return done.output


def pretend(place: Path, tracker: str, python: str = sys.executable, **packages: str) -> str:
    """Have a tracker's environment be there, with this interpreter; returns its path."""
    own = place / f"{tracker}-made/bin/python"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(f'#!/bin/sh\necho "$0 $PYTHONPATH" >> {place}/used\nexec {python} "$@"\n')
    own.chmod(0o755)
    made = environments.Made(tracker, str(own.parent.parent), str(own), "3.11.7", [], packages, 1.0, "")
    content = {name: value for name, value in made._asdict().items() if name != "tracker"}
    (place / f"{tracker}.json").write_text(json.dumps(content))
    return str(own)


def without_client(monkeypatch: pytest.MonkeyPatch, version: str = "") -> None:
    """Have wandb not be installed here, or in this version."""
    if version:
        monkeypatch.setattr(client_versions, "installed", lambda versions: version)
    else:
        found = registry._installed
        monkeypatch.setattr(registry, "_installed", lambda module: module != "wandb" and found(module))


def test_one_rule_says_which_python_delivers(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRACKER_PYTHON; else this Python, if its client is in the range; else a made environment; else an error with the
    command. `doctor` and `show-config` show it."""
    options = {"WANDB_MODE": "offline"}
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKER", "wandb,json")

    def shown(text: str) -> None:
        assert text in said("show-config")
        assert f"✓ tracker wandb            {text}" in CliRunner().invoke(app, ["doctor"]).output

    assert registry.other_pythons(["wandb", "json"], options) == {}
    assert f"wandb: delivered by {sys.executable} (this environment)" in said("show-config")
    made = pretend(place, "wandb", wandb="0.31.0")
    assert registry.other_pythons(["wandb", "json"], options) == {}, "this one's client is in the range"
    for version in ("", "0.18.3", "0.25.1"):
        with monkeypatch.context() as patch:
            without_client(patch, version)
            assert registry.other_pythons(["wandb", "json"], options) == {"wandb": made}
            assert registry.other_pythons(["wandb"], {**options, "TRACKER_INLINE": True}) == {}
            shown(f"delivered by {made} (trackers setup: wandb 0.31.0)")
            patch.setenv("TRACKER_PYTHON", f"wandb={sys.executable}")
            named = {"TRACKER_PYTHON": f"wandb={sys.executable}"}
            assert registry.other_pythons(["wandb"], named) == {"wandb": sys.executable}
            shown(f"delivered by {sys.executable} (TRACKER_PYTHON)")
    without_client(monkeypatch)
    shutil.rmtree(place)
    assert registry.other_pythons(["wandb"], options) == {}
    with pytest.raises(UsageError, match=r"pip install 'trackers-relay\[wandb\]', or trackers setup wandb$"):
        trackers.init("wandb", project="p")
    assert "wandb: no Python here can deliver to it: trackers setup wandb" in said("show-config")


def test_environment_without_its_python_or_of_somebody_else_is_none(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python that was removed, a damaged file, and a file that another user owns name no interpreter."""
    python = pretend(place, "wandb")
    assert environments.python_of("wandb") == python
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(place).st_uid + 1)
    assert (environments.python_of("wandb") == "") is (os.stat(place).st_uid != 0)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_DATA_HOME", str(place.parent.parent))
    for content in ("", "[]", '{"folder": 1}', '{"of": "a later release"}'):
        (place / "wandb.json").write_text(content)
        assert environments.python_of("wandb") == ""
    Path(python).unlink()
    assert environments.all_made() == []


@pytest.mark.processes
@pytest.mark.parametrize("tracker", ["tensorboard"])
def test_delivery_runs_in_the_made_environment(tracker: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an option, and without what PYTHONPATH has of training's packages."""
    python = pretend(place, tracker)
    code = f"""
from trackers.backends import registry
import trackers.support.client_versions
found = registry._installed
registry._installed = lambda module: module != {tracker!r} and found(module)
import trackers
with trackers.init("{tracker},json", project="p", id="r") as run:
    run.log({{"a": 1.0}})
"""
    script = Path("train.py")
    script.write_text(code)
    # The relay asks the same question: it has to lack the client, too.
    lacking = Path("lacking")
    lacking.mkdir()
    (lacking / "sitecustomize.py").write_text(
        "import os, sys, importlib.machinery as m\n"
        "class Lacks:\n"
        f"    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {tracker!r}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Lacks())\n"
    )
    env = {**os.environ, "PYTHONPATH": f"{lacking.absolute()}{os.pathsep}{ROOT}", "TRACKER_AGENT": "n"}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "not delivered" not in done.stderr
    assert (place / "used").read_text().split() == [python], "once, with an empty PYTHONPATH"
    assert list(Path().rglob("events.out.tfevents*"))


def test_made_environment_sees_nothing_of_training() -> None:
    """Neither training's packages nor the user's own."""
    env = environments.without_training({"PYTHONPATH": "/cluster/numpy", "PYTHONHOME": "/x", "WANDB_API_KEY": "k"})
    assert env == {"WANDB_API_KEY": "k", "PYTHONNOUSERSITE": "1"}
    assert not environments.is_made(sys.executable)
    assert not environments.is_made("")


@pytest.mark.parametrize("tracker", ["wandb", "trackio", "tensorboard", "mlflow"])
def test_requirements_are_what_the_project_says(tracker: str) -> None:
    """The base dependencies and the tracker's extra, without markers of extras; exact versions are the tested ones."""
    wanted = environments.requirements(tracker)
    names = {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in wanted}
    assert {"msgspec", "psutil", "kconfiglib", tracker, "pillow"} <= names
    assert not any("extra" in line for line in wanted)
    tested = registry.precheck(tracker).versions
    assert tested is not None
    assert f"{tracker}=={tested.tested[-1]}" in environments.TESTED.read_text().splitlines()


def test_extras_of_extras_and_markers_are_followed() -> None:
    """As installers write them."""
    lines = [
        'msgspec>=0.21', 'aim<4,>=3.29; (python_version < "3.13") and extra == "aim"', "obstore; extra == 'storage'",
        "trackers-relay[storage]; extra == 'lake'", 'pyarrow; extra == "lake"', "tomli; python_version < '3.11'",
    ]  # fmt: skip
    assert environments._of_extras(lines, set()) == ["msgspec>=0.21", "tomli; python_version < '3.11'"]
    assert environments._of_extras(lines, {"aim"}) == ['aim<4,>=3.29; python_version < "3.13"']
    assert environments._of_extras(lines, {"lake"}) == ["obstore", "pyarrow"]


def test_versions_are_those_that_the_tests_run_with() -> None:
    """The file that `trackers setup` installs from is made of the constraints of Python 3.11."""
    assert f"wandb=={VERSIONS.tested[-1]}" in environments.TESTED.read_text().splitlines()
    if sys.version_info[:2] == (3, 11) and not lacks_tested_versions():
        assert environments.TESTED.read_text() == text(), "python scripts/tested_versions.py"


@pytest.mark.parametrize(("words", "message"), [
    (["setup", "json"], "tracker 'json' needs no package, and so no environment"),
    (["setup", "wandbb"], "unknown tracker 'wandbb': did you mean 'wandb'?"),
    (["setup", "wandb", "--from", "nowhere"], "--from nowhere: no such folder"),
    (["setup", "wandb", "--from", ".", "--download", "."], "give one of both"),
    (["setup", "wandb", "--python", "3.99"], "there is no python3.99 on PATH"),
    (["setup", "wandb", "--python", "/no/such"], "there is no Python '/no/such'"),
    (["setup", "rm", "wandb"], "no environment was made for 'wandb': there is none"),
    (["setup", "upgrade", "wandb"], "no environment was made for 'wandb'"),
])  # fmt: skip
def test_setup_refuses_in_one_line(words: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong, and what is known."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    done = CliRunner().invoke(app, words)
    assert message in str(done.exception), done.output


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has wandb's environment need one small package alone, of a given version."""

    def choose(version: str) -> None:
        monkeypatch.setattr(environments, "requirements", lambda *_: [f"wandb=={version}", "msgspec", "psutil"])

    return choose


@pytest.mark.slow
def test_environment_is_made_listed_upgraded_and_removed(
    place: Path, tmp_path: Path, small: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By real pip from a folder of wheels; an environment that a process uses stays until it is free."""
    wheels, tested = tmp_path / "wheels", tmp_path / "tested.txt"
    for name, version in (("wandb", "0.30.0"), ("wandb", "0.31.0"), ("msgspec", "0.22.0"), ("psutil", "7.2.2")):
        wheel(wheels, name, version, f"__version__ = {version!r}\n")
    monkeypatch.setattr(environments, "TESTED", tested)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "wrong"))
    tested.write_text("wandb==0.30.0\n")
    small("0.30.0")
    assert "no environments were made" in said("setup", "list")
    assert "wandb: wandb 0.30.0, Python 3." in said("setup", "wandb", "--from", str(wheels))
    old = environments.find("wandb")
    assert old is not None
    asked = subprocess.run([old.python, "-c", "import wandb; print(wandb.__version__)"], capture_output=True, text=True)
    assert asked.stdout.strip() == "0.30.0"
    assert not (tmp_path / "wrong").exists()
    assert "is up to date" in said("setup", "upgrade")
    tested.write_text("wandb==0.31.0\n")
    small("0.31.0")
    assert "outdated: trackers setup upgrade wandb" in said("setup", "list")
    delivery = subprocess.Popen([old.python, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        wait_for(old.in_use)
        with pytest.raises(UsageError, match="is being used by a delivery"):
            environments.remove(old)
        assert "wandb 0.31.0" in said("setup", "upgrade", "--from", str(wheels))
        assert Path(old.python).exists(), "a delivery uses it"
    finally:
        delivery.communicate(b"\n", timeout=60)
    new = environments.find("wandb")
    assert new is not None
    assert new.folder != old.folder
    (listed,) = json.loads(said("setup", "list", "--json"))
    assert (listed["packages"]["wandb"], listed["current"]) == ("0.31.0", True)
    assert "is removed" in said("setup", "rm", "wandb")
    assert environments.find("wandb") is None
    assert not Path(new.folder).exists()


@pytest.mark.slow
def test_failed_installation_leaves_what_was_there(place: Path, tmp_path: Path, small: Callable[..., None]) -> None:
    """A folder without the wheel: one line that says so; the environment before goes on, and nothing is left over."""
    python = pretend(place, "wandb")
    (tmp_path / "empty").mkdir()
    small("0.31.0")
    with pytest.raises(UsageError, match=r"can't be installed: .*wandb==0\.31\.0.*--python names another") as caught:
        environments.make("wandb", environments.requirements("wandb"), ["wandb"], wheels=str(tmp_path / "empty"))
    assert "\n" not in str(caught.value)
    assert environments.python_of("wandb") == python
    assert [path.name for path in place.iterdir() if path.is_dir()] == ["wandb-made"]


def test_uv_that_cannot_install_is_followed_by_pip(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv doesn't know the index that pip's settings name: what it said is told, and pip installs. From a folder of
    wheels, what uv says is what is wrong."""
    told: list[str] = []
    commands: list[str] = []

    def run(command: list[str], what: str, hint: str = "") -> str:
        commands.append(" ".join(command))
        if command[:3] == ["/opt/uv", "pip", "install"]:
            raise UsageError(f"{what}: no such index")
        return ""

    monkeypatch.setattr(shutil, "which", lambda name: "/opt/uv" if name == "uv" else None)
    monkeypatch.setattr(environments, "_run", run)
    monkeypatch.setattr(environments, "_ask", lambda *_: {"version": "3.11.7", "packages": {}})
    environments.make("wandb", ["wandb"], ["wandb"], say=told.append)
    assert [text.split(" into ")[0] for text in told] == [
        "wandb: installing with uv",
        "tracker 'wandb': what it needs can't be installed: no such index; "
        "uv doesn't know pip's settings, so pip tries",
        "wandb: installing with pip",
    ]
    assert [" pip " in command and " install " in command for command in commands] == [False, True, False, True]
    with pytest.raises(UsageError, match="no such index"):
        environments.make("wandb", ["wandb"], ["wandb"], wheels=str(place))
    assert not commands[-1].startswith(sys.executable)


@pytest.mark.slow
@pytest.mark.timeout(600)  # pip unpacks 200 MB
def test_training_needs_this_package_alone(place: Path, tmp_path: Path) -> None:
    """No internet and a folder of wheels: an environment with this package and wandb 0.18 delivers by the tested wandb,
    resumes, and its values are in W&B's file."""
    wanted = environments.requirements("wandb")
    names = needed(re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in wanted)
    if lacks_tested_versions():
        pytest.skip("needs the tested versions: the wheels are made of what is installed")
    wheels = tmp_path / "wheels"
    repacked(names, wheels)
    made = environments.make("wandb", wanted, ["wandb"], wheels=str(wheels))
    assert made.packages["wandb"] == VERSIONS.tested[-1]
    training = tmp_path / "training"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", training], check=True)
    wheel(tmp_path / "old", "wandb", "0.18.3", "raise SystemExit('the old client was imported')\n")
    pip = [sys.executable, "-m", "pip", "--python", training / "bin/python", "install", "--quiet", "--no-index",
           "--find-links", wheels, "--find-links", tmp_path / "old"]  # fmt: skip
    base = [name.partition(";")[0] for name in environments.requirements("json")]
    subprocess.run([*pip, *base, "wandb==0.18.3"], check=True, env=environments.without_training(os.environ))
    Path("train.py").write_text(
        "import trackers\nwith trackers.init('wandb,json', project='p', id='r', resume='allow') as run:\n"
        "    [run.log({'loss': 1 / (step + 1)}) for step in range(20)]\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "WANDB_MODE": "offline"}
    for words in (["train.py"], ["train.py"], ["-m", "trackers", "show", "r"]):
        done = subprocess.run([training / "bin/python", *words], env=env, capture_output=True, text=True, timeout=170)
        assert done.returncode == 0, done.stderr
    assert done.stdout.count("delivered, ") == 2, done.stdout
    content = b"".join(path.read_bytes() for path in Path().rglob("run-*.wandb"))
    assert content.count(b"loss") >= 40
    assert VERSIONS.tested[-1].encode() in content


@pytest.mark.processes
def test_current_directory_brings_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A venv.py, pip.py or json.py that merely lies there isn't what makes or looks at an environment."""
    for name in ("venv", "pip", "json", "ensurepip", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    environments._run([sys.executable, "-m", "venv", "--help"], "venv")
    environments._run([sys.executable, "-m", "pip", "--version"], "pip")
    environments._run([sys.executable, "-c", "import json"], "json")
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_folder_of_wheels_runs_and_writes_nothing_as_it_is_installed(place: Path, tmp_path: Path) -> None:
    """A source of the wanted name isn't built; a wheel with a path that leads out of the environment is refused."""
    wheels, ran = tmp_path / "wheels", tmp_path / "ran"
    wheels.mkdir()
    content = {
        "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'evil'\nbackend-path = ['.']\n"
        "[project]\nname = 'msgspec'\nversion = '99'\n",
        "PKG-INFO": "Metadata-Version: 2.1\nName: msgspec\nVersion: 99\n",
        "evil.py": f"def build_wheel(*_): open({str(ran)!r}, 'w')\nget_requires_for_build_wheel = build_wheel\n",
    }
    with tarfile.open(wheels / "msgspec-99.tar.gz", "w:gz") as source:
        for name, text_ in content.items():
            head = tarfile.TarInfo(f"msgspec-99/{name}")
            head.size = len(text_)
            source.addfile(head, io.BytesIO(text_.encode()))
    with pytest.raises(UsageError, match="can't be installed"):
        environments.make("json", ["msgspec==99"], [], wheels=str(wheels))
    assert not ran.exists()
    wheel(wheels, "outside", "1", "")
    with zipfile.ZipFile(wheels / "outside-1-py3-none-any.whl", "a") as archive:
        archive.writestr("../" * 6 + "ran", "")
    with pytest.raises(UsageError, match="can't be installed"):
        environments.make("json", ["outside==1"], [], wheels=str(wheels))
    assert not list(tmp_path.parent.rglob("ran"))


@pytest.mark.parametrize(
    "line", ["Requires-Dist: dep @ {}", "requires-dist: dep@{} ; os_name > 'a'", "Requires-Dist: dep\n  @ {}"]
)
def test_wheel_that_requires_an_address_is_refused(line: str, tmp_path: Path) -> None:
    """pip builds a source that a wheel names by its address, and fetches it, without any index: nothing is made."""
    ran, source = tmp_path / "ran", tmp_path / "dep-1"
    source.mkdir()
    (source / "setup.py").write_text(f"open({str(ran)!r}, 'w')\n")
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "wheels/outside-1-py3-none-any.whl", "w") as archive:
        told = f"Metadata-Version: 2.1\nName: outside\nVersion: 1\n{line.format(source.as_uri())}\n"
        archive.writestr("outside-1.dist-info/METADATA", told)
    with pytest.raises(UsageError, match="names an address"):
        environments.make("json", ["outside==1"], [], wheels=str(tmp_path / "wheels"))
    assert not ran.exists()


@pytest.mark.parametrize("name", ["links.html", "A.HTM", "damaged-1-py3-none-any.whl"])
def test_folder_of_wheels_with_what_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    """A page, whose links pip follows, also to the network, and what is no wheel."""
    (tmp_path / name).write_text(
        '<!DOCTYPE html><html><body><a href="http://127.0.0.1:9/dep-1-py3-none-any.whl">dep</a>'
    )
    with pytest.raises(UsageError, match="is no wheel"):
        environments.make("json", ["dep==1"], [], wheels=str(tmp_path))
    with zipfile.ZipFile(tmp_path / name, "w") as archive:  # both a page and an archive
        archive.writestr("x", "")
    if not name.endswith(".whl"):
        with pytest.raises(UsageError, match="names an address"):
            environments.make("json", ["dep==1"], [], wheels=str(tmp_path))


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="needs root: links of another account")
def test_wheels_are_put_through_no_link_of_another_account(tmp_path: Path) -> None:
    """`--download` writes where -o would."""
    (tmp_path / "own").mkdir()
    link = tmp_path / "wheels"
    link.symlink_to(tmp_path / "own")
    os.lchown(link, 65534, 65534)
    for place in (link, link / "deeper"):
        with pytest.raises(UsageError, match="another account's link"):
            environments.download(["nothing"], str(place))
    assert list((tmp_path / "own").iterdir()) == []
