"""Configuration files made, changed and shown: what `make menuconfig`, `defconfig` and `trackers show-config` do."""

from __future__ import annotations

import difflib
import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from trackers.configuration import files
from trackers.configuration.declaration import Declaration
from trackers.configuration.kconfig import Tree
from trackers.configuration.options import VARIABLES, Options, environment_assignments
from trackers.configuration.search_path import KCONFIG, find_root
from trackers.configuration.trusted import HOW
from trackers.errors import ConfigError, UsageError, examples
from trackers.support import atomic_write, confined

_SECRET = re.compile(r"([?&](?:write_token|access_token|token|api_key|password)=)[^&#]+|(?<=://)([^/@:]*):[^/@]+@")
_BETWEEN_SIGNS = re.compile(r"(?<=[{}<>;])_(?=[{}<>&])")
"""An underscore that Markdown takes for emphasis."""


def masked_value(value: Any) -> Any:
    """A value that may be shown: passwords and tokens inside addresses are masked."""
    if not isinstance(value, str):
        return value
    return _SECRET.sub(lambda match: f"{match.group(1)}***" if match.group(1) else f"{match.group(2)}:***@", value)


def as_text(options: Options) -> str:
    """One line for each option: symbol, value, where it came from."""
    rows = [(name, _kconfig(masked_value(value)), options.source(name)) for name, value in options.items()]
    widths = [min(80, max(len(row[column]) for row in rows)) for column in (0, 1)]  # not as one odd text is
    return "\n".join(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}" for name, value, source in rows)


def as_json(options: Options) -> dict[str, dict[str, Any]]:
    """value and source by symbol."""
    return {name: {"value": masked_value(value), "source": options.source(name)} for name, value in options.items()}


def as_markdown(declarations: Mapping[str, Declaration]) -> str:
    """The reference of all options, a table for each menu."""
    parts = []
    for menu, group in groupby(declarations.values(), key=lambda declaration: declaration.menu):
        rows = "\n".join(_table_row(declaration) for declaration in group)
        parts.append(f"### {menu}\n\n| option | flag | values | default | |\n|---|---|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def _table_row(declaration: Declaration) -> str:
    needs = f" Needs `{declaration.depends}`." if declaration.depends else ""
    cells = (
        f"`{declaration.symbol}`",
        f"`{declaration.flag}`" + (f", `--no-{declaration.flag[2:]}`" if declaration.kind == "bool" else ""),
        _values(declaration),
        f"`{_kconfig(declaration.default)}`",
        _BETWEEN_SIGNS.sub(r"\_", declaration.help.replace("|", "\\|").replace("<", "&lt;")) + needs,
    )
    return f"| {' | '.join(cells)} |"


def _values(declaration: Declaration) -> str:
    if declaration.choices:
        return ", ".join(declaration.choices)
    if declaration.limits:
        return f"{declaration.limits[0]} to {declaration.limits[1]}"
    return {"bool": "y, n", "string": "text"}.get(declaration.kind, "number")


def _kconfig(value: Any) -> str:
    if isinstance(value, bool):
        return "y" if value else "n"
    return f'"{value}"' if isinstance(value, str) else str(value)


class Workspace:
    """The configuration of one directory: its Kconfig tree and its ``.config``.

    Args:
        environ, cwd: as for :func:`trackers.configuration.resolve`.

    Raises:
        ConfigError: the Kconfig tree can't be read.
    """

    def __init__(self, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        self.environ = os.environ if environ is None else environ
        self.cwd = Path.cwd() if cwd is None else cwd
        root = find_root(self.environ, self.cwd)
        if root.refused:
            raise ConfigError(f"Kconfig {root.refused}; {HOW}")
        self.tree = Tree(root.path, trusted=root.trusted or root.path == KCONFIG, environ=self.environ)
        self._remarks: list[str] = []
        self.path = files.config_path(self.environ, self.cwd)
        self.label = str(self.path.relative_to(self.cwd)) if self.path.is_relative_to(self.cwd) else str(self.path)

    def load(self, *, drop_unknown: bool = False) -> list[str]:
        """Take the values of ``.config``, if there is one.

        Returns:
            one message for each unknown option that was dropped.

        Raises:
            ConfigError: the file has a mistake, or belongs to another program's tree.
        """
        if not self.path.is_file():
            return []
        contents = files.read(
            self.path, self.label, self.tree, explicit=False, drop_unknown=drop_unknown, root=self._root()
        )
        self._check_ours(contents)
        self.tree.assign(contents.assignments)
        self._remarks = contents.remarks
        return contents.dropped

    @property
    def remarks(self) -> list[str]:
        """A line for each value of the surrounding tree that the file gave and that isn't taken, as conf warns."""
        return [*self._remarks, *self.tree.remarks()]

    def defconfig(self, name: str, variables: Iterable[str] = ()) -> str:
        """Write ``.config`` from a defconfig, every option resolved. Returns a message for people.

        Args:
            name: name or path of the defconfig.
            variables: environment variables whose values go into the file too (``make TRACKER=wandb defconfig``).
                Those that no option is called after are left out.

        Raises:
            ConfigError: a value is of the wrong form, or a variable is called nearly as an option.
        """
        path, label = files.find_defconfig(name, self.cwd)
        self._check_writable()
        root = files.untrusted(path, self.cwd, name)
        contents = files.read(path, label, self.tree, explicit=True, root=root)
        self.tree.assign(contents.assignments)
        self._remarks = contents.remarks
        chosen = {variable: self.environ[variable] for variable in variables if variable in self.environ}
        for variable in chosen:
            self._check_spelling(variable)
        self.tree.assign(environment_assignments(self.tree, chosen))
        return self.write()

    def olddefconfig(self) -> tuple[str, list[str]]:
        """Bring ``.config`` up to date: new options get their defaults, unknown ones are dropped, each with a message.

        Returns:
            what was done, and the messages.
        """
        dropped = self.load(drop_unknown=True)
        return self.write(), dropped

    def savedefconfig(self, target: Path, *, force: bool = False) -> str:
        """Write what differs from the defaults to ``target``.

        Args:
            force: it may be a file that is no configuration.

        Raises:
            ConfigError: it is ``.config`` itself, or a file of another kind.
        """
        try:
            atomic_write.check(target, inputs=[self.path], ours=_is_configuration, force=force)
        except UsageError as error:
            raise ConfigError(str(error)) from None
        self.load()
        return self._save(self.tree.kconf.write_min_config, target)

    def allconfig(self, yes: bool) -> str:
        """Write ``.config`` with every bool y, or n."""
        self._check_writable()
        for symbol in self.tree.kconf.unique_defined_syms:
            if not symbol.choice:
                symbol.set_value(2 if yes else 0)
        return self.write()

    def oldconfig(self) -> str:
        """Ask on the terminal for every option that ``.config`` doesn't set, then write it."""
        import oldconfig  # type: ignore[import-untyped]

        _check_terminal("oldconfig", "olddefconfig takes the defaults without asking")
        self.load(drop_unknown=True)
        changed = True
        while changed:  # an answer can make further options visible
            oldconfig.conf_changed = False
            for node in self.tree.kconf.node_iter():
                oldconfig.oldconfig(node)
            changed = oldconfig.conf_changed
        return self.write()

    def menuconfig(self) -> None:
        """Show the menu on the terminal; it writes ``.config`` when the user saves.

        Raises:
            ConfigError: no terminal, or what was saved holds a value that no tracker can use.
        """
        _check_terminal("menuconfig", f"edit {self.label}, or write it with `trackers defconfig NAME`")
        try:
            import curses

            import menuconfig  # type: ignore[import-untyped]
        except ImportError as error:
            raise ConfigError(
                f"menuconfig needs Python's curses module (on Windows: windows-curses): {error}"
            ) from None
        self.load()
        kconf = self.tree.kconf
        kconf.load_config = self._load_for_menu
        kconf.write_config = partial(self._save_for_menu, partial(kconf.write_config, save_old=False), True)
        kconf.write_min_config = partial(self._save_for_menu, kconf.write_min_config, False)
        try:
            menuconfig.menuconfig(kconf)
        except curses.error as error:
            raise ConfigError(
                f"menuconfig can't draw on this terminal (TERM={self.environ.get('TERM', '')}): {error}"
            ) from None
        Workspace(self.environ, self.cwd).load()

    def write(self) -> str:
        """Write every option to ``.config``; the file that was there becomes ``.config.old``."""
        self._check_writable()
        for name in self.tree.declarations:
            if any(char in str(self.tree.value(name)) for char in "\r\n"):
                raise ConfigError(f"{name} holds a line break, which a configuration file can't: leave it out there")
        return self._save(partial(self.tree.kconf.write_config, save_old=False), self.path, self._root(), keep=True)

    def _save(self, write: Callable[[str], str], path: Path, root: Path | None = None, *, keep: bool = False) -> str:
        """Write a file whole. root: a directory whose files are data: no link is followed to it. keep: what it replaces
        stays beside it, as ``.old``, in place of a link of that name."""
        try:
            confines = root is not None and os.path.lexists(path)
            before = confined.read(path, root=root) if confines else path.read_bytes() if path.is_file() else None
            with atomic_write.replacing_file(path, follow=root is None) as new:
                message = write(str(new)).replace(str(new), str(path))
                same = path != new and before == new.read_bytes()
                if keep and before is not None and not same:
                    confined.write_whole(path.with_name(f"{path.name}.old"), before, root=path.parent)
        except OSError as error:
            raise ConfigError(f"{path} can't be written: {error.strerror or error}") from None
        except UnicodeEncodeError as error:
            line = error.object[: error.start].count("\n") + 1
            raise ConfigError(f"{path} can't be written: what line {line} would be isn't valid UTF-8") from None
        return (f"No change to {path}" if same else message).replace(str(self.cwd) + os.sep, "")

    def _load_for_menu(self, filename: str | None = None, replace: bool = True, verbose: Any = None) -> str:
        # kconfiglib's own reader is silent about mistakes and doesn't know CONFIG_TRACKER_MODE="offline".
        if filename is None:
            return f"Configuration of {self.label}"
        try:
            contents = files.read(Path(filename), filename, self.tree, explicit=True)
            self.tree.kconf.unset_values()
            self.tree.assign(contents.assignments)
        except ConfigError as error:
            raise OSError(errno.EINVAL, str(error)) from None
        return f"Loaded {filename}"

    def _save_for_menu(self, write: Callable[[str], str], keep: bool, filename: str) -> str:
        path = Path(os.path.abspath(self.cwd / filename))
        root = self._root() if path == self.path else files.untrusted(path, self.cwd)
        try:
            return self._save(write, path, root, keep=keep)
        except ConfigError as error:
            raise OSError(errno.EINVAL, str(error), filename) from None

    def _root(self) -> Path | None:
        return files.untrusted(self.path, self.cwd, self.environ.get("KCONFIG_CONFIG", ""))

    def _check_writable(self) -> None:
        if self.path.is_file():
            contents = files.read(
                self.path, self.label, self.tree, explicit=False, drop_unknown=True, root=self._root()
            )
            self._check_ours(contents)

    def _check_spelling(self, variable: str) -> None:
        known = self.tree.knows(variable) or self.tree.knows_elsewhere(variable) or variable in VARIABLES
        if not known:
            near = difflib.get_close_matches(variable, self.tree.declarations, n=1, cutoff=0.85)
            if near:
                raise ConfigError(f"{variable} isn't an option: did you mean {near[0]}?")

    def _check_ours(self, contents: files.Contents) -> None:
        if contents.strangers:
            raise ConfigError(
                f"{self.label} belongs to another Kconfig tree (it sets CONFIG_{examples(contents.strangers[:1])}) and "
                "is left as it is: work in another directory, or name that tree in TRACKER_KCONFIG"
            )


def _is_configuration(path: Path, head: bytes) -> bool:
    lines = [line for line in head.splitlines() if line.strip()]
    return bool(lines) and all(line.startswith((b"#", b"CONFIG_")) for line in lines)


def _check_terminal(command: str, instead: str) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(f"{command} needs a terminal: {instead}")
