"""Environments that ``trackers setup`` has made for trackers: where they lie, what is in them, how one is made.

Each lies in a folder of its own below ``$XDG_DATA_HOME/trackers/environments``, and ``NAME.json`` beside it says which
folder is tracker NAME's. That file is written last: a folder that none names is unfinished, or was replaced, and goes
when the next one is made. This package isn't installed there: helpers load it from where training has it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trackers.errors import UsageError
from trackers.support import atomic_write, plugins, user_directories
from trackers.support.interruption import pass_on

OWN = "trackers-relay"
TESTED = Path(__file__).resolve().parent.parent / "tested-versions.txt"
"""Constraints for pip: the versions that the tests ran with of the trackers' clients and all that they need."""
PIP_FOR_OTHERS = (22, 3)
"""The first pip that installs into another interpreter's environment."""
_TRAINING = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "__PYVENV_LAUNCHER__")
"""Variables with which a Python would find training's packages."""
_ELSEWHERE = ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT", "PIP_REQUIREMENT", "PIP_CONSTRAINT", "PIP_PYTHON",
              "UV_PROJECT_ENVIRONMENT", "UV_TARGET", "UV_CONSTRAINT", "VIRTUAL_ENV")  # fmt: skip
"""Variables with which an installer would install something else, or in another place."""
_LAST_LINES = 3
_BY_ADDRESS = re.compile(rb"(?im)^requires-dist:[^;\n]*(?:\n[ \t][^;\n]*)*@")


class Made(NamedTuple):
    """An environment that was made.

    tracker: whose. folder: where. python: its interpreter. version: of that. requirements: what was asked for.
    packages: what is installed, names and versions. made: when, in Unix seconds. base: the Python that it was made
    with.
    """

    tracker: str
    folder: str
    python: str
    version: str
    requirements: list[str]
    packages: dict[str, str]
    made: float
    base: str

    @property
    def is_whole(self) -> bool:
        """Whether its interpreter is there: the Python that it was made with may have been removed."""
        return os.access(self.python, os.X_OK)

    def size_bytes(self) -> int:
        """What its files hold; those that an installer shares with its cache count, too."""
        return sum(
            os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(self.folder) for name in names
        )

    def in_use(self) -> bool:
        """Whether one of this user's processes was started with its interpreter."""
        import psutil

        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError, IndexError):
                if process.cmdline()[0].startswith(self.folder + os.sep):
                    return True
        return False


def root() -> Path:
    """The directory of all environments: ``$XDG_DATA_HOME/trackers/environments``, by default in ~/.local/share."""
    return user_directories.of("DATA") / "environments"


def find(tracker: str) -> Made | None:
    """The environment that was made for a tracker; None if there is none.

    One that belongs to somebody else, but root, counts as none: its interpreter would run with this user's rights.
    """
    path = root() / f"{tracker}.json"
    try:
        with open(path, encoding="utf-8") as file:
            owner = os.fstat(file.fileno()).st_uid
            if hasattr(os, "geteuid") and owner not in (os.geteuid(), 0):
                return None
            made = Made(**{"tracker": tracker, **json.load(file)})
    except (OSError, ValueError, TypeError):
        return None
    return made if made.is_whole else None


def python_of(tracker: str) -> str:
    """The interpreter of a tracker's environment; "" if there is none."""
    made = find(tracker)
    return made.python if made else ""


def all_made() -> list[Made]:
    """All environments, by the trackers' names."""
    names = sorted(path.stem for path in root().glob("*.json"))
    return [made for made in map(find, names) if made is not None]


def is_made(python: str) -> bool:
    """Whether an interpreter is that of an environment which was made here."""
    return bool(python) and Path(python).is_relative_to(root())


def without_training(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which an interpreter finds its own packages alone."""
    return {name: value for name, value in environment.items() if name not in _TRAINING} | {"PYTHONNOUSERSITE": "1"}


def requirements(tracker: str, distribution: str = "") -> list[str]:
    """What has to be installed for deliveries to a tracker: what this package needs, and the tracker's extra.

    Args:
        distribution: the one that brings the tracker, where it is a plug-in's; it is installed with what an
            extra of ours names beside it, where it is one of ours.

    Raises:
        UsageError: this package isn't installed, so that nothing says what it needs.
    """
    from importlib import metadata

    try:
        own = metadata.requires(OWN) or []
    except metadata.PackageNotFoundError:
        raise UsageError(f"{OWN} isn't installed, so that what it needs isn't known: pip install {OWN}") from None
    extra = _of_extras(own, {tracker}) if not distribution or tracker in plugins.OURS else []
    if distribution:
        extra = [line for line in extra if not plugins.same(line, distribution)]
        extra.append(f"{distribution}=={metadata.version(distribution)}")
    return [*_of_extras(own, set()), *extra]


def _of_extras(lines: Sequence[str], extras: set[str]) -> list[str]:
    """The requirements that belong to these extras; of no extra, if the set is empty."""
    found: list[str] = []
    for line in lines:
        wanted, _, marker = (part.strip() for part in line.partition(";"))
        of = set(re.findall(r"""extra\s*==\s*['"]([\w.-]+)['"]""", marker))
        if not (of & extras if extras else not of):
            continue
        marker = re.sub(r"""(?:\band\s{1,9})?\bextra\s{0,9}==\s{0,9}['"][\w.-]+['"]""", "", marker).strip(" ()")
        own = re.fullmatch(rf"{OWN}\[([\w.,\s-]+)\]", wanted)
        if own:
            found += _of_extras(lines, {name.strip() for name in own[1].split(",")})
        else:
            found.append(f"{wanted}; {marker}" if marker else wanted)
    return list(dict.fromkeys(found))


def make(
    tracker: str,
    wanted: Sequence[str],
    imports: Sequence[str],
    *,
    python: str = "",
    wheels: str = "",
    say: Callable[[str], None] = lambda text: None,
) -> Made:
    """Make an environment for a tracker; it replaces the one before, which goes unless a delivery uses it.

    Args:
        wanted: its requirements (:func:`requirements`).
        imports: modules that must be found in it.
        python: a version ("3.12") or an interpreter; default: this one.
        wheels: a folder to install from, without any package index: of what else is there, a source runs no program.
        say: is told what is being done.

    Raises:
        UsageError: there is no such Python, or what is wanted can't be installed.
    """
    base = _base_python(python)
    _check(wheels)
    with _alone() as place:
        _tidy(place)
        folder = tempfile.mkdtemp(prefix=f"{tracker}-", dir=place)
        try:
            told = _fill(tracker, folder, wanted, imports, base, wheels, say)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        made = Made(
            tracker, folder, _python_in(folder), told["version"], list(wanted), told["packages"], time.time(), python
        )
        content = {name: value for name, value in made._asdict().items() if name != "tracker"}
        partial = f"{folder}.json.part"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(content, file)
        os.replace(partial, place / f"{tracker}.json")
        _tidy(place)
    return made


def _fill(
    tracker: str,
    folder: str,
    wanted: Sequence[str],
    imports: Sequence[str],
    base: str,
    wheels: str,
    say: Callable[[str], None],
) -> dict[str, Any]:
    source = ["--no-index", "--only-binary", ":all:", "--find-links", os.path.abspath(wheels)] if wheels else []
    uv = shutil.which("uv")
    for installer in filter(None, (uv, "pip")):
        try:
            with _files(wanted) as (listed, constraints):
                words = _create(folder, base, uv if installer == uv else None)
                say(f"{tracker}: installing with {os.path.basename(installer)} into {folder}")
                _run(
                    [*words, "--quiet", "--requirement", listed, "--constraint", constraints, *source],
                    f"tracker {tracker!r}: what it needs can't be installed",
                    hint=f"tried with {base}: --python names another; --from, a folder with wheels",
                )
            break
        except UsageError as error:
            if installer == "pip" or wheels or not os.path.isabs(base):
                raise
            say(f"{error}; uv doesn't know pip's settings, so pip tries")  # an index of one's own, its certificate
            shutil.rmtree(folder, ignore_errors=True)
    return _ask(_python_in(folder), imports)


def has_tested_versions(made: Made) -> bool:
    """Whether an environment has the versions of :data:`TESTED`, as far as its Python takes them."""
    tested = {}
    for line in TESTED.read_text().splitlines():
        pin, _, marker = line.partition(";")
        name, _, version = pin.strip().partition("==")
        least = re.search(r"python_version >= '3\.(\d+)'", marker)
        if version and (least is None or int(made.version.split(".")[1]) >= int(least[1])):
            tested[name] = version
    have = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in made.packages.items()}
    return all(tested.get(name, version) == version for name, version in have.items())


def remove(made: Made) -> None:
    """Remove an environment.

    Raises:
        UsageError: a delivery uses it.
    """
    with _alone() as place:
        if made.in_use():
            raise UsageError(f"the environment of tracker {made.tracker!r} is being used by a delivery: try it later")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place / f"{made.tracker}.json")
        shutil.rmtree(made.folder, ignore_errors=True)


def _check(wheels: str) -> None:
    """See that nothing in a folder of wheels names an address, which pip would fetch, and build if it is a source.

    Raises:
        UsageError: a wheel requires something by its address or can't be read, or there is a page, which pip follows.
    """
    for path in (one for sign in ("*.[hH][tT][mM]*", "*.whl") for one in Path(wheels).glob(sign) if wheels):
        try:
            with zipfile.ZipFile(path) as archive:
                told = [archive.read(one) for one in archive.infolist() if one.filename.endswith("/METADATA")]
        except Exception as error:  # whatever a damaged archive raises
            pass_on(error)
            raise UsageError(f"{path} is no wheel: {error}") from None
        if path.suffix != ".whl" or any(map(_BY_ADDRESS.search, told)):
            raise UsageError(f"{path} names an address, which isn't in the folder: leave that file out")


def download(wanted: Sequence[str], folder: str, *, python: str = "") -> None:
    """Put the wheels of requirements, and of all that they need, into a folder, for ``make(…, wheels=folder)``.

    Args:
        python: for another Python: a version ("3.12") or an interpreter.

    Raises:
        UsageError: something can't be had.
    """
    try:
        atomic_write.real(Path(folder)).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} can't be written: {error.strerror or error}") from None
    with _files(wanted) as (listed, constraints), tempfile.TemporaryDirectory() as helper:
        pip = _own_pip()
        if not pip:
            home = os.path.join(helper, "pip")
            _run(_venv(sys.executable, home), "no pip can be had to download with")
            pip = [_python_in(home), "-m", "pip"]
        version = ["--python-version", python] if re.fullmatch(r"3\.\d+", python) else []
        if python and not version:
            pip = [*pip, "--python", _base_python(python)]
        _run(
            [*pip, "download", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", *version,
             "--dest", os.path.abspath(folder), "--requirement", listed, "--constraint", constraints],
            "what is needed can't be downloaded",
            hint="--python names another Python",
        )  # fmt: skip


@contextlib.contextmanager
def _files(wanted: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The requirements, and the constraints, as files."""
    with tempfile.TemporaryDirectory() as folder:
        listed = os.path.join(folder, "requirements.txt")
        Path(listed).write_text("".join(f"{line}\n" for line in wanted))
        yield listed, str(TESTED)


def _base_python(python: str) -> str:
    """The interpreter that is meant: a path as it is, a version found on PATH, or by uv."""
    if not python:
        return sys.executable
    if re.fullmatch(r"3(\.\d+){0,2}t?", python):
        found = shutil.which(f"python{python}")
        if found or shutil.which("uv"):
            return found or python
        raise UsageError(f"there is no python{python} on PATH: give --python the path of one, or install uv")
    path = shutil.which(os.path.expanduser(python))
    if path is None:
        raise UsageError(f"there is no Python {python!r}: give --python a version, as in 3.12, or the path of one")
    return os.path.abspath(path)


def _own_pip() -> list[str]:
    """This environment's pip, as a command that takes ``--python``; empty if it has none that does."""
    from importlib import metadata

    try:
        version = tuple(int(part) for part in metadata.version("pip").split(".")[:2])
    except (metadata.PackageNotFoundError, ValueError):
        return []
    return [sys.executable, "-m", "pip"] if version >= PIP_FOR_OTHERS else []


def _venv(base: str, folder: str, *options: str) -> list[str]:
    return [base, "-m", "venv", *options, folder]


def _python_in(folder: str) -> str:
    return os.path.join(folder, "Scripts" if os.name == "nt" else "bin", "python")


def _create(folder: str, base: str, uv: str | None) -> list[str]:
    """Make an empty environment, by uv where it is given; the command that installs into it."""
    own = _python_in(folder)
    if uv:
        _run([uv, "venv", "--quiet", "--allow-existing", "--python", base, folder], "uv can't make an environment")
        return [uv, "pip", "install", "--python", own]
    pip = _own_pip()
    hint = "Debian and Ubuntu have it as python3-venv; or install uv"
    _run(
        _venv(base, folder, *(["--without-pip"] if pip else [])), f"{base} -m venv can't make an environment", hint=hint
    )
    chosen = [*pip, "--python", own] if pip else [own, "-m", "pip"]
    return [*chosen, "install", "--disable-pip-version-check"]


def _ask(python: str, imports: Sequence[str]) -> dict[str, Any]:
    """See that modules are there, and what is installed."""
    code = (
        "import importlib.metadata as m, importlib.util as u, json, platform\n"
        f"lacks = [name for name in {[*imports, 'msgspec', 'psutil']!r} if u.find_spec(name) is None]\n"
        "print(json.dumps({'version': platform.python_version(), 'lacks': lacks,\n"
        "    'packages': {d.metadata['Name']: d.version for d in m.distributions()}}))"
    )
    told: dict[str, Any] = json.loads(_run([python, "-c", code], "the new environment's Python doesn't start"))
    if told["lacks"]:
        raise UsageError(f"the new environment lacks {', '.join(told['lacks'])}: look at pip's configuration")
    return told


def _run(command: Sequence[str], what: str, hint: str = "") -> str:
    """What a command prints. It works in ``/``: Python and uv take modules and settings from the current directory."""
    environment = {name: value for name, value in without_training(os.environ).items() if name not in _ELSEWHERE}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", check=False,
            env=environment, cwd=os.path.abspath(os.sep),
        )  # fmt: skip
    except OSError as error:
        raise UsageError(f"{what}: {error}") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        why = "; ".join(lines[-_LAST_LINES:]) or f"exit code {done.returncode}"
        raise UsageError(f"{what}: {why}{f' ({hint})' if hint else ''}")
    return done.stdout


def _tidy(place: Path) -> None:
    """Remove folders that no file names, unless a delivery uses one. The caller has the lock."""
    named = {made.folder for made in all_made()}
    for folder in place.iterdir():
        left = Made(folder.name, str(folder), "", "", [], {}, 0.0, "")
        if folder.is_dir() and left.folder not in named and not left.in_use():
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _alone() -> Iterator[Path]:
    """The directory of all environments, in which nobody else makes or removes one meanwhile."""
    place = root()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(place / ".lock", "w") as lock:
        with contextlib.suppress(ImportError, OSError):  # Windows, and a network filesystem without locks
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield place
