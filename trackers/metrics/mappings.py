"""Values in mappings: ``{"a": {"q": 1}}`` is recorded under the name that ``{"a/q": 1}`` has, in place of ``a``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from trackers.records import Media, Metrics, Record, Summary, Text


class Mappings:
    """Which names are of values in mappings. As in W&B, a name has a mapping or another value: the one that came last.

    Args:
        known: names that have been logged; those of mappings are taken out. others: more names that have a value.

    Attributes:
        names: of the mappings.
    """

    def __init__(self, known: set[str], *others: Collection[str]) -> None:
        self._known = known
        self._others = others
        self.names: set[str] = set()
        self._within: dict[str, str] = {}
        self._goes_on = False
        self._there: set[str] = set()  # of these names and of the values in them, those that have a value now

    def go_on(self, earlier: Iterable[Mapping[str, str]]) -> None:
        """Take values in mappings, and the mappings' names, that another attempt or process recorded."""
        self._goes_on = True
        for within in earlier:
            self._within.update(within)
            self._there.update(within, within.values())
            self.names.update(within.values())

    def take(self, names: Iterable[str], within: Mapping[str, str]) -> tuple[dict[str, str], set[str]]:
        """Take the names of one call's values.

        Args:
            within: of those in mappings, the mappings' names.

        Returns:
            what is new in ``within``, and the names that have no value any more: another one has taken its place.
        """
        new = {name: of for name, of in within.items() if name not in self._within}
        around = set(new.values())
        had = (self._known, *self._others)
        self._there |= around if self._goes_on else {name for name in around if any(name in those for those in had)}
        self._known -= around
        self._within.update(new)
        self.names.update(new.values())
        if not self.names:
            return new, set()
        there = {name for name in names if name in within or name in self.names}
        gone = {around for name in there if name in within for around in self._around(name)}
        gone = (gone & self._there) | (self.inside(there) - there)
        self._there = (self._there - gone) | there
        return new, gone

    def inside(self, names: Iterable[str]) -> set[str]:
        """The values that mappings of these names have now."""
        wanted = self.names.intersection(names)
        return {name for name in self._there if not wanted.isdisjoint(self._around(name))} if wanted else set()

    def forget(self, names: Iterable[str]) -> None:
        """These names have no value any more."""
        self._there.difference_update(names)

    def _around(self, name: str) -> Iterator[str]:
        around = self._within.get(name)
        while around is not None:
            yield around
            around = self._within.get(around)


class Overtaken:
    """Which names have no value any more, by the records of several processes: each knows the mappings of its own.

    Attributes:
        names: those that no record takes back.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._logged: set[str] = set()
        self._within: dict[str, str] = {}
        self._mappings = Mappings(self._logged)

    def see(self, record: Record) -> set[str]:
        """Take a record. Returns the names that have no value any more by it."""
        names, removed = set[str](), list[str]()
        match record:
            case Metrics() | Text():
                names.update(record.values)
            case Media():
                names.add(record.name)
            case Summary(derived=False):
                self._within.update(record.within)
                names.update(record.values, record.within.keys() - record.within.values())
                removed = record.removed
        self._mappings.forget(removed)
        self.names.difference_update(removed)
        gone = self._mappings.take(names, {name: self._within[name] for name in names & self._within.keys()})[1]
        self._logged |= names
        self.names = (self.names | gone) - names
        return gone
