"""Spaces of parameters: a grid, random draws, or a file in the format of W&B's sweeps; and the points in them.

W&B's format: https://docs.wandb.ai/models/sweeps/sweep-config-keys. Points of method ``bayes`` are chosen while it runs
(:mod:`trackers_sweeps.search`).
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE, UsageError, did_you_mean
from trackers.formats.yaml_text import load_yaml
from trackers.readers.boundary import DATA_ERRORS, reason

Point = dict[str, Any]
"""Values by parameter. What was typed is a text, as it was typed."""
Word = str | tuple[str, Sequence[str]]
"""A parameter and its values: as they are typed, or told apart."""
MOST_POINTS = 100_000
FARTHEST_RUNG = 1e12
FARTHEST = 10.0
"""No value that is drawn lies more standard deviations from its mean."""


class Draw(msgspec.Struct):
    """A distribution that a parameter is drawn from.

    kind: uniform, log_uniform, inv_log_uniform, normal, log_normal, beta, or choice. low, high: bounds, or mean and
    standard deviation, or both parameters of a beta distribution.
    whole: integers. step: multiples of it; 0: any. values, weights: of a choice.
    """

    kind: str
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    step: float = 0.0
    values: list[Any] = []
    weights: list[float] | None = None

    def draw(self, source: random.Random) -> Any:
        """One value."""
        if self.kind == "choice":
            return source.choices(self.values, self.weights)[0]
        if self.kind == "uniform":
            if self.whole:
                return source.randint(int(self.low), int(self.high))
            value = source.uniform(self.low, self.high)
        elif self.kind in ("log_uniform", "inv_log_uniform"):  # the logarithm of 1/X is as even as that of X
            value = math.exp(source.uniform(math.log(self.low), math.log(self.high)))
            value = min(max(value, self.low), self.high)
        elif self.kind == "beta":
            value = source.betavariate(self.low, self.high)
        else:
            value = source.gauss(self.low, self.high)
            value = math.exp(value) if self.kind == "log_normal" else value
        return self._rounded(value)

    def at(self, share: float) -> Any:
        """The value below which a share of what is drawn lies; of a beta distribution it isn't known."""
        if self.kind == "choice":
            shares = list(itertools.accumulate(self.weights or [1.0] * len(self.values)))
            return self.values[min(bisect.bisect_right(shares, share * shares[-1]), len(self.values) - 1)]
        if self.kind == "uniform" and self.whole:
            return int(min(self.low + math.floor(share * (self.high - self.low + 1)), self.high))
        if self.kind == "uniform":
            return self._rounded(self.low + share * (self.high - self.low))
        if self.kind in ("log_uniform", "inv_log_uniform"):
            low, high = math.log(self.low), math.log(self.high)
            return self._rounded(min(max(math.exp(low + share * (high - low)), self.low), self.high))
        value = self.low
        if self.high:
            value = statistics.NormalDist(self.low, abs(self.high)).inv_cdf(min(max(share, 1e-12), 1 - 1e-12))
        return self._rounded(math.exp(value) if self.kind == "log_normal" else value)

    def _rounded(self, value: float) -> Any:
        if self.step:
            value = round(value / self.step) * self.step
            return int(value) if self.step >= 1 and self.step == int(self.step) else float(f"{value:.12g}")
        return round(value) if self.whole else float(f"{value:.6g}")


class Halving(msgspec.Struct, frozen=True):
    """When runs are stopped early: at each rung only the best ``1 / eta`` of all runs that came to it go on.

    least: number of values at the first rung; each next one is ``eta`` times as far. most: rungs end there; 0: nowhere.
    """

    least: int = 1
    eta: float = 3.0
    most: int = 0

    def rungs(self) -> list[int]:
        """Numbers of values, growing."""
        found: list[int] = []
        rung = float(self.least)
        while rung <= (self.most or FARTHEST_RUNG):
            found += [int(rung)] * (int(rung) not in found[-1:])
            rung *= self.eta
        return found

    def is_behind(self, own: float, others: Sequence[float]) -> bool:
        """Whether a value at a rung isn't among the best, the smallest being best; where few are there, one is."""
        values = sorted([own, *others])
        return own > values[max(1, int(len(values) / self.eta)) - 1]


class Space(msgspec.Struct, kw_only=True):
    """grid: values of each parameter, all combinations. draws: what is drawn ``count`` times for each of them.

    seeds: how often each point is trained, with parameter ``seed_name`` from 0 on; 0: once, without it.
    most: maximum number of points; 0: all. fixed: parameters with one value. nested: the path of each parameter that a
    file nests, by its name. search: how points are chosen by the results so far, ``tpe``; "": they are given. halving:
    when runs are stopped early; None: never. command, metric, goal, name, project, entity: as a file names them; [] and
    "" if it doesn't.
    """

    grid: dict[str, list[Any]] = {}
    draws: dict[str, Draw] = {}
    count: int = 0
    seeds: int = 0
    seed_name: str = "seed"
    most: int = 0
    fixed: Point = {}
    nested: dict[str, list[str]] = {}
    search: str = ""
    halving: Halving | None = None
    command: list[str] = []
    metric: str = ""
    goal: str = ""
    name: str = ""
    project: str = ""
    entity: str = ""

    def points(self, key: str) -> list[Point]:
        """All points, always the same ones for the same key.

        Raises:
            UsageError: there are none, or more than MOST_POINTS.
        """
        if self.draws and not self.count:
            raise UsageError(f"how many random draws of {', '.join(self.draws)}? Give --random N (run_cap in a file)")
        if self.count and not self.draws:
            raise UsageError("--random draws nothing: give --param NAME=LOW..HIGH, or --param NAME=a,b,c")
        size = math.prod(len(values) for values in self.grid.values()) * max(1, self.count) * max(1, self.seeds)
        if size > MOST_POINTS and not 0 < self.most <= MOST_POINTS:
            raise UsageError(f"{size:,} points; at most {MOST_POINTS:,}: draw some with --random")
        source = random.Random(key)
        drawn: Sequence[Point] = [{name: draw.draw(source) for name, draw in self.draws.items()}
                                  for _ in range(self.count)] or [{}]  # fmt: skip
        every: Iterator[Point] = (
            {**self.fixed, **combined, **chosen, **seed}
            for combined in _combinations(self.grid)
            for chosen in drawn
            for seed in ([{self.seed_name: number} for number in range(self.seeds)] or [{}])
        )
        points = list(itertools.islice(every, self.most or None))
        if not any(points):
            raise UsageError(
                "a sweep of nothing: give --grid NAME=a,b, --random N with --param, --seeds N or --sweep FILE"
            )
        return list({msgspec.json.encode(point, order="sorted"): point for point in points}.values())


def _combinations(grid: Mapping[str, Sequence[Any]]) -> Iterator[Point]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def of_words(grid: Sequence[Word], params: Sequence[Word], count: int, seeds: int, seed_name: str = "seed") -> Space:
    """A space as the command line gives it, or Python: there a pair of a name and its values may stand for a word.

    Args:
        grid: ``lr=0.1,0.01``. params: ``lr=1e-5..1e-1:log``, ``width=64..512`` (whole numbers), ``act=relu,gelu``.
        count: of random draws. seeds: see :class:`Space`.

    Raises:
        UsageError: a word that can't be read.
    """
    space = Space(count=count, seeds=seeds, seed_name=seed_name)
    _once([_split(word, "--grid")[0] for word in grid] + [_split(word, "--param")[0] for word in params]
          + ([seed_name] if seeds else []))  # fmt: skip
    for word in grid:
        name, values = _split(word, "--grid")
        space.grid[name] = _values(values) if isinstance(values, str) else list(values)
        if "" in space.grid[name]:
            raise UsageError(f"--grid {word}: an empty value")
    for word in params:
        name, values = _split(word, "--param")
        whole = isinstance(values, str)
        space.draws[name] = _range(str(word), str(values)) if whole else Draw("choice", values=list(values))
    return space


def _values(text: str) -> list[str]:
    """The values between commas, but for commas in quotes and brackets; quotes around a whole value are left out."""
    parts, depth, quote, start = [], 0, "", 0
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'" and (depth or not text[start:at].strip()):
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == "," and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
    if quote or depth:  # they belong to the values
        return [value.strip() for value in text.split(",")]
    words = [value.strip() for value in (*parts, text[start:])]
    return [word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" and word[0] not in word[1:-1]
            else word for word in words]  # fmt: skip


def _split(word: Word, option: str) -> tuple[str, str | Sequence[str]]:
    if not isinstance(word, str):
        return word
    name, separator, values = word.partition("=")
    name = name.strip().lstrip("-")
    if not separator or not name or not values.strip():
        raise UsageError(f"{option} {word}: write NAME=VALUES, as in lr=0.1,0.01")
    return name, values.strip()


def _once(names: Sequence[str]) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UsageError(f"parameter {sorted(twice)[0]!r} is given twice")


def _range(word: str, text: str) -> Draw:
    bounds, _, how = text.partition(":")
    low, separator, high = bounds.partition("..")
    if not separator or "," in text:  # a,b,c; data/../other too is a choice where there is another one
        values = _values(text)
        if "" in values:
            raise UsageError(f"--param {word}: an empty value")
        return Draw("choice", values=values)
    try:
        first, last = float(low), float(high)
    except ValueError:
        raise UsageError(f"--param {word}: {bounds!r} is no range of numbers: LOW..HIGH") from None
    if how not in ("", "log"):
        raise UsageError(f"--param {word}: unknown {how!r} after the range; known is :log")
    whole = not how and all(part.strip().lstrip("+-").isdigit() for part in (low, high))
    return _check_range(Draw("log_uniform" if how else "uniform", first, last, whole=whole), f"--param {word}")


def _check_range(draw: Draw, where: str) -> Draw:
    if not (math.isfinite(draw.low) and math.isfinite(draw.high)) or draw.low > draw.high:
        raise UsageError(f"{where}: from {draw.low:g} to {draw.high:g} is no range")
    if draw.kind.endswith("log_uniform") and draw.low <= 0:
        raise UsageError(f"{where}: a logarithmic range begins above 0")
    return draw


KNOWN = {"program", "command", "method", "parameters", "metric", "name", "project", "entity", "description", "run_cap",
         "early_terminate"}  # fmt: skip


def of_file(path: Path, count: int = 0) -> tuple[Space, list[str]]:
    """A space from a file in W&B's format (YAML or JSON).

    Args:
        count: of random draws, instead of its ``run_cap``.

    Returns:
        the space, and what the file asks for that isn't done, a line each.

    Raises:
        UsageError: no such file, no sweep in it, or a parameter that can't be read.
    """
    try:
        return _of_content(_read(path), path, count)
    except UsageError:
        raise
    except DATA_ERRORS as error:
        raise UsageError(f"{path}: no sweep can be made of it: {reason(error)}") from None


def _of_content(content: Mapping[str, Any], path: Path, count: int) -> tuple[Space, list[str]]:
    notes = _without_effect(content, path)
    method = _method(content, path, count)
    most = _most_runs(content, path)
    space = Space(count=count or most if method != "grid" else 0, most=most if method == "grid" else 0)
    space.search, space.halving = "tpe" if method == "bayes" else "", _halving(content.get("early_terminate"), path)
    for name, about in _parameters(content, path, space):
        _add_parameter(space, method, name, about, path)
        notes += [f"{path}: parameter {name}: {key!r} has no effect"
                 for key in sorted(map(str, about.keys() - _known_of(about)))]  # fmt: skip
    if method != "grid" and not space.draws:
        space.count = 0
    if (metric := content.get("metric")) is not None:
        space.metric, space.goal = _metric(metric, path)
        if isinstance(metric, Mapping) and "target" in metric:
            notes.append(f"{path}: metric.target has no effect here: all runs are trained")
    space.command = _command(content, path)
    space.name, space.project, space.entity = (str(content.get(key) or "") for key in ("name", "project", "entity"))
    return space, notes


def _without_effect(content: Mapping[str, Any], path: Path) -> list[str]:
    """What of a sweep's file does nothing here, a line each."""
    notes = [f"{path}: {name!r} isn't known and has no effect" for name in sorted(map(str, content.keys() - KNOWN))]
    return notes


def _halving(about: Any, path: Path) -> Halving | None:
    """W&B's ``hyperband``: from ``min_iter`` on, or the ``s`` last rungs below ``max_iter``."""
    if not about:
        return None
    where = f"{path}: early_terminate"
    if not isinstance(about, Mapping) or about.get("type") != "hyperband":
        raise UsageError(f"{where} is a mapping such as {{type: hyperband, min_iter: 3}}")
    eta = float(_number(about.get("eta", 3), "eta", where))
    name = "min_iter" if "min_iter" in about else "max_iter"
    first = _number(about.get(name, 0), name, where)
    rungs = _number(about.get("s", 1), "s", where)
    if not (1 < eta < 1e6 and 1 <= first < FARTHEST_RUNG and first == int(first) and 1 <= rungs <= 100):
        raise UsageError(f"{where}: give min_iter, or max_iter and s, as whole numbers of 1 or more, and eta above 1")
    if name == "min_iter":
        return Halving(int(first), eta)
    return Halving(max(1, int(first / eta ** int(rungs))), eta, int(first) - 1 or 1)


def _method(content: Mapping[str, Any], path: Path, count: int) -> str:
    """grid, random or bayes; count: the draws that the command asks for."""
    method = " ".join(str(content.get("method", "grid")).split())[:80]
    if method not in ("grid", "random", "bayes"):
        raise UsageError(f"{path}: unknown method {method!r}: known are grid, random, bayes")
    if method == "grid" and count:
        raise UsageError(f"{path}: --random draws nothing from a grid: leave it out, or write method: random")
    return method


def _most_runs(content: Mapping[str, Any], path: Path) -> int:
    """``run_cap``; 0 for none."""
    most = content.get("run_cap")
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise UsageError(f"{path}: run_cap is a number of runs, not {str(most)[:80]!r}")
    return most or 0


def _parameters(content: Mapping[str, Any], path: Path, space: Space) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each parameter's name and what is said of it; nested ones are noted in the space as such."""
    parameters = content.get("parameters")
    if not isinstance(parameters, Mapping) or not parameters:
        raise UsageError(f"{path}: no parameters: a mapping such as parameters: {{lr: {{values: [0.1, 0.01]}}}}")
    for keys, about in _flat(parameters):
        name = ".".join(keys)
        if len(keys) > 1:
            space.nested[name] = keys
        if name in space.grid.keys() | space.draws.keys() | space.fixed.keys():
            raise UsageError(f"{path}: parameter {name!r} is given twice, nested and with a dot in its name")
        if isinstance(parameters.get(name), list):
            raise UsageError(
                f"{path}: parameter {name} is a list: write {{values: [a, b]}}, or {{value: [a, b]}} for one"
            )
        yield name, about


def _metric(metric: Any, path: Path) -> tuple[str, str]:
    goals = {"minimize": "min", "maximize": "max"}
    if not isinstance(metric, Mapping):
        raise UsageError(f"{path}: metric is a mapping such as {{name: val_loss, goal: minimize}}")
    goal = str(metric.get("goal", "minimize"))
    if goal not in goals:
        raise UsageError(f"{path}: unknown goal {goal[:80]!r}: known are {', '.join(goals)}")
    return str(metric.get("name") or ""), goals[goal]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: it isn't UTF-8 text") from None
    if path.suffix == ".json":
        try:
            content = msgspec.json.decode(text)
        except UNDECODABLE as error:
            raise UsageError(f"{path}: {error}") from None
    else:
        try:
            content = load_yaml(text)
        except ImportError:
            raise UsageError(
                f"{path}: YAML needs the PyYAML package: pip install pyyaml, or write it as JSON"
            ) from None
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from None
    if not isinstance(content, Mapping):
        raise UsageError(f"{path}: no sweep: a mapping with method and parameters")
    return content


def _flat(parameters: Mapping[Any, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[list[str], Mapping[Any, Any]]]:
    """Parameters by their paths: of ``optimizer: {parameters: {lr: …}}`` it has two parts."""
    for name, about in parameters.items():
        inner = about.get("parameters") if isinstance(about, Mapping) else None
        if isinstance(inner, Mapping):
            yield from _flat(inner, (*above, str(name)))
        else:
            yield [*above, str(name)], about if isinstance(about, Mapping) else {"value": about}


def _known_of(about: Mapping[Any, Any]) -> set[str]:
    """The keys of a parameter's description that have an effect."""
    distribution = str(about.get("distribution", ""))
    if "value" in about:
        return {"value", "distribution"}
    if "values" in about:
        return {"values", "probabilities", "distribution"}
    return {"distribution", *_bounds(_KINDS.get(distribution, "")), *(["q"] if distribution.startswith("q_") else [])}


def _bounds(kind: str) -> tuple[str, str]:
    return {"normal": ("mu", "sigma"), "log_normal": ("mu", "sigma"), "beta": ("a", "b")}.get(kind, ("min", "max"))


_KINDS = {
    "uniform": "uniform", "int_uniform": "uniform", "q_uniform": "uniform", "log_uniform_values": "log_uniform",
    "q_log_uniform_values": "log_uniform", "log_uniform": "log_uniform", "q_log_uniform": "log_uniform",
    "inv_log_uniform": "inv_log_uniform", "inv_log_uniform_values": "inv_log_uniform", "beta": "beta", "q_beta": "beta",
    "normal": "normal", "q_normal": "normal", "log_normal": "log_normal", "q_log_normal": "log_normal",
}  # fmt: skip


def _add_parameter(space: Space, method: str, name: str, about: Mapping[str, Any], path: Path) -> None:
    where = f"{path}: parameter {name}"
    distribution = str(about.get("distribution", ""))
    if "value" in about:
        space.fixed[name] = about["value"]
    elif "values" in about:
        values = about["values"]
        if not isinstance(values, list) or not values:
            raise UsageError(f"{where}: values is a list of one or more")
        weights = about.get("probabilities")
        if weights is not None and (
            not isinstance(weights, list)
            or len(weights) != len(values)
            or not all(isinstance(weight, (int, float)) and weight >= 0 for weight in weights)
            or not 0 < sum(weights) < math.inf
        ):
            raise UsageError(f"{where}: probabilities are {len(values)} numbers, 0 or more")
        if method == "grid":
            if weights is not None:
                raise UsageError(f"{where}: a grid has no probabilities: leave them out, or write method: random")
            space.grid[name] = values
        else:
            space.draws[name] = Draw("choice", values=values, weights=weights)
    elif method == "grid":
        space.grid[name] = _steps(about, distribution, where)
    elif "min" in about or "max" in about or distribution in _KINDS:
        space.draws[name] = _distribution(about, distribution, where)
    else:
        raise UsageError(f"{where}: give value, values, or min and max")


def _steps(about: Mapping[str, Any], distribution: str, where: str) -> list[Any]:
    """The values that a grid has of a distribution of whole numbers, or of multiples of q below the maximum."""
    draw = _distribution(about, distribution, where) if "min" in about or "max" in about else None
    if draw is None or draw.kind != "uniform" or not (draw.whole or draw.step):
        raise UsageError(f"{where}: a grid needs value, values, whole numbers from min to max, or q_uniform")
    count = math.ceil(draw.high - draw.low + 1 if draw.whole else (draw.high - draw.low) / draw.step)
    if not 0 < count <= MOST_POINTS:
        raise UsageError(f"{where}: {count:,} values in a grid; at most {MOST_POINTS:,}")
    if draw.whole:
        return list(range(int(draw.low), int(draw.high) + 1))
    whole = draw.step == int(draw.step) and draw.low == int(draw.low)
    values = [draw.low + number * draw.step for number in range(count)]
    return [int(value) if whole else float(f"{value:.12g}") for value in values]


def _distribution(about: Mapping[str, Any], distribution: str, where: str) -> Draw:
    if distribution and distribution not in _KINDS:
        known = ", ".join(sorted(_KINDS))
        raise UsageError(f"{where}: unknown distribution {distribution[:80]!r}{did_you_mean(distribution, _KINDS)} "
                         f"Known: {known}")  # fmt: skip
    kind = _KINDS.get(distribution, "uniform")
    low_name, high_name = _bounds(kind)
    for name in (low_name, high_name):
        if name not in about and low_name == "min":
            raise UsageError(f"{where}: give {low_name} and {high_name}")
    low, high = about.get(low_name, 1.0 if kind == "beta" else 0.0), about.get(high_name, 1.0)
    low, high = _number(low, low_name, where), _number(high, high_name, where)
    whole = isinstance(low, int) and isinstance(high, int) and distribution in ("", "int_uniform")
    if distribution == "int_uniform" and not whole:
        raise UsageError(f"{where}: {low_name} and {high_name} of int_uniform are whole numbers")
    if distribution in ("log_uniform", "q_log_uniform"):  # W&B: the bounds are exponents
        low, high = math.exp(low), math.exp(high)
    elif distribution == "inv_log_uniform":
        low, high = math.exp(-high), math.exp(-low)
    step = _number(about.get("q", 1.0), "q", where) if distribution.startswith("q_") else 0.0
    if distribution.startswith("q_") and not 0 < step < math.inf:
        raise UsageError(f"{where}: q is a number above 0")
    draw = Draw(kind, float(low), float(high), whole=whole, step=float(step))
    if kind == "beta":
        if not (0 < draw.low < math.inf and 0 < draw.high < math.inf):
            raise UsageError(f"{where}: a and b are numbers above 0")
        return draw
    if kind.endswith("normal"):
        farthest = abs(draw.low) + FARTHEST * abs(draw.high)
        if not (math.exp(farthest) if kind == "log_normal" else farthest) / (draw.step or 1.0) < math.inf:
            raise UsageError(f"{where}: mu {draw.low:g} and sigma {draw.high:g} give values that no number holds")
        return draw
    return _check_range(draw, where)


def _number(value: Any, name: str, where: str) -> int | float:
    """A number; YAML takes 1e-5, without a point, for a text."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise UsageError(f"{where}: {name} is a number, not {str(value)[:80]!r}")
    return value


def _command(content: Mapping[str, Any], path: Path) -> list[str]:
    command = content.get("command")
    if command is None:
        command = ["${env}", "${interpreter}", "${program}", "${args}"] if content.get("program") else []
    if not isinstance(command, list):
        raise UsageError(f"{path}: command is a list of words")
    return [str(content.get("program", "")) if word == "${program}" else str(word) for word in command]
