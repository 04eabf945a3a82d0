"""The configuration commands: menuconfig, defconfig, savedefconfig, olddefconfig, list-defconfigs, show-config, …"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trackers.cli import completion
from trackers.cli.common import AsJson, Force, mistaken, printable
from trackers.support.terminal import lines

if TYPE_CHECKING:
    from trackers.configuration.menu import Workspace

_Variables = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME", help="Also write this environment variable's value into the file."),
]


group = typer.Typer(
    name="config", help="Options: show-config, menuconfig, defconfig, … (Kconfig's commands).", no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the configuration commands to the program, under the names that Kconfig's tools have, and to their group."""
    for name, command in _COMMANDS.items():
        app.command(name, hidden=True)(command)
        group.command(name)(command)


def show_config(
    defconfig: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|PATH", help="File to read instead of .config.", autocompletion=completion.defconfigs
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the reference of all options.")] = False,
) -> None:
    """Show every option's value and where it came from; exit code 2 where a tracker is named that doesn't exist."""
    from trackers.configuration import menu
    from trackers.configuration.kconfig import declared
    from trackers.configuration.options import resolve

    if as_markdown:
        typer.echo(menu.as_markdown(declared()[0]), nl=False)
        return
    options = resolve(defconfig=defconfig)
    if as_json:
        typer.echo(json.dumps(menu.as_json(options), indent=2))
    else:
        typer.echo(lines(menu.as_text(options)))
        if interpreters := _interpreters(options):
            typer.echo("\n" + "\n".join(interpreters))
    wrong = mistaken(options)
    for text in wrong:
        typer.echo(f"trackers: {printable(text, 1000)}", err=True)
    if wrong:
        raise typer.Exit(2)


def _interpreters(options: Any) -> list[str]:
    """Which Python delivers to each tracker of a configuration that needs a package."""
    from trackers.backends import registry
    from trackers.errors import TrackersError

    found = []
    try:
        names = registry.parse(str(options["TRACKER"]))
        pythons = registry.other_pythons(names, options)
        for name in names:
            if name in pythons or (registry.precheck(name).needs and registry.works_here(name)):
                found.append(f"{name}: {registry.delivered_by(name, pythons)}")
            elif registry.precheck(name).needs:
                found.append(f"{name}: no Python here can deliver to it: trackers setup {name}")
    except TrackersError:  # ``mistaken`` says it
        pass
    return found


def list_defconfigs(as_json: AsJson = False) -> None:
    """List the defconfigs that can be named here, with what each is for."""
    from trackers.configuration import files

    defconfigs = files.list_defconfigs(Path.cwd())
    if as_json:
        listed = [{"name": name, "path": str(path), "about": files.describe(path)} for name, path in defconfigs.items()]
        typer.echo(json.dumps(listed, indent=2))
        return
    width = max(map(len, defconfigs), default=0)
    for name, path in defconfigs.items():
        typer.echo(lines(f"{name:<{width}}  {files.describe(path)}".rstrip()))


def defconfig(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|PATH", help="A defconfig's name, or a file.", autocompletion=completion.defconfigs
        ),
    ],
    env: _Variables = None,
) -> None:
    """Write .config from a defconfig, with every option resolved."""
    from trackers.configuration.menu import Workspace
    from trackers.configuration.options import resolve

    workspace = Workspace()
    typer.echo(workspace.defconfig(name, env or ()))
    _warn(workspace)
    for text in mistaken(resolve()):  # a plug-in may be installed where training runs
        typer.echo(f"trackers: {printable(text, 1000)}", err=True)


def savedefconfig(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("defconfig"), force: Force = False
) -> None:
    """Write what .config changes from the defaults to a file of its own."""
    from trackers.configuration.menu import Workspace

    workspace = Workspace()
    typer.echo(workspace.savedefconfig(path, force=force))
    _warn(workspace)


def olddefconfig() -> None:
    """Bring .config up to date: new options get their defaults, unknown ones are dropped."""
    from trackers.configuration.menu import Workspace

    workspace = Workspace()
    done, dropped = workspace.olddefconfig()
    for message in dropped:
        typer.echo(f"dropped: {message}", err=True)
    _warn(workspace)
    typer.echo(done)


def oldconfig() -> None:
    """Ask for the options that .config doesn't set yet."""
    from trackers.configuration.menu import Workspace

    workspace = Workspace()
    done = workspace.oldconfig()
    _warn(workspace)
    typer.echo(done)


def menuconfig() -> None:
    """Change the options in a menu on the terminal."""
    from trackers.configuration.menu import Workspace

    Workspace().menuconfig()


def allyesconfig() -> None:
    """Write .config with every yes-or-no option y."""
    from trackers.configuration.menu import Workspace

    typer.echo(Workspace().allconfig(yes=True))


def allnoconfig() -> None:
    """Write .config with every yes-or-no option n."""
    from trackers.configuration.menu import Workspace

    typer.echo(Workspace().allconfig(yes=False))


def kconfig() -> None:
    """Print the path of the Kconfig file, for a tree that sources it."""
    from trackers.configuration.search_path import KCONFIG

    typer.echo(KCONFIG)


def trust(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The directory, without those below.")] = Path(
        "."
    ),
    remove: Annotated[bool, typer.Option("--remove", help="Trust it no longer.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the directories that are trusted.")] = False,
) -> None:
    """Let a directory's own Kconfig, .config and defconfigs name programs, addresses and files elsewhere."""
    from trackers.configuration import trusted

    if list_all:
        for path in trusted.directories():
            typer.echo(printable(str(path), 4096))
    elif remove:
        typer.echo(f"{printable(str(trusted.distrust(directory)), 4096)} is trusted no longer")
    else:
        typer.echo(
            f"{printable(str(trusted.trust(directory)), 4096)} is trusted; `trackers trust --remove` takes it back"
        )


def _warn(workspace: Workspace) -> None:
    """Print what the surrounding tree didn't take of the file."""
    for text in workspace.remarks:
        typer.echo(f"warning: {printable(text, 1000)}", err=True)


_COMMANDS: dict[str, Callable[..., None]] = {
    "show-config": show_config, "menuconfig": menuconfig, "list-defconfigs": list_defconfigs, "defconfig":
    defconfig, "savedefconfig": savedefconfig, "olddefconfig": olddefconfig, "oldconfig": oldconfig, "allyesconfig":
    allyesconfig, "allnoconfig": allnoconfig, "kconfig": kconfig, "trust": trust,
}  # fmt: skip
