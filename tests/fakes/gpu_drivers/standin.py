"""Compiles the stand-ins for drivers, and starts processes whose real vendor libraries load them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests import ROOT

HERE = Path(__file__).parent
FLAGS = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror")


def compiler() -> str | None:
    """A C compiler's path, or None."""
    return shutil.which("gcc") or shutil.which("cc")


def build(folder: Path) -> None:
    """Make ``new/``, ``old/`` (an older NVIDIA driver) and ``amd/`` below a folder, each with a driver's library."""
    cc = compiler()
    assert cc is not None
    for name, flags in (("new", []), ("old", ["-DOLD_DRIVER"])):
        (folder / name).mkdir(parents=True, exist_ok=True)
        _compile(cc, [HERE / "nvml.c"], folder / name / "libnvidia-ml.so.1", flags)
    (folder / "amd").mkdir(exist_ok=True)
    rest = folder / "amd/rest.c"
    rest.write_text(_other_functions())
    _compile(cc, [HERE / "amdsmi.c", rest], folder / "amd/libamd_smi.so", ["-Wno-unused-function"])


def _compile(cc: str, sources: list[Path], library: Path, flags: list[str]) -> None:
    command = [cc, *FLAGS, *flags, f"-I{HERE}", f"-Wl,-soname,{library.name}", "-o", str(library), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _other_functions() -> str:
    """C for each function that the real amdsmi binds and amdsmi.c lacks: "not supported"."""
    spec = find_spec("amdsmi")
    if spec is None:  # where Ray is, it isn't: no test binds those functions there
        return ""
    assert spec.submodule_search_locations
    wrapper = Path(spec.submodule_search_locations[0], "amdsmi_wrapper.py").read_text()
    bound = set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper))
    ours = set(re.findall(r"\b(amdsmi_\w+)\(", (HERE / "amdsmi.c").read_text()))
    return "".join(f"unsigned int {name}(void) {{ return 2; }}\n" for name in sorted(bound - ours))


class Drivers:
    """The compiled stand-ins, and the knobs that one test sets.

    Args:
        libraries: where ``build`` put them.
        knobs: the file that the drivers read.
    """

    def __init__(self, libraries: Path, knobs: Path) -> None:
        self._libraries = libraries
        self.knobs = knobs
        self.set()

    def set(self, **values: Any) -> None:
        """Replace all knobs: ``set(count=2, power__1=250000)`` is ``count 2`` and ``power.1 250000``."""
        write_knobs(self.knobs, {name.replace("__", "."): value for name, value in values.items()})

    def environment(self, *kinds: str) -> dict[str, str]:
        """The variables under which a process finds these drivers: "new", "old", "amd"."""
        path = os.pathsep.join(str(self._libraries / kind) for kind in kinds)
        return {"LD_LIBRARY_PATH": path, "STANDIN_KNOBS": str(self.knobs)}

    def probe(self, *kinds: str, scenes: list[Mapping[str, Any]], environ: Mapping[str, str] | None = None) -> Any:
        """What ``probe`` prints for these scenes (sets of knobs), in a process that has the drivers."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.fakes.gpu_drivers.probe", json.dumps(scenes)],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env={**os.environ, **self.environment(*kinds), **(environ or {})},
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def write_knobs(path: Path, values: Mapping[str, Any]) -> None:
    """Replace the knobs' file whole."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text("".join(f"{name} {value}\n" for name, value in values.items()))
    temporary.replace(path)
