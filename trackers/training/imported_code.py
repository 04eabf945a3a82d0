"""Tells the relay which of the program's own files are imported: by name, not content, for that costs training time.
Where there is no relay, this process keeps them itself, before the first step.

Found in ``sys.modules``: 0.1 ms for two thousand modules. The list is looked at again when it has grown.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trackers.journal import helper_process
from trackers.journal.run_directory import RunDirectory
from trackers.provenance.paths import ENDING, is_below, own_root
from trackers.support import confined
from trackers.support.clock import monotonic
from trackers.support.interruption import suppress
from trackers.support.redaction import MASK, mask
from trackers.tracker import RunInfo

_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
VARIABLES = frozenset(
    {"PYTHONPATH", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "CUBLAS_WORKSPACE_CONFIG", "CUDA_DEVICE_ORDER",
     "CUDA_LAUNCH_BLOCKING", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM", "NVIDIA_TF32_OVERRIDE"}
)  # fmt: skip
PREFIXES = (
    "NCCL_", "TORCH_", "PYTORCH_", "XLA_", "JAX_", "TF_CPP_", "TF_ENABLE_", "TF_GPU_", "TF_XLA_", "MIOPEN_", "HSA_",
)  # fmt: skip
"""Variables that decide what is imported and computed, by name and by how they begin."""
_OF_ONE_LAUNCH = frozenset({"NCCL_DEBUG_FILE", "NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING"})
_LONGEST = 4096
DATA_S = 5.0
"""Maximum time in which files of data are read at the end of a run that has no relay, in seconds."""
MOST = 20_000
"""Maximum number of modules that are told."""
_TAKE_VALUE = ("-X", "-W", "--check-hash-based-pycs")


def begin(run: RunDirectory, info: RunInfo, attempt: int, options: Any, relayed: bool) -> ImportedCode | None:
    """Tell what is imported by now; None where nobody wants to know. relayed: a relay keeps it."""
    if not options["TRACKER_CODE"]:
        return None
    return (ImportedCode if relayed else KeptCode)(run, attempt, root_of(info))


class ImportedCode:
    """The modules of one run.

    Args:
        root: the directory that the program's own files lie below.
    """

    def __init__(self, run: RunDirectory, attempt: int, root: str) -> None:
        self._path = run.path / f"code-{attempt}.{ENDING}"
        self._root = root
        self._reported: set[str] = set()
        self._count = 0
        self._pid = os.getpid()
        head = {"root": root, "flags": interpreter_flags(), "variables": variables()}
        with suppress(OSError, UnicodeError):  # it is no reason to stop
            content = msgspec.json.encode(head) + b"\n" + self._news()
            confined.write_new(self._path, content)

    def poll(self) -> None:
        """Tell what was imported since the last look."""
        if len(sys.modules) == self._count or os.getpid() != self._pid:
            return
        with suppress(OSError, UnicodeError):
            if news := self._news():
                with os.fdopen(confined.open_fd(self._path, os.O_WRONLY | os.O_APPEND), "ab") as file:
                    file.write(news)

    def end(self) -> None:
        """Training has ended, and what it imported is told."""

    def _news(self) -> bytes:
        self._count = len(sys.modules)
        modules = []
        for name, path in own_modules(self._root):
            if name not in self._reported and len(self._reported) < MOST:
                self._reported.add(name)
                with suppress(OSError):
                    seen = os.stat(path)
                    modules.append((name, path, seen.st_size, seen.st_mtime_ns))
        return b"".join(msgspec.json.encode(line) + b"\n" for line in modules)


class KeptCode(ImportedCode):
    """The same where no relay keeps it: this process does, as the run begins, and again as it ends if there is more."""

    def __init__(self, run: RunDirectory, attempt: int, root: str) -> None:
        super().__init__(run, attempt, root)
        self._run, self._attempt = run, attempt
        self._kept_bytes = -1
        self._keep_code(0.0)

    def end(self) -> None:
        """Keep what was imported since, and files of data, as far as they are read in a few seconds."""
        if os.getpid() == self._pid:  # not as a forked child ends
            self._keep_code(DATA_S)
            with suppress(OSError):
                if os.lstat(self._path).st_size == self._kept_bytes:  # else the disk refused it
                    confined.remove(self._path)

    def _keep_code(self, data_s: float) -> None:
        from trackers.relay import code_keeper  # loaded only where it runs here

        until = monotonic() + data_s
        with suppress(Exception):  # whatever it is, training goes on
            size = os.lstat(self._path).st_size
            if size != self._kept_bytes or code_keeper.unread(self._run, self._attempt):
                task = code_keeper.CaptureTask(self._attempt, os.getppid())
                if code_keeper.keep(self._run, task, go_on=lambda: monotonic() < until) == helper_process.DONE:
                    self._kept_bytes = size


def own_modules(root: str) -> list[tuple[str, str]]:
    """Names and files of the imported modules whose files lie below a directory and in no environment of packages."""
    names = list(sys.modules)  # not the modules: forks of a process that has thousands would copy the pages of all
    tops = {name: module for name in names if "." not in name and _is_near(module := sys.modules.get(name), root)}
    modules = [(name, path) for name, module in tops.items() if (path := _file(module, root))]
    above = tuple(f"{name}." for name, module in tops.items() if "__path__" in vars(module))
    if above:
        inner = [name for name in names if name.startswith(above)]
        modules += [(name, path) for name in inner if (path := _file(sys.modules.get(name), root))]
    return modules


def _is_near(module: Any, root: str) -> bool:
    """Whether a module at the top lies below the root, or is a package without a file that has a part there."""
    names = getattr(module, "__dict__", None) or {}
    if names.get("__file__") is None and "__path__" in names:
        return any(is_below(f"{folder}{os.sep}", root) or is_below(root, str(folder)) for folder in names["__path__"])
    return bool(_file(module, root))


def _file(module: Any, root: str) -> str:
    # Not getattr: packages that load their parts late answer it by importing them.
    names = getattr(module, "__dict__", None)
    path = names.get("__file__") if names else None
    if type(path) is not str:
        return ""
    if path[:1] != os.sep:
        path = os.path.abspath(path)
    if not is_below(path, root) or any(part in path for part in _INSTALLED):
        return ""
    return "" if any(is_below(path, prefix) and prefix != root for prefix in {sys.prefix, sys.base_prefix}) else path


def program_directory(program: str, cwd: str) -> str:
    """The directory whose repository is the program's: its script's directory, else the working directory."""
    return os.path.dirname(program) if os.path.isabs(program) and not is_below(program, sys.prefix) else cwd


def root_of(info: RunInfo) -> str:
    """Where the program's own files lie; "" where that can't be told."""
    root = own_root(info.program, info.cwd, str(info.git.get("root", "")), sys.prefix)
    return root if root and Path(root).is_dir() else ""


def variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that are recorded: a list of names that decide how it is computed, and no secret among them."""
    environ = os.environ if environ is None else environ
    names = [name for name in environ if name in VARIABLES or name.startswith(PREFIXES)]
    masked = {name: mask(environ[name], name) for name in sorted(names) if name not in _OF_ONE_LAUNCH}
    return {name: text for name, text in masked.items() if MASK not in text and len(text) <= _LONGEST}


def interpreter_flags() -> list[str]:
    """What stands between the interpreter and the program on this process's command line."""
    words = list(getattr(sys, "orig_argv", [])[1:])
    flags: list[str] = []
    while words and words[0].startswith("-") and len(words[0]) > 1:
        word = words.pop(0)
        if word[-1] in "cm" and word[1] not in "-XW":  # what follows is the program; -um: with flags before it
            return [*flags, word[:-1]] if len(word) > 2 else flags
        flags.append(word)
        if word in _TAKE_VALUE and words:
            flags.append(words.pop(0))
    return flags
