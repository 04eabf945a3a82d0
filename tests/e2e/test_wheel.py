"""The wheel works outside the checkout, with nothing installed but what it declares it needs."""

from __future__ import annotations

import email
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

from tests import ROOT
from tests.helpers import wait_for

CORE = {"msgspec", "kconfiglib", "psutil", "typer", "rich", "numpy", "markdown-it-py"}
EXTRAS = {"wandb", "trackio", "tensorboard", "mlflow", "nvidia", "amd", "torch", "inspect", "archive", "analysis",
          "storage", "lake", "nodes", "spark", "aim", "clearml", "comet", "dvclive", "kafka", "neptune", "otlp",
          "swanlab", "mcp", "rerun", "session", "sweeps", "watch", "logs", "frameworks", "loggers", "clients",
          "engines"}  # fmt: skip
EXTRAS |= {"docs", "all", "built-in", "dev", "test-frameworks"}
PROGRAMS = ("wandb keys", "wandb gpu", "wandb gpu-full", "wandb compare", "benchmark compare",
            "gpu record")  # fmt: skip
PAGES = (".html", ".js", ".css")
VENDORS = ("wandb", "trackio", "tensorboard", "mlflow", "pyarrow", "torch", "pandas", "PIL")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout without a network."""
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(out), str(ROOT)], check=True, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bin_directory(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment that holds the wheel and its core dependencies alone."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(home, with_pip=False)
    bin_directory = home / ("Scripts" if os.name == "nt" else "bin")
    pip = [sys.executable, "-m", "pip", "--python", str(bin_directory / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, cwd=home)
    (site_packages,) = home.glob("lib/python*/site-packages") if os.name != "nt" else [home / "Lib/site-packages"]
    for name in _closure(CORE):
        _copy_distribution(name, site_packages)
    return bin_directory


def _closure(names: set[str]) -> set[str]:
    """Distributions, and all that they need on this machine without extras."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            requirements = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        found.add(name)
        waiting += [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in requirements if "extra ==" not in line]
    return found


def _copy_distribution(name: str, target: Path) -> None:
    if importlib.metadata.files(name) is None:  # Debian's says nothing of its files
        known = importlib.metadata.packages_distributions().items()
        modules = [module for module, whose in known if name in whose] or [name.replace("-", "_")]
        home = Path(str(importlib.metadata.distribution(name).locate_file("")))
        for path in (*(found for module in modules for found in home.glob(f"{module}*")), *home.glob(f"{name}-*-info")):
            if path.is_dir() and not (target / path.name).exists():
                shutil.copytree(path, target / path.name)
            elif path.suffix in (".py", ".so"):
                shutil.copy(path, target)
    for file in importlib.metadata.files(name) or []:
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        (target / file).write_bytes(Path(str(file.locate())).read_bytes())


def run(*command: str | Path, code: int = 0) -> str:
    """What a command prints; it must end with the given exit code."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout + result.stderr


@pytest.mark.slow
def test_wheel_carries_kconfig_defconfigs_types_and_licence_and_nothing_else(wheel: Path) -> None:
    """What the package reads at run time is in the wheel; tests and examples aren't."""
    names = set(zipfile.ZipFile(wheel).namelist())
    defconfigs = {f"trackers/defconfigs/{path.name}" for path in (ROOT / "defconfigs").iterdir()}
    assert {"trackers/Kconfig", "trackers/py.typed", *defconfigs} <= names
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "trackers").rglob("*.py")}
    assert sources <= names
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "trackers").rglob("*.*") if path.suffix in PAGES}
    assert {"trackers/ui/page/index.html", "trackers/ui/page/main.js", "trackers/plotting/chart.css"} <= pages <= names
    assert "trackers/tested-versions.txt" in names
    assert {name.split("/")[0] for name in names} == {
        "trackers", "trackers_relay.py", "trackers_relay-0.1.0.dist-info",
    }  # fmt: skip
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_wheel_needs_only_the_core_packages(wheel: Path) -> None:
    """Whoever installs the package without extras gets no vendor's client with it."""
    metadata = email.message_from_bytes(zipfile.ZipFile(wheel).read("trackers_relay-0.1.0.dist-info/METADATA"))
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in required} == CORE
    assert "kconfiglib==14.1.0" in required
    assert set(metadata.get_all("Provides-Extra", [])) == EXTRAS
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"]
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert "experiment tracking" in metadata["Keywords"]


@pytest.mark.slow
def test_installed_package_is_the_wheels_and_no_vendor_is_there(bin_directory: Path) -> None:
    """The other tests use the wheel's files, not the checkout's, where no vendor's package is installed."""
    code = f"""
import importlib.util, trackers
print(trackers.__file__)
print([name for name in {VENDORS} if importlib.util.find_spec(name)])
"""
    where, vendors = run(bin_directory / "python", "-c", code).splitlines()
    assert Path(where).is_relative_to(bin_directory.parent)
    assert vendors == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", [["trackers"], ["trackers-relay"], ["python", "-m", "trackers"]], ids=["script", "own name", "module"]
)
def test_installed_command_line_works(bin_directory: Path, program: list[str]) -> None:
    """All ways to call the program show its help, and the defconfigs that the wheel carries: another distribution has a
    command ``trackers``, too."""
    command = [bin_directory / program[0], *program[1:]]
    text = run(*command, "--help")
    assert all(word in text for word in ("ls", "show", "sync", "doctor", "config"))
    listed = run(*command, "list-defconfigs")
    assert all(path.name in listed for path in (ROOT / "defconfigs").iterdir())


@pytest.mark.slow
def test_installed_package_records_a_run(bin_directory: Path, tmp_path: Path) -> None:
    """A script logs, and its JSON log and `trackers show` hold what it logged, with the core packages alone."""
    script = tmp_path / "script.py"
    script.write_text("""
import trackers
with trackers.init("json", project="p", name="n", config={"lr": 0.5}) as run:
    for step in range(20):
        run.log({"train_loss": 2 / (step + 1), "learning_rate": 0.5}, step=step)
    run.log({"final/best": 0.1})
""")
    run(bin_directory / "python", script)
    (log,) = (path for path in tmp_path.rglob("n_*.json"))
    content = json.loads(log.read_text())
    assert [row["loss"] for row in content["training_iterations"]] == [2 / (step + 1) for step in range(20)]
    assert content["config"] == {"lr": 0.5}
    shown = run(bin_directory / "trackers", "show", "latest")
    assert "finished" in shown
    assert "final/best" in shown


LOGGED = """
import trackers
for number in range(2):
    with trackers.init(project="p", name=f"run-{number}", config={"lr": 0.5 / (number + 1)}) as run:
        for step in range(50):
            run.log({"loss": 2 / (step + 1 + number), "val_loss": 3 / (step + 1)}, step=step)
"""


@pytest.mark.slow
def test_bare_installation_lists_compares_plots_and_shows(
    bin_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first minute, with no extra: log two runs, and look at them in each way that needs none."""
    monkeypatch.chdir(tmp_path)
    program = bin_directory / "trackers"
    run(bin_directory / "python", "-c", LOGGED)
    assert "run-1" in run(program, "ls")
    assert "val_loss" in run(program, "show", "latest")
    assert "2 metrics" in run(program, "keys", "latest")
    assert run(program, "best", "p", "--metric", "loss").splitlines()[1].startswith("run-")
    assert "val_loss" in run(program, "compare", "run-0", "run-1")
    assert "a run-0" in run(program, "plot", "run-0", "run-1")
    run(program, "plot", "run-0", "run-1", "-o", "plot.html")
    run(program, "report", "run-0", "run-1", "-o", "report.html")
    assert all("val_loss" in Path(name).read_text("utf-8") for name in ("plot.html", "report.html"))
    page = subprocess.Popen([program, "ui", "--no-open", "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert page.stdout is not None
        address = next(line.strip() for line in page.stdout if line.startswith("http://"))

        def listed() -> bool:
            with urllib.request.urlopen(f"{address}api/runs", timeout=30) as answer:
                return {"run-0", "run-1"} <= {row["name"] for row in json.load(answer)["rows"]}

        wait_for(listed)
    finally:
        page.terminate()
        page.wait()


@pytest.mark.slow
@pytest.mark.parametrize(("words", "package", "extra"), [
    (("plot", "run-0", "-o", "plot.png"), "matplotlib", "analysis"),
    (("sql", "SELECT 1"), "duckdb and pyarrow", "analysis"),
])  # fmt: skip
def test_bare_installation_names_what_more_needs(
    words: tuple[str, ...], package: str, extra: str, bin_directory: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What needs more says all of it in one line, with one command."""
    monkeypatch.chdir(tmp_path)
    run(bin_directory / "python", "-c", LOGGED)
    (line,) = run(bin_directory / "trackers", *words, code=2).splitlines()
    assert f"needs the {package} package" in line
    assert line.endswith(f"pip install 'trackers-relay[{extra}]'")


@pytest.mark.slow
def test_installation_puts_two_commands_on_the_path(bin_directory: Path) -> None:
    """What stands in ``scripts/`` of a checkout are commands of ``trackers``; nothing else of ours is on the PATH."""
    own = {path.name for path in bin_directory.iterdir() if "thon" not in path.name.lower()}  # 3.14 adds πthon
    others = {entry.name for name in _closure(CORE) for entry in importlib.metadata.distribution(name).entry_points}
    assert {name for name in own - others if not name.lower().startswith("activate")} == {"trackers", "trackers-relay"}


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_installed_programs_run(program: str, bin_directory: Path) -> None:
    """Each shows its own help, in which it is called as one calls it."""
    text = run(bin_directory / "trackers", *program.split(), "--help")
    assert text.startswith(f"usage: trackers {program} ")
    assert "Example: " in text
    assert ".py --" not in text


OTHER = {
    "trackers/__init__.py": "from trackers.core import ByteTrack\n",
    "trackers/core.py": "import supervision\nByteTrack = object\n",
    "trackers/scripts/__main__.py": "def main():\n    print('object tracking')\n",
    "trackers-2.6.1.dist-info/entry_points.txt": "[console_scripts]\ntrackers = trackers.scripts.__main__:main\n",
    "trackers-2.6.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: trackers\nVersion: 2.6.1\n",
    "trackers-2.6.1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
"""What the other distribution puts where."""
BESIDE = "the object-tracking package 'trackers' 2.6.1 is installed beside trackers-relay"
TOOK = "another package 'trackers' (object tracking) took this one's place"
REMOVED = "trackers/__init__.py was removed"


@pytest.mark.slow
@pytest.mark.parametrize(("acts", "said"), [
    (["+other", "+ours"], BESIDE), (["+ours", "+other"], TOOK), (["+ours", "+other", "-other"], REMOVED),
    (["+other", "+ours", "-other"], REMOVED), (["+ours", "+other", "-other", "-ours", "+ours"], ""),
], ids=" ".join)  # fmt: skip
def test_other_distribution_of_that_name_is_detected(
    acts: list[str], said: str, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each order of installation and removal: `trackers-relay` is ours, and works or says in one line what cures it;
    where this package can be imported, `init` and `doctor` say it, too."""
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "trackers-2.6.1-py3-none-any.whl"
    with zipfile.ZipFile(other, "w") as archive:
        for name, content in OTHER.items():
            archive.writestr(name, content)
        archive.writestr("trackers-2.6.1.dist-info/RECORD", "".join(f"{name},,\n" for name in OTHER))
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    (site_packages,) = home.glob("lib/python*/site-packages") if os.name != "nt" else [home / "Lib/site-packages"]
    for name in _closure(CORE):
        _copy_distribution(name, site_packages)
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet"]
    for act in acts:
        path, name = (wheel, "trackers-relay") if act.endswith("ours") else (other, "trackers")
        if act.startswith("+"):
            run(*pip, "install", "--no-deps", "--no-index", path)
        else:
            run(*pip, "uninstall", "--yes", name)
    program = python.parent / "trackers-relay"
    if said in (TOOK, REMOVED):
        (line,) = run(program, "ls", code=1).splitlines()
        assert said in line
        assert line.endswith("pip uninstall -y trackers trackers-relay && pip install trackers-relay")
        return
    logs = "import trackers; trackers.init('json', project='p', options={'TRACKER_RELAY': False}).finish()"
    assert (BESIDE in run(python, "-c", logs)) is bool(said)
    doctor = run(program, "doctor", code=1 if said else 0)
    assert (BESIDE in doctor) is bool(said)


@pytest.mark.slow
def test_tracker_without_its_package_says_what_to_install(bin_directory: Path, tmp_path: Path) -> None:
    """Asking for a tracker whose package is missing ends in one line that names the extra."""
    code = "import trackers; trackers.init('mlflow')"
    text = run(bin_directory / "python", "-c", code, code=1)
    assert text.strip().splitlines()[-1].endswith("pip install 'trackers-relay[mlflow]', or trackers setup mlflow")
