"""``trackers setup``: environments in which deliveries run, made for trackers whose packages aren't in training's."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trackers.cli.common import AsJson, printable

_Python = Annotated[
    str, typer.Option("--python", metavar="VERSION|PATH", help="Another Python, as in 3.12; default: this one.")
]
_Wheels = Annotated[
    str, typer.Option("--from", metavar="DIR", help="Install from the wheels in this folder, without a network.")
]


class _Group(TyperGroup):
    """``setup TRACKER…`` is ``setup install TRACKER…``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command in front that isn't written."""
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["install", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="setup", cls=_Group, no_args_is_help=True,
    help="Environments for trackers, in which their deliveries run: setup wandb mlflow.",
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.command("install")
def install(
    trackers: Annotated[list[str], typer.Argument(metavar="TRACKER…", help="As in wandb mlflow.")],
    python: _Python = "",
    wheels: _Wheels = "",
    download: Annotated[
        str, typer.Option("--download", metavar="DIR", help="Only put the wheels that are needed into this folder.")
    ] = "",
) -> None:
    """Make an environment for each tracker: `trackers setup wandb` is the same. Deliveries to it run there by
    themselves, unless training's environment has a client that does.

    It is installed by uv, or by venv and pip, in the versions that the tests ran with.

    Example: trackers setup wandb mlflow; trackers setup wandb --download wheels; trackers setup wandb --from wheels
    """
    from trackers.errors import UsageError
    from trackers.support import environments

    if download and wheels:
        raise UsageError("--download gets wheels from a package index, --from installs them: give one of both")
    if wheels and not Path(wheels).is_dir():
        raise UsageError(f"--from {wheels}: no such folder; `trackers setup … --download DIR` fills one")
    planned = [(name, *_plan(name)) for name in dict.fromkeys(trackers)]
    for name, wanted, imports in planned:
        if download:
            environments.download(wanted, download, python=python)
            print(f"{name}: the wheels are in {printable(download)}; where they are needed: "
                  f"trackers setup {name} --from {printable(download)}")  # fmt: skip
        else:
            _show(environments.make(name, wanted, imports, python=python, wheels=wheels, say=_say), imports)


@app.command("list")
def list_made(as_json: AsJson = False) -> None:
    """List the environments that were made, with what is in them.

    Example: trackers setup list --json
    """
    from trackers.support import environments

    made = environments.all_made()
    if as_json:
        print(json.dumps([{**one._asdict(), "bytes": one.size_bytes(), "current": _is_current(one)} for one in made]))
        return
    for one in made:
        outdated = "" if _is_current(one) else f"; outdated: trackers setup upgrade {one.tracker}"
        _show(one, _plan(one.tracker)[1], outdated)
    if not made:
        print("no environments were made: trackers setup wandb makes one", file=sys.stderr)


@app.command("rm")
def rm(trackers: Annotated[list[str], typer.Argument(metavar="TRACKER…", help="Whose environments go.")]) -> None:
    """Remove environments that were made.

    Example: trackers setup rm mlflow
    """
    from trackers.support import environments

    for made in _named(trackers):
        environments.remove(made)
        print(f"{made.tracker}: {made.folder} is removed")


@app.command("upgrade")
def upgrade(
    trackers: Annotated[
        list[str] | None, typer.Argument(metavar="[TRACKER…]", help="Whose environments; default: all.")
    ] = None,
    wheels: _Wheels = "",
) -> None:
    """Make environments anew whose versions aren't those that this release was tested with.

    A delivery that is running goes on with the old one.

    Example: trackers setup upgrade
    """
    from trackers.support import environments

    for made in _named(trackers or [one.tracker for one in environments.all_made()]):
        if _is_current(made):
            print(f"{made.tracker}: is up to date")
        else:
            wanted, imports = _plan(made.tracker)
            _show(environments.make(made.tracker, wanted, imports, python=made.base, wheels=wheels, say=_say), imports)


def _named(trackers: list[str]) -> list[Any]:
    from trackers.errors import UsageError
    from trackers.support import environments

    made = {one.tracker: one for one in environments.all_made()}
    for name in trackers:
        if name not in made:
            raise UsageError(f"no environment was made for {name!r}: {', '.join(made) or 'there is none'}")
    return [made[name] for name in dict.fromkeys(trackers)]


def _plan(name: str) -> tuple[list[str], list[str]]:
    """What a tracker's environment is made of, and the modules that it must have."""
    from trackers.backends import registry
    from trackers.errors import UsageError
    from trackers.support import environments

    imports = list(registry.precheck(name).needs)
    if not imports:
        raise UsageError(f"tracker {name!r} needs no package, and so no environment")
    return environments.requirements(name, registry.distribution(name)), imports


def _is_current(made: Any) -> bool:
    """Whether an environment has what would be installed now."""
    from trackers.support import environments

    wanted, _ = _plan(made.tracker)
    return made.requirements == wanted and environments.has_tested_versions(made)


def _show(made: Any, imports: list[str], note: str = "") -> None:
    packages = {name.lower(): version for name, version in made.packages.items()}
    versions = ", ".join(f"{name} {packages.get(name, '?')}" for name in imports)
    day = time.strftime("%Y-%m-%d", time.localtime(made.made))
    print(f"{made.tracker}: {versions}, Python {made.version}, {made.size_bytes() / 1e6:.0f} MB, made {day} in "
          f"{printable(made.folder)}{note}")  # fmt: skip


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr)
