"""Which script this process runs, and for whom."""

from __future__ import annotations

import getpass
import os
import sys

from trackers.support.interruption import suppress


def user() -> str:
    """The user's name; "" where the system knows none."""
    with suppress(KeyError, OSError, ImportError):  # KeyError: a container's account without a name
        return getpass.getuser()
    return ""


def program() -> tuple[str, list[str]]:
    """The training script (absolute where it is a file) and its arguments; ``-m package`` as such.

    Of an archive or a directory that Python was given (``python app.pyz``) it is that.
    """
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == "__main__":  # an archive or a directory
        return os.path.abspath(sys.argv[0]), list(sys.argv[1:])
    if spec is not None and spec.name:
        name = spec.name.removesuffix(".__main__")
        return f"-m {name}", list(sys.argv[1:])
    path = getattr(main, "__file__", None)
    if path and not path.startswith("<"):  # <stdin>
        return os.path.abspath(path), list(sys.argv[1:])
    return ("<notebook>" if in_notebook() else "<python>"), []


def in_notebook() -> bool:
    """Runs inside a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})
