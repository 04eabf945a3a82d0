"""Measures the package's size and shape: ``python scripts/measure.py``, or with ``--json``.

Lines in all and of the kernel; functions that are too long, too complex or take too many parameters; probes of the
contracts by name, circles among modules and imports upwards. tests/test_measures.py holds what may not grow again.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "trackers"

COMPLEXITY, LINES, PARAMETERS = 25, 80, 12
"""Bounds of one function. Lines: from ``def`` to the last one, comments among them, the docstring not."""

KERNEL: dict[str, tuple[str, ...]] = {
    "the contract": ("tracker.py", "errors.py", "reductions.py", "readers/reader.py"),
    "records": ("records.py",),
    "the journal": ("journal",),
    "the training API": tuple(
        f"training/{name}.py"
        for name in (
            "beginning", "config", "disabled", "environment", "exit_hooks", "init", "inline", "late", "measuring",
            "other_ranks", "rank_run", "recorder", "resume", "run", "stopping", "stores", "wandb_arguments",
        )
    ),
    "the relay's kernel": (
        "relay/beside.py", "relay/client.py", "relay/deliveries.py", "relay/delivery", "relay/parts",
        "relay/supervisor.py", "relay/sync.py", "relay/training_end.py", "relay/worker.py",
    ),
    "five trackers": (
        "backends/__init__.py", "backends/registry.py", "backends/shared", "backends/json", "backends/mlflow",
        "backends/tensorboard", "backends/trackio", "backends/wandb",
    ),
}  # fmt: skip
"""What someone reads who is to trust that a run is recorded and delivered: paths below ``trackers``, by part."""

PRESCRIBED = {
    "as_wandb/init.py init": "wandb.init",
    "formats/megatron_line.py summary": "Megatron's line, a parameter for each of its fields",
    "frameworks/megatron/training_log.py training_log": "megatron.training.training_log",
    "media/table.py __init__": "wandb.EvalTable",
    "training/init.py init": "wandb.init",
}
"""Signatures that others prescribe, and whose they are."""


class Function(NamedTuple):
    """A function of the package. name: the path of its module and its own name."""

    name: str
    complexity: int
    lines: int
    parameters: int
    is_command: bool


def complexity(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """McCabe's number: one, and one more for each branch, loop, handler, case, condition and part of ``and``/``or``.

    Functions inside it count for themselves.
    """
    number, waiting = 1, list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        number += isinstance(node, (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp))
        if isinstance(node, ast.match_case):
            number += not (isinstance(node.pattern, ast.MatchAs) and node.pattern.pattern is None)
        elif isinstance(node, ast.comprehension):
            number += 1 + len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            number += len(node.values) - 1
        waiting += ast.iter_child_nodes(node)
    return number


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether typer makes options of its parameters: they are explained where they are declared."""
    annotations = [parameter.annotation for parameter in [*function.args.args, *function.args.kwonlyargs]]
    return any("typer.Option(" in ast.unparse(kind) or "typer.Argument(" in ast.unparse(kind)
               for kind in annotations if kind is not None)  # fmt: skip


def functions() -> Iterator[Function]:
    """All functions of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                arguments = node.args
                count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
                told = ast.get_docstring(node, clean=False) is not None
                docstring = node.body[0] if told else None
                lines = (node.end_lineno or 0) - node.lineno + 1
                if docstring is not None:
                    lines -= (docstring.end_lineno or 0) - docstring.lineno + 1
                name = f"{path.relative_to(PACKAGE).as_posix()} {node.name}"
                yield Function(name, complexity(node), lines, count, is_command(node))


def lines_of(*paths: str) -> int:
    """Lines of modules below ``trackers``, folders with all that is in them."""
    files = [file for path in paths for file in _modules(PACKAGE / path)]
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


def _modules(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def shape() -> dict[str, list[str]]:
    """Probes, circles and imports upwards, as the tests of the layout and of the contract find them."""
    sys.path.insert(0, str(ROOT))
    from tests import test_layout as layout
    from tests.backends import test_contract as contract

    floors = {name: number for number, floor in enumerate(layout.FLOORS) for name in floor}
    upward = [
        f"{name} → {target}"
        for name, targets in layout.all_imports().items()
        for target in targets
        if layout.package(name) != layout.package(target)
        and floors[layout.package(name)] >= floors[layout.package(target)]
    ]
    return {
        "probes": list(contract.probed()),
        "circles": [" → ".join(circle) for circle in layout.cycles(layout.all_imports())],
        "upward imports": upward,
    }


def measured() -> dict[str, object]:
    """Everything, by name."""
    known = list(functions())
    return {
        "lines": lines_of(""),
        "kernel lines": sum(lines_of(*paths) for paths in KERNEL.values()),
        "kernel": {part: lines_of(*paths) for part, paths in KERNEL.items()},
        "too complex": [f"{one.name}: {one.complexity}" for one in known if one.complexity > COMPLEXITY],
        "too long": [f"{one.name}: {one.lines}" for one in known if one.lines > LINES and not one.is_command],
        "too many parameters": [
            f"{one.name}: {one.parameters}"
            for one in known
            if one.parameters > PARAMETERS and not one.is_command and one.name not in PRESCRIBED
        ],
        **shape(),
    }


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    found = measured()
    if parser.parse_args().json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for name, value in found.items():
        if isinstance(value, int):
            print(f"{value:8,}  {name}")
        elif isinstance(value, dict):
            for part, count in value.items():
                print(f"{count:8,}    {part}: {', '.join(KERNEL[part])}")
        elif isinstance(value, list):
            print("\n".join([f"{len(value):8,}  {name}", *(f"            {entry}" for entry in value)]))


if __name__ == "__main__":
    main()
