"""The definitions of a run's metrics (``define_metric``), merged as W&B merges them.

A definition of a name adds to the earlier ones of the same name: a later step metric or goal replaces the earlier one,
summaries add up, and what was hidden stays hidden; ``overwrite`` drops what was said before. A metric that nobody
defined by its name takes the glob that matches it when it is logged, and keeps that: a later definition of its name
adds to the glob's. Of several matching globs it is the one that says most of the name, and of equal ones the newest:
``val/*`` before ``*``, whichever came first. (https://docs.wandb.ai/guides/track/log/customize-logging-axes; W&B's
client 0.31 takes any of them, a different one each time.)

W&B joins the names of nested values with a dot, and writes a dot in a name as ``\\.``. Here they are joined with a
slash: a definition of ``val.loss`` is that of ``val.loss`` and of ``val/loss``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from trackers.records import Define

NO_SUMMARY = ("none", "copy")
"""Words that ask for no aggregate: ``none`` for no result at all, ``copy`` for the last value, as without a word."""
_LABEL_END = re.compile(r"(?<!\\)\.")


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is said of a metric. summary: words that ask for aggregates, in order. none: it has no result at all.

    step_sync: a row without the step metric gets that one's last value.
    """

    step_metric: str | None = None
    step_sync: bool = False
    summary: tuple[str, ...] = ()
    none: bool = False
    hidden: bool = False
    goal: str | None = None

    def merged(self, define: Define) -> Definition:
        """This definition with another one's words."""
        words = [word for word in define.summary if word not in NO_SUMMARY]
        sync = define.step_metric is not None if define.step_sync is None else define.step_sync
        return Definition(
            step_metric=define.step_metric or self.step_metric,
            step_sync=self.step_sync or sync,
            summary=tuple(dict.fromkeys((*self.summary, *words))),
            none="none" in define.summary if define.summary else self.none,
            hidden=self.hidden or define.hidden,
            goal=define.goal or self.goal,
        )


class Definitions:
    """All definitions of a run.

    Args:
        state: as :attr:`state` gave it; None at the beginning.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        kept = msgspec.convert(dict(state or {}), dict[str, dict[str, Definition]])
        self._exact = kept.get("exact", {})
        self._globs = kept.get("globs", {})
        self._nested = {nested(name): name for name in self._exact if "." in name}

    @property
    def state(self) -> dict[str, Any]:
        """The definitions as JSON values."""
        return {"exact": msgspec.to_builtins(self._exact), "globs": msgspec.to_builtins(self._globs)}

    def __bool__(self) -> bool:
        """Whether anything was defined."""
        return bool(self._exact or self._globs)

    def ask_for_results(self) -> bool:
        """Whether a definition has the result of a metric fill itself."""
        return any(found.summary for kind in (self._exact, self._globs) for found in kind.values())

    def define(self, define: Define) -> None:
        """Add a definition."""
        kind = self._globs if is_glob(define.name) else self._exact
        before = Definition() if define.overwrite else kind.pop(define.name, Definition())
        kind.pop(define.name, None)  # the newest comes last
        kind[define.name] = before.merged(define)
        if kind is self._exact and "." in define.name:
            self._nested[nested(define.name)] = define.name

    def of(self, name: str) -> Definition | None:
        """The definition of a metric that is logged; None if there is none. It keeps that of a glob from then on."""
        found = self.known(name)
        if found is not None and self.takes_glob(name):
            self._exact[name] = found
        return found

    def takes_glob(self, name: str) -> bool:
        """Whether a metric, once logged, takes the definition of a glob, which it hasn't yet."""
        own = name in self._exact or name in self._nested
        return not own and self.known(name) is not None

    def known(self, name: str) -> Definition | None:
        """The definition of a metric, whether it will ever be logged or not."""
        found = self._exact.get(name) or self._exact.get(self._nested.get(name, name)) or self._globs.get(name)
        if found is None:
            matching = [glob for glob in reversed(self._globs) if matches(glob, name)]
            longest = max(matching, default="", key=lambda glob: sum(sign not in "*?[]" for sign in glob))
            found = self._globs.get(longest)
        return found

    def step_metrics(self) -> set[str]:
        """The names that step metrics may be logged by."""
        named = {found.step_metric for kind in (self._exact, self._globs) for found in kind.values()} - {None}
        return {name for axis in named if axis for name in (axis, nested(axis))}

    def names(self) -> list[str]:
        """The names that were defined, and those that took a glob."""
        return list(self._exact)

    def unmatched(self, names: Iterable[str]) -> list[str]:
        """The names and globs that none of these metrics has."""
        logged = frozenset(names)
        exact = [name for name in self._exact if logged.isdisjoint((name, nested(name)))]
        return exact + [glob for glob in self._globs if not any(matches(glob, name) for name in logged)]


def is_glob(name: str) -> bool:
    """Whether a definition's name may stand for several metrics."""
    return any(sign in name for sign in "*?[")


def matches(glob: str, name: str) -> bool:
    """Whether a definition's glob is one of a metric. One that ends in "*" is a prefix, whatever characters it has."""
    names = {name, name.replace("/", ".")} if "." in glob else {name}
    prefix = glob.removesuffix("*")
    return any(
        name == glob or (prefix != glob and name.startswith(prefix)) or fnmatchcase(name, glob) for name in names
    )


def nested(name: str) -> str:
    """The name of a nested value in W&B's notation as it is logged here: ``a.b`` is ``a/b``, ``a\\.b`` is ``a.b``."""
    return "/".join(part.replace("\\.", ".") for part in _LABEL_END.split(name))
