"""What a copy can go to, by scheme: built-in destinations and those that plug-ins bring, through one table."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import msgspec

from trackers.copying.verify import KEEPS, Capabilities
from trackers.errors import MissingPackage, NotFound, UsageError, did_you_mean
from trackers.journal.run_directory import RunDirectory
from trackers.readers.mlflow.reader import split_address
from trackers.relay.delivery.cursor_file import read_account
from trackers.support import atomic_write, plugins
from trackers.tracker import RunInfo

GROUP = "trackers.copies"
"""Entry-point group of plug-ins' destinations: scheme = "package.module:Class"."""


class CopyPlace(msgspec.Struct, kw_only=True):
    """Where a copy goes, as a :class:`CopyTarget` understood it.

    text: normalized, the same for every spelling. options: the runs' options there. project: what the runs' project is
    called there; "" keeps their own.
    """

    text: str
    options: dict[str, Any] = {}
    project: str = ""


class CopyTarget:
    """What ``trackers copy RUN SCHEME:WHERE`` asks of a destination.

    Attributes:
        scheme: what stands before the colon, here and where the copy is read back.
        tracker: the tracker that writes it; default the scheme's name.
        form: what follows the colon, for help.
        keeps: what the destination keeps of a run: the source is folded so before both sides are compared.
        symbol: the tracker's option that gets what follows the colon: a directory. "": :meth:`place` is overridden.
    """

    scheme: ClassVar[str] = ""
    tracker: ClassVar[str] = ""
    form: ClassVar[str] = "DIR"
    keeps: ClassVar[Capabilities] = Capabilities()
    symbol: ClassVar[str] = ""

    @classmethod
    def place(cls, where: str) -> CopyPlace:
        """What follows the colon, understood.

        Raises:
            UsageError: it names no place.
        """
        if not cls.symbol:
            return CopyPlace(text=f"{cls.scheme}:{where}")
        if not where:
            raise UsageError(f"{cls.scheme}: needs a directory: {cls.scheme}:DIR")
        folder = _folder(where, f"{cls.scheme}:DIR needs a directory")
        return CopyPlace(text=f"{cls.scheme}:{folder}", options={cls.symbol: str(folder)})

    @classmethod
    def source(cls, place: CopyPlace, info: RunInfo, state: Mapping[str, Any], run: Path) -> str:
        """The source that names a copied run where it is now; default what the tracker's ``state["url"]`` says.

        Args:
            state: the tracker's. run: the directory in which the copy was staged.

        Raises:
            NotFound: it isn't there.
        """
        return f"{cls.scheme}:{state.get('url', '')}"

    @classmethod
    def below(cls, place: CopyPlace, pattern: str, info: RunInfo) -> str:
        """The source that names the directory below the place.

        Args:
            pattern: of the directory's name.
        """
        copies = list(Path(place.options[cls.symbol]).glob(pattern))
        if not copies:
            raise NotFound(f"{cls.scheme}: the copy of {info.name!r} isn't in {place.options[cls.symbol]}")
        return f"{cls.scheme}:{copies[0]}"


class _Wandb(CopyTarget):
    scheme, form, keeps = "wandb", "ENTITY/PROJECT", KEEPS["wandb"]

    @classmethod
    def place(cls, where: str) -> CopyPlace:
        entity, _, project = where.rpartition("/")
        return CopyPlace(text=f"wandb:{where}", options={"WANDB_ENTITY": entity} if entity else {}, project=project)

    @classmethod
    def source(cls, place: CopyPlace, info: RunInfo, state: Mapping[str, Any], run: Path) -> str:
        url = str(state.get("url", ""))
        if not url.startswith(("http://", "https://")):
            return f"wandb-file:{url.partition(' (upload: ')[0]}"  # offline, in WANDB_DIR or the copy's directory
        return f"wandb:{urlsplit(url).path.replace('/runs/', '/').strip('/')}"


class _Mlflow(CopyTarget):
    scheme, form, keeps = "mlflow", "URI#EXPERIMENT", KEEPS["mlflow"]

    @classmethod
    def place(cls, where: str) -> CopyPlace:
        uri, experiment = split_address(where)
        chosen = {"MLFLOW_TRACKING_URI": uri, **({"MLFLOW_EXPERIMENT": experiment} if experiment else {})}
        return CopyPlace(text=f"mlflow:{uri}#{experiment}", options=chosen, project=experiment)

    @classmethod
    def source(cls, place: CopyPlace, info: RunInfo, state: Mapping[str, Any], run: Path) -> str:
        return f"{place.text if place.project else f'{place.text}{info.project}'}/{state.get('native_id', info.id)}"


class _Trackio(CopyTarget):
    scheme, form, keeps = "trackio", "PROJECT", KEEPS["trackio"]

    @classmethod
    def place(cls, where: str) -> CopyPlace:
        if os.environ.get("TRACKIO_SERVER_URL"):
            raise UsageError("copy reads back what it wrote, from trackio's local store: unset TRACKIO_SERVER_URL")
        folder = os.environ.get("TRACKIO_DIR", "")
        return CopyPlace(text=f"trackio:{where}@{folder}", options={"TRACKIO_SERVER_URL": ""}, project=where)

    @classmethod
    def source(cls, place: CopyPlace, info: RunInfo, state: Mapping[str, Any], run: Path) -> str:
        return f"trackio:{info.project}/{info.id}"


class _Tensorboard(CopyTarget):
    scheme, tracker, symbol, keeps = "tb", "tensorboard", "TENSORBOARD_DIR", KEEPS["tensorboard"]

    @classmethod
    def source(cls, place: CopyPlace, info: RunInfo, state: Mapping[str, Any], run: Path) -> str:
        run_id = glob.escape(info.id)
        files = Path(place.options[cls.symbol]).glob(f"*/*/*.tfevents.*.{run_id}.[0-9]*.trackers")
        folder = next((file.parent for file in files), None)  # an earlier release's files don't tell the run
        return cls.below(place, f"*/*-{run_id}", info) if folder is None else f"tb:{folder}"


class _Json(CopyTarget):
    scheme, symbol, keeps = "json", "JSON_DIR", KEEPS["json"]


class _Csv(CopyTarget):
    scheme, symbol, keeps = "csv", "CSV_DIR", KEEPS["csv"]


BUILT_IN: dict[str, type[CopyTarget]] = {
    target.scheme: target for target in (_Wandb, _Mlflow, _Trackio, _Tensorboard, _Json, _Csv)
}


def schemes() -> list[str]:
    """Schemes that a copy can go to, plug-ins' after the built-in ones."""
    return [*BUILT_IN, *sorted(plugins.targets(GROUP, but=BUILT_IN))]


def target(scheme: str) -> type[CopyTarget]:
    """What a scheme stands for.

    Raises:
        UsageError: nothing can be copied there, or the plug-in can't be loaded. MissingPackage: it is a distribution of
            ours that isn't installed.
    """
    if scheme in BUILT_IN:
        return BUILT_IN[scheme]
    named = plugins.targets(GROUP).get(scheme)
    if named is None and (command := plugins.install(scheme, "copies")):
        raise MissingPackage(f"destination {scheme!r} is a distribution of its own: {command}")
    if named is None:
        raise UsageError(f"nothing can be copied to {scheme!r}{did_you_mean(scheme, schemes())} {listed()}")
    what = f"the destination {scheme!r} of {plugins.distribution(GROUP, scheme)}"
    found = plugins.implementation(CopyTarget, what, plugins.load(what, named))
    if found.scheme != scheme:
        raise UsageError(f"{what}: its class is for the scheme {found.scheme!r}: {plugins.PAGE}")
    return found


def listed() -> str:
    """All destinations, for messages; a plug-in that can't be loaded is left out: ``doctor`` names it."""
    forms = []
    for scheme in schemes():
        try:
            forms.append(f"{scheme}:{target(scheme).form}")
        except UsageError:
            continue
    return f"{', '.join(forms)}, or a directory for journals"


class CopyDestination(CopyPlace, kw_only=True):
    """A parsed destination. target: None for a directory of journals. directory: of those."""

    target: type[CopyTarget] | None = None
    directory: str = ""

    @property
    def scheme(self) -> str:
        """What stands before the colon; "" for a directory."""
        return self.target.scheme if self.target else ""

    @property
    def tracker(self) -> str:
        """The tracker that writes the copy; "" for a directory."""
        return self.target.tracker or self.target.scheme if self.target else ""

    @property
    def capabilities(self) -> Capabilities:
        """What the destination keeps of a run."""
        wish = str(self.options.get("TRACKER_GPU_METRICS") or "machine")
        return msgspec.structs.replace(self.target.keeps if self.target else KEEPS[""], wish=wish)

    def source(self, run: RunDirectory, info: RunInfo) -> str:
        """The source that names a copied run where it is now.

        Raises:
            NotFound: it isn't there.
        """
        if self.target is None:
            return str(run.path)
        return self.target.source(self, info, read_account(run, self.tracker).state, run.path)


def _folder(text: str, needed: str) -> Path:
    """The directory that a destination names; it needn't be there.

    Raises:
        UsageError: it is a file, or another account's link leads there.
    """
    folder = Path(text).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: {needed}")
    try:
        atomic_write.real(folder)
    except OSError as error:
        raise UsageError(f"{folder} can't be written: {error.filename} {error.strerror}") from None
    return folder


def parse(text: str) -> CopyDestination:
    """Take a destination apart, and see that what it needs is installed and can be reached without a network.

    Raises:
        UsageError: an unknown scheme, a missing package or login, a path that can't be written.
    """
    from trackers import configuration
    from trackers.backends import registry

    match = re.fullmatch(r"([A-Za-z][A-Za-z0-9_\-]+):(.*)", text, re.DOTALL)
    if not text or (match is None and "://" in text):
        raise UsageError(f"copy needs a destination: {listed()}")
    if match is None:
        folder = _folder(text, f"a directory gets journals; other destinations: {listed()}")
        return CopyDestination(text=str(folder), directory=str(folder))
    kind = target(match[1])
    place = kind.place(match[2])
    options = {**configuration.resolve().to_dict(), **place.options, "TRACKER_MODE": "online"}
    destination = CopyDestination(text=place.text, options=options, project=place.project, target=kind)
    registry.check(destination.tracker, destination.options)
    return destination
