"""Destination of a copy: any tracker, or a directory, which receives journals of this package.

``wandb:entity/project``, ``mlflow:uri#experiment``, ``trackio:project``, ``tb:DIR``, ``json:DIR``, ``csv:DIR``.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from trackers.copying.verify import KEEPS, Capabilities
from trackers.errors import NotFound, UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.readers.mlflow.reader import split_address
from trackers.relay.delivery.cursor_file import read_account
from trackers.tracker import RunInfo

TRACKERS = {
    "wandb": "wandb",
    "mlflow": "mlflow",
    "trackio": "trackio",
    "tb": "tensorboard",
    "json": "json",
    "csv": "csv",
}
"""Schemes that a copy can go to, and the trackers behind them."""

_FOLDERS = {"tb": "TENSORBOARD_DIR", "json": "JSON_DIR", "csv": "CSV_DIR"}


class Destination(msgspec.Struct, kw_only=True):
    """A parsed destination.

    text: normalized, the same for every spelling. tracker: "" for a directory of journals. place: of those.
    options: the runs' options there. project: what the runs' project is called there; "" keeps their own.
    """

    text: str
    scheme: str = ""
    tracker: str = ""
    place: str = ""
    options: dict[str, Any] = {}
    project: str = ""

    @property
    def keeps(self) -> Capabilities:
        """What it keeps of a run."""
        return KEEPS[self.tracker]

    def source(self, run: RunDirectory, info: RunInfo) -> str:
        """The source that names a copied run where it is now.

        Raises:
            NotFound: it isn't there.
        """
        state = read_account(run, self.tracker).state if self.tracker else {}
        if not self.tracker:
            return str(run.path)
        if self.scheme == "wandb":
            url = urlsplit(str(state.get("url", "")))
            if url.scheme not in ("http", "https"):
                return f"wandb-file:{run.path / 'wandb'}"  # offline
            return f"wandb:{url.path.replace('/runs/', '/').strip('/')}"
        if self.scheme == "mlflow":
            return f"{self.text if self.project else f'{self.text}{info.project}'}/{state.get('native_id', info.id)}"
        if self.scheme == "trackio":
            return f"trackio:{info.project}/{info.id}"
        if self.scheme == "tb":
            found = list(Path(self.options["TENSORBOARD_DIR"]).glob(f"*/*-{info.id}"))
            if not found:
                raise NotFound(f"tb: the copy of {info.name!r} isn't in {self.options['TENSORBOARD_DIR']}")
            return f"tb:{found[0]}"
        return f"{self.scheme}:{state.get('url', '')}"


def parse(text: str) -> Destination:
    """Take a destination apart, and see that what it needs is installed and can be reached without a network.

    Raises:
        UsageError: an unknown scheme, a missing package or login, a path that can't be written.
    """
    from trackers import configuration
    from trackers.backends import registry

    found = re.fullmatch(r"([A-Za-z][A-Za-z0-9_\-]+):(.*)", text, re.DOTALL)
    if not text or (found is None and "://" in text):
        raise UsageError(f"copy needs a destination: {_listed()}")
    if found is None:
        place = Path(text).expanduser().absolute()
        if place.exists() and not place.is_dir():
            raise UsageError(f"{text} is a file: a directory gets journals; other destinations: {_listed()}")
        return Destination(text=str(place), place=str(place))
    scheme, where = found[1], found[2]
    if scheme not in TRACKERS:
        near = difflib.get_close_matches(scheme, TRACKERS, n=1)
        raise UsageError(
            f"nothing can be copied to {scheme!r}{f': did you mean {near[0]!r}?' if near else '.'} {_listed()}"
        )
    destination = {"wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio}.get(scheme, _folder)(scheme, where)
    destination.tracker = TRACKERS[scheme]
    destination.options = {**configuration.resolve().to_dict(), **destination.options, "TRACKER_MODE": "online"}
    registry.check(destination.tracker, destination.options)
    return destination


def _wandb(scheme: str, where: str) -> Destination:
    entity, _, project = where.rpartition("/")
    options: dict[str, Any] = {"WANDB_ENTITY": entity} if entity else {}
    return Destination(text=f"wandb:{where}", scheme=scheme, options=options, project=project)


def _mlflow(scheme: str, where: str) -> Destination:
    uri, experiment = split_address(where)
    chosen = {"MLFLOW_TRACKING_URI": uri, **({"MLFLOW_EXPERIMENT": experiment} if experiment else {})}
    return Destination(text=f"mlflow:{uri}#{experiment}", scheme=scheme, options=chosen, project=experiment)


def _trackio(scheme: str, where: str) -> Destination:
    if os.environ.get("TRACKIO_SERVER_URL"):
        raise UsageError("copy reads back what it wrote, from trackio's local store: unset TRACKIO_SERVER_URL")
    place = os.environ.get("TRACKIO_DIR", "")
    return Destination(
        text=f"trackio:{where}@{place}", scheme=scheme, options={"TRACKIO_SERVER_URL": ""}, project=where
    )


def _folder(scheme: str, where: str) -> Destination:
    if not where:
        raise UsageError(f"{scheme}: needs a directory: {scheme}:DIR")
    place = Path(where).expanduser().absolute()
    if place.exists() and not place.is_dir():
        raise UsageError(f"{place} is a file: {scheme}:DIR needs a directory")
    return Destination(text=f"{scheme}:{place}", scheme=scheme, options={_FOLDERS[scheme]: str(place)})


def _listed() -> str:
    return (
        "wandb:ENTITY/PROJECT, mlflow:URI#EXPERIMENT, trackio:PROJECT, tb:DIR, json:DIR, csv:DIR, or a directory "
        "for journals"
    )
