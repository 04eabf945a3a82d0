"""``import wandb`` answered by this package: a finder of modules in front of all others.

Modules of W&B's that this package has are in :mod:`trackers.as_wandb.modules`. Processes that deliver to W&B are other
processes, which import the real one.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from trackers.as_wandb import modules
from trackers.training import vendors

SWITCH = "TRACKERS_AS_WANDB"
"""Environment variable under which the line of ``--install`` acts."""


class Finder:
    """Answers imports of ``wandb`` and its submodules, and questions for its version.

    Attributes:
        stands_in: what it finds isn't what is installed.
    """

    stands_in = True

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A module's specification; None for every other package, and for submodules that aren't known."""
        if name != "wandb" and not name.startswith("wandb."):
            return None
        own = modules.SHORT.get(name, name)
        package = modules.is_package(name)
        if package is None:
            return None
        file = modules.real_file(own)
        if file is not None and file.is_dir():  # a namespace: generated code
            spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(file)]
            return spec
        if file is not None:
            locations = [str(file.parent)] if package else None
            return importlib.util.spec_from_file_location(name, file, submodule_search_locations=locations)
        return importlib.machinery.ModuleSpec(name, self, is_package=package)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """The module, which is the same one wherever it is asked for."""
        return modules.module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is left to do."""

    def find_distributions(self, context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        """The distribution that ``importlib.metadata.version("wandb")`` asks for, where wandb isn't installed."""
        if getattr(context, "name", None) == "wandb" and modules.real_distribution() is None:
            return [_Distribution()]
        return []


class _Distribution(importlib.metadata.Distribution):
    """What ``importlib.metadata`` says of wandb where it isn't installed."""

    def read_text(self, filename: str) -> str | None:
        text = f"Metadata-Version: 2.1\nName: wandb\nVersion: {modules.version()}\n"
        return text if filename in ("METADATA", "PKG-INFO") else None

    def locate_file(self, path: Any) -> Any:
        from pathlib import Path

        return Path(__file__).parent / path


_finder = Finder()


def is_wandbs_program(command: Sequence[str]) -> bool:
    """Whether a command line of Python is W&B's own: ``wandb sync``, ``wb``, ``python -m wandb``."""
    words = iter(command)
    for word in words:
        if word.startswith("-m"):
            return (word[2:] or next(words, "")).partition(".")[0] == "wandb"
        if word in ("-X", "-W"):
            next(words, "")
        elif word.startswith("-c") or not word.startswith("-"):
            return os.path.splitext(os.path.basename(word))[0] in ("wandb", "wb") and not word.endswith(".py")
    return False


def install_as_wandb() -> None:
    """Answer ``import wandb`` with this package, in this process, whether wandb is installed or not.

    Call it before the code that imports wandb. Modules that have imported the real wandb already keep it, and the next
    ``import wandb`` gives this package. Calling it again changes nothing. Programs that the process starts aren't
    affected, and neither are trackers that deliver to W&B; for those see ``python -m trackers.as_wandb``. In W&B's own
    commands (``wandb sync``), which import what there is more of the real one, it does nothing.
    """
    if _finder in sys.meta_path or is_wandbs_program(sys.orig_argv[1:]):  # `wandb login` needs W&B's own
        return
    modules.put_aside()
    vendors.own = real
    sys.meta_path.insert(0, _finder)
    importlib.invalidate_caches()
    importlib.import_module("wandb")


def uninstall() -> None:
    """Answer ``import wandb`` with the installed package again. What was imported before stays as it is."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        modules.put_back()
        vendors.own = contextlib.nullcontext


@contextlib.contextmanager
def real() -> Iterator[None]:
    """``import wandb`` gives the installed package, for a delivery that runs inside this process."""
    if _finder not in sys.meta_path:
        yield
        return
    sys.meta_path.remove(_finder)
    try:
        with modules.real():
            yield
    finally:
        sys.meta_path.insert(0, _finder)
