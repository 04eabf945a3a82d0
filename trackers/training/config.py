"""``run.config`` and ``run.summary``: mappings that record what is set in them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from trackers.errors import reason
from trackers.formats.json_values import MAX_DEPTH, key_text, mapping, to_json_values
from trackers.records import final_name, flatten
from trackers.support.interruption import pass_on, suppress
from trackers.values.coerce import is_media


class RunConfig(MutableMapping[str, Any]):
    """The configuration, nested as given; keys can be read and set as attributes too.

    Setting a key records the change. ``update`` takes mappings, namespaces and dataclasses; as of a dict, each value
    replaces that of its key, mappings too.

    Args:
        record: called with what is changed, and whether a mapping among it replaces another value.
        say: called with one line about what can't be recorded; nothing is raised for it.
    """

    def __init__(
        self, values: Mapping[str, Any], record: Callable[[dict[str, Any], bool], None],
        say: Callable[[str], object] = lambda text: None,
    ) -> None:  # fmt: skip
        self.__dict__.update(_values=dict(values), _record=record, _say=say, _locked=set())

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        raise TypeError("a configuration value can be changed, not removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            known = ", ".join(sorted(self.__dict__["_values"])[:20]) or "nothing"
            raise AttributeError(f"the config has no {name!r}; it has {known}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __repr__(self) -> str:
        return repr(self._values)

    def get(self, *args: Any, **more: Any) -> Any:
        """A key's value, or the default."""
        return dict.get(self._values, *args, **more)

    def update(self, d: Any = None, allow_val_change: bool | None = None, **more: Any) -> None:  # type: ignore[override]
        """Set values and record the change. A path names a YAML or JSON file.

        ``allow_val_change`` is taken for W&B's sake: a change always is allowed, but of what :meth:`update_locked` set.
        """
        try:
            if isinstance(d, (str, os.PathLike)):
                from trackers.training.wandb_arguments import read_config

                d = read_config(d)
            changes = {**mapping(d), **to_json_values(more)}
            for name in [name for name in changes if name in self._locked]:
                if changes.pop(name) != to_json_values(self._values[name]):
                    self._say(f"config: {name} is set by the sweep, and stays {self._values[name]!r:.80}")
            if changes:
                pairs = [(value, self._values.get(name)) for name, value in changes.items()]
                replaces = any(before and dict in (type(value), type(before)) for value, before in pairs)
                self._values.update(changes)
                self.name_keys({**(d if isinstance(d, dict) else {}), **more})
                self._record(changes, replaces)
        except Exception as error:
            pass_on(error)
            self._say(f"config: {reason(error)}")

    def name_keys(self, given: Any) -> None:
        """Have nested mappings read by the keys that were given, as of ``{0: "cat"}``; they are recorded as text."""
        for name, value in given.items() if isinstance(given, dict) else ():
            if key_text(name) in self._values and isinstance(value, (dict, list, tuple)):
                self._values[key_text(name)] = _keyed(self._values[key_text(name)], value)

    def update_locked(self, d: Any, user: str | None = None, _allow_val_change: bool | None = None) -> None:
        """``update``, as W&B's sweeps call it: what is set so can't be changed by ``update`` any more."""
        self._locked.difference_update(mapping(d))
        self.update(d)
        self.lock(mapping(d))

    def lock(self, names: Iterable[str]) -> None:
        """Let these values stay: later changes are said, and ignored."""
        self._locked.update(name for name in names if name in self._values)

    merge_locked = update_locked

    def persist(self) -> None:
        """Nothing: each change is recorded when it is made."""

    def __reduce__(self) -> Any:
        return RunConfig, (self.as_dict(), _unrecorded)

    def setdefaults(self, d: Any) -> None:
        """Set what isn't set yet."""
        try:
            defaults = d if isinstance(d, dict) else mapping(d)
        except Exception as error:
            pass_on(error)
            self._say(f"config: {reason(error)}")
            return
        self.update({key: value for key, value in defaults.items() if key_text(key) not in self._values})

    def as_dict(self) -> dict[str, Any]:
        """A copy as a plain dict."""
        return dict(to_json_values(self._values))

    _as_dict = as_dict

    @property
    def _items(self) -> dict[str, Any]:
        return self.as_dict()  # which scripts read to write it to a file of their own


def _keyed(plain: Any, given: Any) -> Any:
    if isinstance(given, dict) and isinstance(plain, dict):
        named = {key_text(key): (key, item) for key, item in given.items()}
        pairs = ((*named.get(text, (text, None)), value) for text, value in plain.items())
        return {key: _keyed(value, item) for key, item, value in pairs}
    if isinstance(given, (list, tuple)) and isinstance(plain, list) and len(plain) == len(given):
        return list(map(_keyed, plain, given))
    return plain


def _unrecorded(values: dict[str, Any], whole: bool) -> None:
    """What a copy of a configuration does with a change."""


class RunSummary(MutableMapping[str, Any]):
    """The run's results. What is set here is recorded as a result; reading also finds the last logged values.

    Args:
        record: called with what is set, and of names in mappings, the mapping's; ``values`` has what it recorded.
        remove: called with the name of what is deleted.
        by_word: the results by word that a metric's definition asks for; None where none does.
        say: called with one line about what can't be recorded; nothing is raised for it.
    """

    def __init__(
        self, record: Callable[[dict[str, Any], dict[str, str]], None],
        last_logged: Callable[[], Mapping[str, Any]] = dict, values: dict[str, Any] | None = None,
        say: Callable[[str], object] = lambda text: None, remove: Callable[[str], None] | None = None,
        by_word: Callable[[str], dict[str, Any] | None] = lambda name: None,
    ) -> None:  # fmt: skip
        self.__dict__.update(
            _lists={}, _media={}, _values={} if values is None else values, _remove=remove, _by_word=by_word, _say=say,
            _record=record, _last_logged=last_logged,
        )  # fmt: skip

    def __reduce__(self) -> Any:
        return _unrecorded_summary, (dict(to_json_values(self._as_dict())),)

    def __getitem__(self, name: str) -> Any:
        words = self._by_word(name)
        if words:
            return Folded(words, functools.partial(self._set_words, name))
        if words is None:  # else its own result was deleted, or its definition asks for none
            if self._lists.get(name) is not None and isinstance(self._values.get(name), str):  # what was recorded of it
                return self._lists[name]
            last = self._last_logged()
            for key in (name, final_name(name), name.removeprefix("final/")):
                if key in self._values:
                    return self._values[key]
            if name in last or name in self._media:
                return last[name] if name in last else self._media[name]
        part = Part(self, name)
        if not len(part):
            raise KeyError(name)
        return part

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._drop_media(name)
        if self._remove is not None:
            self._remove(name)
        else:
            self._values.pop(name, None)

    def _set_words(self, name: str, words: dict[str, Any]) -> None:
        if words:
            self.update({name: words})
        elif name in self:
            del self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._as_dict())

    def _as_dict(self) -> dict[str, Any]:
        found = {**self._media, **self._last_logged(), **self._values}
        return {name: value for name, value in found.items() if self._by_word(name) != {}}

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise NoResult(f"the summary has no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __repr__(self) -> str:
        return repr(self._as_dict())

    def update(self, values: Any = None, **more: Any) -> None:  # type: ignore[override]
        """Set several results at once."""
        self._set(values, more, {})

    def _set(self, values: Any, more: dict[str, Any], within: dict[str, str]) -> None:
        try:
            changes = {**({} if values is None else dict(values)), **more}
            if changes:
                self._lists.update(_lists_of(changes))
                self._note_media(changes)
                self._record(changes, within)
        except Exception as error:
            pass_on(error)
            self._say(f"summary: {reason(error)}")

    def _note_media(self, values: Mapping[Any, Any], prefix: str = "", depth: int = 0) -> None:
        """Keep media, which aren't among what is recorded as values, as the script reads them back."""
        for key, value in values.items():
            name = f"{prefix}{key}"
            self._drop_media(name)
            if isinstance(value, Mapping) and depth < MAX_DEPTH:
                with suppress(Exception):  # a mapping that can't be read is named where it is recorded
                    self._note_media(value, f"{name}/", depth + 1)
            elif not isinstance(value, (int, float, str)) and is_media(value):
                self._media[name] = value

    def _drop_media(self, name: str) -> None:
        """Forget the media of that name and below it."""
        for known in [known for known in self._media if known == name or known.startswith(f"{name}/")]:
            del self._media[known]


def _unrecorded_summary(values: dict[str, Any]) -> RunSummary:
    """What a copy of a summary is: its changes are its own."""
    return RunSummary(lambda changes, within: values.update(changes), values=values)


def _lists_of(changes: dict[str, Any]) -> dict[str, list[Any] | None]:
    try:
        return {name: _listed(value) for name, value in flatten(changes)}
    except RecursionError:  # a mapping that holds itself
        return {name: _listed(value) for name, value in changes.items()}


def _listed(value: Any) -> list[Any] | None:
    """A list, or an array of more than one value, as a script that set it reads it back; None for anything else."""
    if isinstance(value, (list, tuple)) or getattr(value, "ndim", None):
        plain = to_json_values(value)
        return plain if isinstance(plain, list) else None
    return None


class NoResult(AttributeError, KeyError):
    """A result that isn't there, asked for as an attribute."""

    __str__ = AttributeError.__str__


class Folded(dict[str, Any]):
    """A metric's results by word: ``summary["loss"]["min"]``, ``summary["loss"].min``. What is changed is recorded.

    Args:
        change: called with all words after a change; None: a copy.
    """

    def __init__(self, words: Mapping[str, Any], change: Callable[[dict[str, Any]], None] | None = None) -> None:
        super().__init__(words)
        self.__dict__["_change"] = change

    def __setitem__(self, word: str, value: Any) -> None:
        super().__setitem__(word, value)
        self._changed()

    def __delitem__(self, word: str) -> None:
        super().__delitem__(word)
        self._changed()

    def update(self, *values: Any, **more: Any) -> None:
        """Change several words."""
        super().update(*values, **more)
        self._changed()

    def __setattr__(self, word: str, value: Any) -> None:
        self[word] = value

    def __reduce__(self) -> Any:
        return Folded, (dict(self),)

    def _changed(self) -> None:
        change = self.__dict__["_change"]
        if change is not None:
            change(dict(self))

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise NoResult(f"there is no result {name!r}; there is {', '.join(self) or 'none'}") from None


class Part(MutableMapping[str, Any]):
    """The results whose names begin alike, by the rest of their names: ``summary["val"]["loss"]`` is ``val/loss``."""

    def __init__(self, of: RunSummary, name: str) -> None:
        self.__dict__["_of"] = of
        self.__dict__["_name"] = name

    def __getitem__(self, name: str) -> Any:
        return self._of[f"{self._name}/{name}"]

    def __setitem__(self, name: str, value: Any) -> None:
        within = f"{self._name}/{name}"
        self._of._set({within: value}, {}, {within: self._name})

    def __delitem__(self, name: str) -> None:
        del self._of[f"{self._name}/{name}"]

    def __iter__(self) -> Iterator[str]:
        start = self._name.removeprefix("final/") + "/"
        names = (name.removeprefix("final/") for name in self._of)
        return iter(dict.fromkeys(name[len(start) :].partition("/")[0] for name in names if name.startswith(start)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{self._name} has no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __repr__(self) -> str:
        return repr(dict(self))
