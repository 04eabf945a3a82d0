"""What distributions in plugins/ add to what is fuzzed, where they are installed: modules NAME_fuzzing of their tests.

Such a module has ``targets()``, by name, and ``seeds(place, run)``, which writes undamaged files into folders of a
directory, of a run or others. ``parts()``, if it has that, are targets that are fuzzed where they are named.
``TRACKERS`` are those of its trackers that the run is delivered to.
"""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from trackers.support import plugins

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

END = "_fuzzing"


@functools.cache
def modules() -> dict[str, ModuleType]:
    """By name, without its end."""
    importlib.import_module("tests.fuzz.targets")  # which the modules import, and which asks for them
    installed = [plugin.name for plugin in plugins.brought()]
    found = {}
    for path in sorted(Path(__file__).parents[2].glob(f"plugins/*/tests/*{END}.py")):
        if any(plugins.same(path.parents[1].name, name) for name in installed):
            sys.path.insert(0, str(path.parent))
            found[path.stem.removesuffix(END)] = importlib.import_module(path.stem)
    return found


def targets(name: str) -> dict[str, Target]:
    """The targets that a module adds."""
    found: dict[str, Target] = modules()[name].targets()
    return found


def trackers() -> tuple[str, ...]:
    """Trackers that a run is delivered to besides the built-in ones."""
    return tuple(name for module in modules().values() for name in getattr(module, "TRACKERS", ()))
