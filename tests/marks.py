"""Which tests start processes, servers and browsers: found by the names that they and their helpers use.

A test is marked ``processes`` if its own code, a fixture of it, or a helper in ``tests`` that one of them calls names
something that starts a process; ``servers`` and ``browser`` likewise. What this can't see, since the package itself
starts the process, is marked by hand with ``pytest.mark.processes``; ``make test-fast`` fails where such a mark lacks.
``heavy`` goes by folder, and by names, too; what else takes a tenth of a second, or half a second with all its cases,
is marked by hand.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

NAMES = {
    "processes": {"subprocess", "multiprocessing", "fork", "posix_spawn", "openpty", "Popen", "spawn"},
    "servers": {"HTTPServer", "ThreadingHTTPServer", "TCPServer", "ThreadingTCPServer"},
    "heavy": {"torch", "matplotlib"},
}
HELPERS = {
    "tests.fakes.servers": {"servers", "processes"},
    "tests.fakes.wandb_server": {"servers"},
    "tests.fakes.fault_proxy": {"servers"},
    "tests.browser": {"browser", "processes"},
}
FOLDERS = {
    "heavy": (
        "faults/", "e2e/", "ranks/", "plotting/", "inspection/", "instruments/", "frameworks/", "copying/",
        "testing/", "backends/mlflow/", "backends/trackio/", "backends/test_conformance.py",
        "backends/test_lost_stores.py", "support/test_patterns.py",
        "analysis/test_same_figures.py", "readers/test_local.py", "readers/test_vendors.py", "readers/test_bombs.py",
        "hardware/test_trackers.py", "as_wandb/test_framework_loggers.py", "as_wandb/test_same_as_wandb.py",
        "as_wandb/test_replacement.py", "backends/wandb/test_history_rows.py", "backends/wandb/test_datastore.py",
        "training/test_endings.py", "training/test_tensors.py", "values/test_coerce.py", "as_wandb/test_api.py",
        "readers/test_wandb_reader.py",
        "as_wandb/test_watch.py", "as_wandb/test_signatures.py", "media/test_media.py", "values/test_device_copy.py",
    ),
}  # fmt: skip
"""Folders and files whose tests load torch, Matplotlib or vendors' clients, or compute for seconds."""
INIT = "init"
INLINE = {"TRACKER_RELAY", "CONFIG_TRACKER_RELAY=n\n", "offline", "disabled"}
"""Texts in a test that mean that ``init`` starts no relay."""


class Marks:
    """Finds the marks of tests; remembers what each function leads to."""

    def __init__(self) -> None:
        self._known: dict[Any, set[str]] = {}

    def of(self, item: pytest.Item) -> set[str]:
        """Names of marks."""
        functions = [getattr(item, "function", None), *_fixtures(item)]
        codes = [part for function in functions if function for part in _codes(function)]
        found = set().union(*(self._reached(function, ()) for function in functions if function))
        if any(INIT in code.co_names for code in codes) and not any(_texts(code) & INLINE for code in codes):
            found.add("processes")
        path = item.nodeid.partition("::")[0].removeprefix("tests/")
        return found | {mark for mark, places in FOLDERS.items() if path.startswith(places)}

    def _reached(self, thing: Any, above: tuple[Any, ...]) -> set[str]:
        if thing in self._known:
            return self._known[thing]
        if thing in above:
            return set()
        found = set(HELPERS.get(getattr(thing, "__module__", ""), ()))
        for function in _functions(thing):
            for code in _codes(function):
                found |= {kind for kind, names in NAMES.items() if names & set(code.co_names)}
                for other in _named(function, code):
                    found |= self._reached(other, (*above, thing))
        if not above:
            self._known[thing] = found
        return found


def _fixtures(item: pytest.Item) -> list[Callable[..., Any]]:
    information = getattr(item, "_fixtureinfo", None)
    if information is None:
        return []
    return [
        definitions[-1].func
        for definitions in information.name2fixturedefs.values()
        if definitions and not definitions[-1].func.__name__.startswith(("_no_leftovers", "_session_environment"))
    ]


def _functions(thing: Any) -> list[Any]:
    if inspect.isclass(thing):
        return [value for value in vars(thing).values() if inspect.isfunction(value)]
    return [thing] if hasattr(inspect.unwrap(thing), "__code__") else []


def _codes(function: Any) -> Iterator[types.CodeType]:
    """A function's code and that of the functions in it."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    waiting = [code] if code is not None else []
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def _texts(code: types.CodeType) -> set[str]:
    return {constant for constant in code.co_consts if isinstance(constant, str)}


def _named(function: Any, code: types.CodeType) -> Iterator[Any]:
    """Functions and classes of our tests that a function's code names."""
    known = inspect.unwrap(function).__globals__
    for name in code.co_names:
        value = known.get(name)
        if isinstance(value, types.ModuleType):
            if value.__name__.startswith("tests."):
                yield from (getattr(value, other) for other in code.co_names if _is_ours(getattr(value, other, None)))
        elif _is_ours(value):
            yield value


def _is_ours(value: Any) -> bool:
    value = inspect.unwrap(value) if callable(value) else value
    return (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__.startswith("tests.")
