"""Every option's value, and where it came from; the command-line flags of a script's own argparse parser."""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trackers.backends import registry
from trackers.configuration import files, plugin_options, trusted
from trackers.configuration.declaration import BOOLEANS, INSTRUCTIONS, OPENING, Assignment, Declaration, is_directory
from trackers.configuration.kconfig import Tree, declared
from trackers.configuration.search_path import KCONFIG, PATH_VARIABLE, find_root
from trackers.errors import ConfigError, UsageError, quoted
from trackers.support import plugins

if TYPE_CHECKING:
    import argparse


DEFCONFIG = "--tracker-defconfig"
SHORT_DEFCONFIG = "--defconfig"
HELP = "--tracker-help"
GROUP = "experiment tracking"
USUAL = frozenset(
    {
        "TRACKER", "TRACKER_PROJECT", "TRACKER_RUN_NAME", "TRACKER_RUN_ID", "TRACKER_RESUME", "TRACKER_GROUP",
        "TRACKER_TAGS", "TRACKER_NOTES", "TRACKER_DIR", "TRACKER_MODE",
    }
)  # fmt: skip
"""Options whose flags a script's ``--help`` shows; ``--tracker-help`` shows all."""
SWEEP_RUN = "TRACKER_SWEEP_RUN"
"""Environment variable by which a sweep gives a program the id of its first run."""


def add_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add ``--tracker``, ``--tracker-project``, … and ``--tracker-defconfig`` to a parser, as a group of its own.

    Each option of the Kconfig file gets a flag that begins with ``--tracker``, bools a ``--no-`` form too. What isn't
    given stays None, so that the other ways to set an option count. ``--help`` shows those that most runs need, and
    ``--tracker-help`` all of them. An unknown flag that begins so is answered with the nearest.
    ``--defconfig`` is short for ``--tracker-defconfig``, where the script has no flag of that name.

    Raises:
        UsageError: the parser has one of these flags already.
    """
    import argparse

    declarations = declared()[0].values()
    flags = [DEFCONFIG, HELP, *(flag for d in declarations for flag in _spellings(d))]
    _check_free(parser, flags)
    short = [] if _is_taken(parser, SHORT_DEFCONFIG) else [SHORT_DEFCONFIG]
    group = parser.add_argument_group(GROUP)
    _add_defconfig(group, short)
    for declaration in declarations:
        _add(group, declaration, hidden=declaration.symbol not in USUAL)
    group.add_argument(HELP, action=_help_action(argparse), help="Show all flags of experiment tracking and exit.")
    _name_nearest(parser, [*flags, *short])
    return group


def flags_from_args(namespace: argparse.Namespace) -> tuple[dict[str, Any], str | None]:
    """What the command line gave, as ``configuration.resolve`` takes it: flags by symbol, and the defconfig."""
    flags = {name: getattr(namespace, option.attribute, None) for name, option in declared()[0].items()}
    assigned = {name: value for name, value in flags.items() if value is not None}
    return assigned, getattr(namespace, "tracker_defconfig", None)


def _add_defconfig(group: argparse._ArgumentGroup, short: list[str]) -> None:
    group.add_argument(
        DEFCONFIG,
        *short,
        metavar="NAME|PATH",
        help="File of options to read rather than .config: a name (`trackers list-defconfigs`) or a path.",
    )


def _add(group: argparse._ArgumentGroup, declaration: Declaration, *, hidden: bool = False) -> None:
    import argparse

    help_text = declaration.help.replace("%", "%%")
    if declaration.symbol == "TRACKER":
        help_text += f" Built in: {', '.join(sorted(registry.BUILT_IN))}."
    help_text = argparse.SUPPRESS if hidden else help_text
    if declaration.kind == "bool":
        group.add_argument(declaration.flag, action=argparse.BooleanOptionalAction, default=None, help=help_text)
    elif declaration.choices:
        group.add_argument(declaration.flag, choices=declaration.choices, help=help_text)
    elif declaration.kind == "int":
        group.add_argument(declaration.flag, type=int, metavar="N", help=help_text)
    else:
        group.add_argument(declaration.flag, metavar="TEXT", help=help_text)


def _help_action(argparse: Any) -> Any:
    """The class of an action that prints the help of all flags, by the menus of the Kconfig file."""

    class AllFlags(argparse.Action):  # type: ignore[misc]
        def __init__(self, option_strings: list[str], dest: str, help: str | None = None, **_: Any) -> None:
            super().__init__(option_strings, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, nargs=0, help=help)

        def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
            parser._print_message(all_flags(parser.prog), sys.stdout)
            parser.exit()

    return AllFlags


def all_flags(program: str) -> str:
    """The help of all flags of :func:`add_arguments`, by the menus of the Kconfig file."""
    import argparse

    whole = argparse.ArgumentParser(prog=program, usage=f"{program} [flags]", add_help=False, allow_abbrev=False)
    groups: dict[str, argparse._ArgumentGroup] = {}
    for declaration in declared()[0].values():
        if declaration.menu not in groups:
            groups[declaration.menu] = whole.add_argument_group(declaration.menu)
            if len(groups) == 1:
                _add_defconfig(groups[declaration.menu], [])
        _add(groups[declaration.menu], declaration)
    return whole.format_help()


LIKE, ALIKE = 0.6, 0.85
"""How similar a flag of ours must be to what was given; the latter where the script may have been meant."""


def _name_nearest(parser: argparse.ArgumentParser, flags: list[str]) -> None:
    """Let the parser's error about flags that nobody knows name the nearest of ours."""
    refuse = parser.error
    old = {flag.replace("--tracker-", "--").replace("--no-tracker-", "--no-"): flag for flag in flags}

    def error(message: str) -> NoReturn:
        hints = []
        for word in message.split():
            flag = word.partition("=")[0]
            if flag.startswith("--") and flag not in flags and "unrecognized" in message:
                ours = flag.startswith(("--tracker", "--no-tracker"))
                like = LIKE if ours else ALIKE
                near = old.get(flag) or next(iter(difflib.get_close_matches(flag, flags, n=1, cutoff=like)), None)
                hints += [f"did you mean {near}?"] if near else []
        refuse(f"{message}: {' '.join(hints)} {HELP} lists all" if hints else message)

    parser.error = error  # type: ignore[method-assign]


def _spellings(declaration: Declaration) -> list[str]:
    flag = declaration.flag
    return [flag, "--no-" + flag.removeprefix("--")] if declaration.kind == "bool" else [flag]


def _is_taken(parser: argparse.ArgumentParser, flag: str) -> bool:
    # Both would write to one attribute of the namespace even where only the attribute's name is the same.
    attribute = flag.removeprefix("--").replace("-", "_")
    return any(flag in action.option_strings or attribute == action.dest for action in parser._actions)


def _check_free(parser: argparse.ArgumentParser, flags: list[str]) -> None:
    for flag in flags:
        if _is_taken(parser, flag):
            raise UsageError(
                f"the parser already has {flag}: remove it there (trackers.add_arguments adds it), "
                "or pass its value to trackers.init yourself and don't call add_arguments"
            )


DEFAULT = "default"
ENVIRONMENT = "environment"
ARGUMENT = "argument"

_OF_COMMANDS = {"TRACKER_DEFCONFIG", "TRACKER_KCONFIG", *map(plugins.flag_variable, plugins.ours("flag"))}
_NOT_OPTIONS = frozenset({*_OF_COMMANDS, plugins.VARIABLE, PATH_VARIABLE})
WANDB_VARIABLES = {
    "TRACKER_PROJECT": ("WANDB_PROJECT",),
    "TRACKER_RUN_NAME": ("WANDB_NAME",),
    "TRACKER_RUN_ID": ("WANDB_RUN_ID",),
    "TRACKER_RESUME": ("WANDB_RESUME",),
    "TRACKER_GROUP": ("WANDB_RUN_GROUP",),
    "TRACKER_JOB_TYPE": ("WANDB_JOB_TYPE",),
    "TRACKER_TAGS": ("WANDB_TAGS",),
    "TRACKER_NOTES": ("WANDB_NOTES",),
    "TRACKER_DIR": ("WANDB_DIR",),
    "TRACKER_MODE": ("WANDB_DISABLED", "WANDB_MODE"),
}
"""Options and the variables with which W&B's users set the same; ours are stronger, in the environment and in files.

https://docs.wandb.ai/guides/track/environment-variables
"""
WANDB_MODES = frozenset({"online", "offline", "dryrun", "shared", "run"})
"""Words for which a run isn't switched off."""
VARIABLES = (
    _NOT_OPTIONS
    | {"WANDB_MODE", "MEGATRON_BRIDGE_LOGGING_LEVEL", "MLFLOW_EXPERIMENT_NAME"}
    | {variable for variables in WANDB_VARIABLES.values() for variable in variables}
)
"""Variables that are no option's name and mean something all the same."""


class Options(Mapping[str, Any]):
    """Options by Kconfig symbol, without ``CONFIG_``: ``options["TRACKER_PROJECT"]``. Values are bool, int or str."""

    def __init__(self, values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
        self._values = dict(values)
        self._sources = dict(sources)

    def __getitem__(self, symbol: str) -> Any:
        return self._values[symbol]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Options({self._values!r})"

    def source(self, symbol: str) -> str:
        """Where a value came from.

        "default", ".config:3", "defconfigs/gpt2-local:2", "environment", "flag --tracker-project" or "argument".
        """
        if symbol not in self._values:
            raise KeyError(symbol)
        return self._sources.get(symbol, DEFAULT)

    def to_dict(self) -> dict[str, Any]:
        """The plain values, fit for JSON."""
        return dict(self._values)


def _current_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the current directory was deleted: change to one that exists") from None


def resolve(
    arguments: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    *,
    defconfig: str | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    project_file: bool = True,
) -> Options:
    """Work out every option. Later wins: Kconfig default, file, environment, flag, argument.

    Args:
        arguments: what ``init`` was given, by symbol. None: not given. Options of a plug-in that declares none begin
            with its name (SQLITE_FILE of tracker sqlite) and are kept as they are.
        flags: what the command line gave, by symbol. None: not given.
        defconfig: name or path of the file to read, rather than ``.config``. None: what the environment's
            TRACKER_DEFCONFIG says, else ``.config`` where there is one.
        environ: None for the process's own. An empty variable counts as not set.
        cwd: None for the process's own.
        project_file: False leaves ``cwd``'s own ``.config`` out: only what the user named counts.

    Raises:
        ConfigError: an option that is unknown, of the wrong form, or whose dependency is unmet.
    """
    environ = os.environ if environ is None else environ
    cwd = _current_directory() if cwd is None else cwd
    root = find_root(environ, cwd)
    if root.refused:
        _warn(str(cwd / "Kconfig"), f"Kconfig {root.refused}, so it doesn't count here; {trusted.HOW}")
    with _shallow(root.path), Tree(root.path, trusted=root.trusted or root.path == KCONFIG, environ=environ) as tree:
        named = defconfig or environ.get("TRACKER_DEFCONFIG") or environ.get("KCONFIG_CONFIG")
        sources = {}
        if project_file or named:
            sources = tree.assign(file_assignments(tree, defconfig or environ.get("TRACKER_DEFCONFIG"), environ, cwd))
        sources |= tree.assign(environment_assignments(tree, environ))
        sources |= tree.assign(_wandb_assignments(tree, environ, sources))
        sources |= tree.assign(_assignments(tree, flags, None))
        sources |= tree.assign(
            _assignments(tree, {n: v for n, v in (arguments or {}).items() if tree.knows(n)}, ARGUMENT)
        )
        if tree.unused:
            _warn_of_unused(tree)
        values = {name: tree.value(name) for name in tree.declarations}
        others = {n: v for n, v in (arguments or {}).items() if v is not None and not tree.knows(n)}
        others = {n: v for n, v in others.items() if not _is_absent(n, str(values["TRACKER"]))}
        _check_plugins(tree, others, str(values["TRACKER"]))
        given = _of_chosen_plugins(tree, str(values["TRACKER"]))
        sources |= {name: assignment.source for name, assignment in given.items()} | dict.fromkeys(others, ARGUMENT)
        return Options({**values, **{name: assignment.value for name, assignment in given.items()}, **others}, sources)


@contextlib.contextmanager
def _shallow(path: Path) -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise ConfigError(f"{path}: its defaults or conditions refer to one another in too long a chain") from None


def file_assignments(tree: Tree, defconfig: str | None, environ: Mapping[str, str], cwd: Path) -> list[Assignment]:
    """What the named defconfig gives, or the directory's own ``.config``.

    Where the user doesn't trust the directory, its ``.config`` and its defconfigs name no programs, no addresses, and
    nothing outside of it (:func:`trusted.is_harmless`): only a file that is named by its path does.
    """
    if defconfig:
        path, label = files.find_defconfig(defconfig, cwd)
        root = files.untrusted(path, cwd, defconfig)
        return _harmless(_read(path, label, tree, explicit=True, root=root), tree, root)
    path = files.config_path(environ, cwd)
    if not path.is_file():  # ~/.config is a folder
        return []
    label = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
    root = files.untrusted(path, cwd, environ.get("KCONFIG_CONFIG", ""))
    return _harmless(_read(path, label, tree, explicit=False, root=root), tree, root)


def _read(path: Path, label: str, tree: Tree, *, explicit: bool, root: Path | None) -> list[Assignment]:
    """A file's values; what can't count, as its distribution isn't installed, is said once."""
    contents = files.read(path, label, tree, explicit=explicit, root=root)
    for text in contents.dropped:
        _warn(text, text)
    return contents.assignments


def _harmless(assignments: list[Assignment], tree: Tree, home: Path | None) -> list[Assignment]:
    """Those that a file in ``home`` may give; None: it is the user's own."""
    if home is None:
        return assignments
    kept = []
    for assignment in assignments:
        symbol, value, source = assignment
        option, value = tree.members[symbol] if symbol in tree.members and value == "y" else (symbol, value)
        declaration = tree.declarations.get(option)
        needs = tree.takes(option) if declaration is None else declaration.needs_trust
        default = declaration is not None and value == str(declaration.default)
        known = option in (INSTRUCTIONS | OPENING.keys()) or is_directory(option)
        if not needs or default or (known and trusted.is_harmless(option, value, home)):
            kept.append(assignment)
        else:
            _warn(
                f"{home}: {source}",
                f"{source}: {option} is left out: a file that merely lies in a directory names no programs, no "
                f"addresses, no readers and nothing outside of it; {trusted.HOW} (or export {option})",
            )
    return kept


def _warn(key: str, text: str) -> None:
    if key not in _warned:
        _warned.add(key)
        logging.getLogger("trackers.configuration").warning("%s", text)


def _warn_of_unused(tree: Tree) -> None:
    if str(tree.root) not in _warned:
        _warned.add(str(tree.root))
        named = ", ".join(dict.fromkeys(f"{assignment.symbol} ({assignment.source})" for assignment in tree.unused[:5]))
        logging.getLogger("trackers.configuration").warning(
            "nothing is tracked: the condition around the options in %s (%s) isn't met, so %s %s no effect",
            tree.root, tree.condition, named, "has" if len(tree.unused) == 1 else "have",
        )  # fmt: skip


_warned: set[str] = set()


def environment_assignments(tree: Tree, environ: Mapping[str, str]) -> list[Assignment]:
    """What the environment gives: variables of the options' names, and the vendors' own words for them."""
    _warn_of_misspelt(tree, environ)
    assignments = []
    for name, declaration in tree.declarations.items():
        if text := environ.get(name):
            assignments.append(Assignment(name, declaration.text(text, f"environment variable {name}"), ENVIRONMENT))
        elif (alias := _alias(name, environ)) is not None:
            assignments.append(Assignment(name, *alias))
    assignments += [Assignment(name, text, ENVIRONMENT) for name, text in environ.items() if text and tree.takes(name)]
    # A choice's value may be spelt as Kconfig does: TRACKER_MODE_OFFLINE=y.
    for name in tree.members:
        if BOOLEANS.get(environ.get(name, "").lower()):
            assignments.append(Assignment(name, "y", ENVIRONMENT))
    return assignments


def _alias(name: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    if name == "WANDB_OFFLINE" and environ.get("WANDB_MODE"):
        mode = environ["WANDB_MODE"].strip().lower()
        if mode in ("offline", "dryrun"):
            return "y", f"{ENVIRONMENT} WANDB_MODE"
        if mode == "online":
            return "n", f"{ENVIRONMENT} WANDB_MODE"
    if name == "TRACKER_LOGGING_LEVEL" and environ.get("MEGATRON_BRIDGE_LOGGING_LEVEL"):
        return environ["MEGATRON_BRIDGE_LOGGING_LEVEL"], f"{ENVIRONMENT} MEGATRON_BRIDGE_LOGGING_LEVEL"
    if name == "MLFLOW_EXPERIMENT" and environ.get("MLFLOW_EXPERIMENT_NAME"):
        return environ["MLFLOW_EXPERIMENT_NAME"], f"{ENVIRONMENT} MLFLOW_EXPERIMENT_NAME"
    return None


def _wandb_assignments(tree: Tree, environ: Mapping[str, str], sources: Mapping[str, str]) -> list[Assignment]:
    """What W&B's variables say of a run, where neither our variable nor a file says something else.

    A file that has an option's default (a complete .config has all of them) says nothing.
    """
    assignments = []
    for name, variables in WANDB_VARIABLES.items():
        own = sources.get(name)
        if own is not None and (own == ENVIRONMENT or tree.value(name) != tree.declarations[name].default):
            continue
        for variable in variables:
            value = _of_wandb(variable, name, environ.get(variable, "").strip())
            if value:
                assignments.append(Assignment(name, value, f"{ENVIRONMENT} {variable}"))
                break
    return assignments


def _of_wandb(variable: str, name: str, text: str) -> str:
    """A value of W&B's as the option has it; "" for one that says nothing."""
    if variable == "WANDB_DISABLED":
        return "disabled" if text.lower() == "disabled" or BOOLEANS.get(text.lower()) else ""
    if variable == "WANDB_MODE":  # offline is W&B's part only; a word that nobody knows is an error as of the option
        return "" if text.lower() in WANDB_MODES else text.lower()
    if name == "TRACKER_RESUME":
        truth = BOOLEANS.get(text.lower())
        return text if truth is None else "auto" if truth else ""
    if name == "TRACKER_DIR" and text:
        return os.path.join(text, "runs")
    if name == "TRACKER_RUN_NAME":  # W&B knows no templates
        return text.replace("{", "{{").replace("}", "}}")
    return text


def _assignments(tree: Tree, values: Mapping[str, Any] | None, source: str | None) -> list[Assignment]:
    assignments = []
    for name, value in (values or {}).items():
        if value is None:
            continue
        if name in tree.members:  # a choice's value, as Kconfig spells it
            assignments.append(Assignment(name, "y" if BOOLEANS.get(str(value).lower()) else "n", source or "flag"))
            continue
        if name not in tree.declarations:
            raise tree.unknown(name, source or "flag")
        declaration = tree.declarations[name]
        origin = source or f"flag {declaration.flag}"
        assignments.append(Assignment(name, declaration.text(value, origin), origin))
    return assignments


def _is_absent(name: str, trackers: str) -> bool:
    """Whether ``init`` was given an option of a distribution of ours that isn't installed, which is said once. If a
    chosen tracker is the one that lacks, that is said instead."""
    why = "" if name.startswith(_prefixes(trackers)) else plugin_options.absent(name)
    if why:
        _warn(f"{ARGUMENT}: {name}", f"{ARGUMENT}: {why}")
    return bool(why)


def _check_plugins(tree: Tree, others: Mapping[str, Any], trackers: str) -> None:
    if not others:
        return

    prefixes = _prefixes(trackers)
    for name, value in others.items():
        if not name.startswith(prefixes) or name.startswith(_declared_prefixes()):
            raise tree.unknown(name, ARGUMENT)
        if not isinstance(value, (bool, int, float, str)):
            raise ConfigError(
                f"{ARGUMENT}: {name} is text, a number or a bool, not {type(value).__name__} {quoted(value)}"
            )


def _of_chosen_plugins(tree: Tree, trackers: str) -> dict[str, Assignment]:
    """What was given to options that the chosen trackers haven't declared."""
    prefixes = tuple(set(_prefixes(trackers)) - set(_declared_prefixes()))
    chosen = {name: assignment for name, assignment in tree.of_plugins.items() if name.startswith(prefixes)}
    return {assignment.symbol: assignment for assignment in tree.elsewhere(prefixes)} | chosen


def _prefixes(trackers: str) -> tuple[str, ...]:
    names = registry.parse(trackers)
    return tuple(word for name in names if name not in registry.BUILT_IN for word in plugin_options.beginnings(name))


def _declared_prefixes() -> tuple[str, ...]:
    return tuple(map(plugin_options.prefix, plugin_options.fragments()))


def _warn_of_misspelt(tree: Tree, environ: Mapping[str, str]) -> None:
    # Not an error: other programs have variables that begin so (GNOME's TRACKER_DEBUG).
    for name in environ:
        if name.startswith(("TRACKER_", *_declared_prefixes())) and not tree.knows(name) and name not in _NOT_OPTIONS:
            near = difflib.get_close_matches(name, tree.declarations, n=1, cutoff=0.85)
            if near:
                logging.getLogger("trackers.configuration").warning(
                    "environment variable %s isn't an option and does nothing: did you mean %s?", name, near[0]
                )
