"""What the page does: change, delete and stop runs, by the code of ``trackers edit``, ``rm``, ``stop``; keep views."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from trackers.editing import delivering, edits, requests, trash
from trackers.editing.edits import Attributes, as_tags
from trackers.errors import UNDECODABLE, NotFound, TrackersError, UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.support import confined
from trackers.ui.catalogue import Catalogue

VIEWS = "views.json"
"""The file of a project's saved views, in its directory; of all projects in the directory of runs."""
MOST_VIEWS = 200
VIEW_CHARACTERS = 20_000
MOST_BYTES = 4 * 1024 * 1024
"""Maximum size of a file of views."""
MOST_RUNS = 1000
"""Maximum number of runs changed at once."""


class Deed(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be done. runs: their keys; of ``restore`` the directories that ``remove`` named.

    name, notes, group: None: as they are. tags: in place of the present ones. add, drop: tags. view: its name, with
    what stands behind # in its address; "": it is deleted. project: whose view it is. checkpoint, reason: of ``stop``:
    a checkpoint is saved before; why, for every tracker.
    """

    runs: list[str] = []
    name: str | None = None
    notes: str | None = None
    group: str | None = None
    tags: list[str] | None = None
    add: list[str] = []
    drop: list[str] = []
    view: str = ""
    address: str = ""
    project: str = ""
    checkpoint: bool = False
    reason: str = ""


def act(catalogue: Catalogue, what: str, content: bytes) -> Any:
    """Do something; the answer says what was done, for JSON.

    Raises:
        NotFound: there is no such deed or run. UsageError: it can't be done.
    """
    do = DEEDS.get(what)
    if do is None:
        raise NotFound("there is nothing like that to be done")
    try:
        deed = msgspec.json.decode(content, type=Deed)
    except UNDECODABLE as error:
        raise UsageError(f"what is to be done can't be read: {error}") from None
    if len(deed.runs) > MOST_RUNS:
        raise UsageError(f"{len(deed.runs):,} runs at once: at most {MOST_RUNS:,}; `trackers edit` takes any number")
    try:
        return do(catalogue, deed)
    except OSError as error:
        raise UsageError(f"{error.filename or what}: {error.strerror or error}") from None
    finally:
        catalogue.look_again()


def _each(catalogue: Catalogue, deed: Deed, do: Callable[[RunDirectory], Any]) -> dict[str, Any]:
    """Do something with each run: what became of it by key, and why not of the others."""
    done: dict[str, Any] = {}
    problems: list[str] = []
    for key in deed.runs:
        directory = catalogue.directory(key) if catalogue.is_own(key) else None
        try:
            if directory is None:
                raise UsageError(f"{catalogue.row(key).source} is no run of trackers: change it where it is")
            run = RunDirectory(directory)
            edits.need_editable(run, what="changed")
            done[key] = do(run)
        except (TrackersError, OSError) as error:
            problems.append(str(error))
    return {"done": done, "problems": problems}


def _edit(catalogue: Catalogue, deed: Deed) -> Any:
    if deed.name is not None and len(deed.runs) != 1:
        raise UsageError("a name is for one run: a group or a tag is for several")

    def change(now: Attributes) -> Attributes:
        tags = [*(now.tags if deed.tags is None else as_tags(deed.tags)), *as_tags(deed.add)]
        given = {name: value for name in ("name", "notes", "group") if (value := getattr(deed, name)) is not None}
        kept = tuple(tag for tag in dict.fromkeys(tags) if tag not in deed.drop)
        return msgspec.structs.replace(now, tags=kept, **given)

    return _each(catalogue, deed, lambda run: _delivered(run, edits.edit(run, change)))


def _undo(catalogue: Catalogue, deed: Deed) -> Any:
    return _each(catalogue, deed, lambda run: _delivered(run, edits.undo(run)))


def _delivered(run: RunDirectory, changed: dict[str, Any]) -> list[str]:
    if changed:
        delivering.deliver_later(run)
    return sorted(changed)


def _stop(catalogue: Catalogue, deed: Deed) -> Any:
    """What training has made of it so far is each run's answer: nobody waits for it here."""

    def ask(run: RunDirectory) -> str:
        asked = requests.ask(run, checkpoint=deed.checkpoint, reason=deed.reason, by="the page")
        return requests.answer(run, asked).text

    return _each(catalogue, deed, ask)


def _remove(catalogue: Catalogue, deed: Deed) -> Any:
    return _each(catalogue, deed, lambda run: str(trash.remove(run).path))


def _restore(catalogue: Catalogue, deed: Deed) -> Any:
    root = catalogue.root.resolve()
    for path in deed.runs:
        removed = trash.find(path, catalogue.root)
        if not removed.path.resolve().is_relative_to(root):
            raise NotFound(f"no removed run {path!r} in {catalogue.root}")
        trash.bring_back(removed)
    return {"done": deed.runs, "problems": []}


def views(catalogue: Catalogue, project: str) -> dict[str, str]:
    """The saved views of a project, or of all: what stands behind # in their addresses, by name."""
    path = _views_file(catalogue, project)
    try:
        found = msgspec.json.decode(confined.read(path, root=path.parent, most=MOST_BYTES), type=dict[str, str])
    except (OSError, ValueError, *UNDECODABLE):  # none yet, or not ours to read
        return {}
    return dict(list(found.items())[:MOST_VIEWS])


def _save_view(catalogue: Catalogue, deed: Deed) -> Any:
    name, address = deed.view.strip(), deed.address
    if not name or max(len(name), len(address) / 100) > VIEW_CHARACTERS / 100:
        raise UsageError(f"a view has a name of 1 to {VIEW_CHARACTERS // 100} characters")
    found = {other: kept for other, kept in views(catalogue, deed.project).items() if other != name}
    if address:
        found[name] = address
    if len(found) > MOST_VIEWS:
        raise UsageError(f"{MOST_VIEWS} views are saved: delete one")
    path = _views_file(catalogue, deed.project)
    confined.write_whole(path, msgspec.json.format(msgspec.json.encode(found)) + b"\n", root=path.parent)
    return {"views": found}


def _views_file(catalogue: Catalogue, project: str) -> Path:
    rows = catalogue.state().rows.values() if project else ()
    own = (row.key for row in rows if row.project == project and catalogue.is_own(row.key))
    directory = next((path.parent for key in own if (path := catalogue.directory(key)) is not None), catalogue.root)
    return directory / VIEWS


DEEDS: dict[str, Callable[[Catalogue, Deed], Any]] = {
    "edit": _edit, "undo": _undo, "stop": _stop, "remove": _remove, "restore": _restore, "view": _save_view,
}  # fmt: skip
