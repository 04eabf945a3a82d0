"""What an edit is to do to each of the runs that it names, and what it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from trackers.editing import delivering, edits
from trackers.editing.edits import Attributes, as_tags
from trackers.errors import UsageError
from trackers.journal.run_directory import RunDirectory


class EditPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A change of runs. name, tags, notes, group: None to leave it; tags: "a,b" in the place of the present ones.

    added, removed: tags, "a,b" each. results: values by name. again: "undo" or "redo" the last change instead.
    """

    name: str | None = None
    tags: str | None = None
    notes: str | None = None
    group: str | None = None
    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    results: Mapping[str, Any] = {}
    again: str = ""

    def check(self, *, alone: int = 0) -> None:
        """See that it makes sense.

        Args:
            alone: how many of the ways to ask for something else than a change are asked for.

        Raises:
            UsageError: it changes nothing, says two things at once, or names what can't be a tag.
        """
        given = (self.name, self.tags, self.notes, self.group) != (None,) * 4
        changes = given or bool(self.added or self.removed or self.results)
        if alone and (changes or alone > 1):
            raise UsageError("--undo, --redo and --history go alone")
        if not (changes or alone):
            raise UsageError(
                "nothing to change: give --name, --tags, --add-tag, --remove-tag, --notes, --group or --result"
            )
        if self.tags is not None and (self.added or self.removed):
            raise UsageError("--tags replaces all tags: leave out --add-tag and --remove-tag")
        for words in (self.added, self.removed):
            as_tags(",".join(words))

    def check_runs(self, runs: Sequence[RunDirectory]) -> None:
        """Raise UsageError if it can't be done to that many runs."""
        if self.name is not None and len(runs) > 1:
            raise UsageError(f"--name is for one run, and these are {len(runs)}: a group or a tag is for several")

    def attributes(self, now: Attributes) -> Attributes:
        """A run's attributes after it."""
        added, removed = as_tags(",".join(self.added)), as_tags(",".join(self.removed))
        present = now.tags if self.tags is None else as_tags(self.tags)
        return Attributes(
            name=now.name if self.name is None else self.name,
            tags=tuple(tag for tag in dict.fromkeys([*present, *added]) if tag not in removed),
            notes=now.notes if self.notes is None else self.notes,
            group=now.group if self.group is None else self.group,
        )

    def apply(self, run: RunDirectory, *, later: bool = False) -> AppliedEdit:
        """Write it to a run's journal.

        Args:
            later: `trackers sync` is to deliver it.

        Raises:
            TrackersError, OSError: the run can't be edited; it is as it was.
        """
        if self.again:
            changed = edits.undo(run) if self.again == "undo" else edits.redo(run)
        else:
            changed = edits.edit(run, self.attributes)
        edits.add_results(run, dict(self.results))
        unheld = edits.unheld(run, [*changed, *(["results"] if self.results else [])])
        return AppliedEdit(run, changed, dict(self.results), unheld, "" if later else delivering.awaits(run), later)


class AppliedEdit(msgspec.Struct):
    """What was changed of a run.

    changed: old and new value by name. unheld: what trackers can't hold of it, a line each. awaits: who delivers it
    without being asked, "" for nobody. later: `trackers sync` is to do it. delivered: whether each tracker has it;
    None where it isn't delivered now.
    """

    run: RunDirectory
    changed: Mapping[str, tuple[Any, Any]]
    results: Mapping[str, Any]
    unheld: list[str]
    awaits: str
    later: bool
    delivered: bool | None = None

    @property
    def waits(self) -> bool:
        """Whether it is to be delivered now."""
        return not (self.later or self.awaits)

    def described(self) -> str:
        """In words, one line."""
        parts = [edits.describe(dict(self.changed))] if self.changed else []
        parts += [f"{name} = {value}" for name, value in self.results.items()]
        return ", ".join(parts) or "unchanged"

    def to_dict(self) -> dict[str, Any]:
        """JSON values, but for NaN in results."""
        changed = {name: list(pair) for name, pair in self.changed.items()}
        return {"run": str(self.run.path), "changed": changed, "results": dict(self.results),
                "delivered": self.delivered, "unheld": self.unheld}  # fmt: skip
