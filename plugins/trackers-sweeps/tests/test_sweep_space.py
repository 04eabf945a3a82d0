"""Points of a sweep: what the command line and W&B's files mean."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
from trackers_sweeps.command import arguments
from trackers_sweeps.plan import name_of, tasks
from trackers_sweeps.space import Draw, Space, of_file, of_words

from trackers.errors import UsageError


def of_text(text: str, name: str = "sweep.yaml", count: int = 0) -> tuple[Space, list[str]]:
    """A sweep from a file's text."""
    Path(name).write_text(text)
    return of_file(Path(name), count)


def test_grid_has_all_combinations_in_order() -> None:
    """Values stay the texts that were typed; seeds multiply; the same point is trained once."""
    space = of_words(["lr=1e-1, 0.01", "--width=64"], [], 0, 2)
    assert space.points("k") == [
        {"lr": "1e-1", "width": "64", "seed": 0},
        {"lr": "1e-1", "width": "64", "seed": 1},
        {"lr": "0.01", "width": "64", "seed": 0},
        {"lr": "0.01", "width": "64", "seed": 1},
    ]
    assert of_words(["a=1,1,2"], [], 0, 0).points("") == [{"a": "1"}, {"a": "2"}]
    assert of_words([], [], 0, 3, "init").points("") == [{"init": 0}, {"init": 1}, {"init": 2}]


@pytest.mark.heavy
def test_draws_are_the_same_for_the_same_sweep() -> None:
    """They lie in their ranges, evenly on the scale that was asked for, whole where the bounds are."""
    space = of_words(["m=a,b"], ["lr=1e-5..1e-1:log", "width=64..512", "p=0..0.5", "act=relu,gelu"], 2000, 0)
    points = space.points("key")
    assert points == space.points("key")
    assert points != space.points("other")
    drawn = points[:2000]
    assert [{**point, "m": "b"} for point in drawn] == points[2000:]
    assert all(1e-5 <= point["lr"] <= 1e-1 and 0 <= point["p"] <= 0.5 for point in drawn)
    assert {type(point["width"]) for point in drawn} == {int}
    assert all(64 <= point["width"] <= 512 for point in drawn)
    decades = Counter(math.floor(math.log10(point["lr"])) for point in drawn)
    assert all(400 < decades[decade] < 600 for decade in (-5, -4, -3, -2))
    assert 900 < Counter(point["act"] for point in drawn)["relu"] < 1100


@pytest.mark.parametrize(
    ("grid", "params", "count", "seeds", "said"),
    [
        (["lr"], [], 0, 0, "--grid lr: write NAME=VALUES"),
        (["lr="], [], 0, 0, "--grid lr=: write NAME=VALUES"),
        (["lr=1,,2"], [], 0, 0, "--grid lr=1,,2: an empty value"),
        (["lr=1", "lr=2"], [], 0, 0, "'lr' is given twice"),
        (["seed=1"], [], 0, 2, "'seed' is given twice"),
        ([], ["lr=a..b"], 1, 0, "'a..b' is no range of numbers"),
        ([], ["lr=0..1:log"], 1, 0, "a logarithmic range begins above 0"),
        ([], ["lr=2..1"], 1, 0, "from 2 to 1 is no range"),
        ([], ["lr=nan..1"], 1, 0, "is no range"),
        ([], ["lr=1..2:exp"], 1, 0, "unknown 'exp' after the range"),
        ([], ["lr=1..2"], 0, 0, "how many random draws of lr"),
        ([], [], 5, 0, "--random draws nothing"),
        ([], [], 0, 0, "a sweep of nothing"),
        (["a=" + ",".join(map(str, range(1000)))], [], 0, 1000, "1,000,000 points; at most 100,000"),
    ],
)
def test_wrong_words_are_one_line(grid: list[str], params: list[str], count: int, seeds: int, said: str) -> None:
    """The message names the word and what it should look like."""
    with pytest.raises(UsageError) as raised:
        of_words(grid, params, count, seeds).points("")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_file_of_wandb_is_a_grid() -> None:
    """Values, constants, nested parameters, the command and the metric."""
    space, said = of_text(
        """
program: train.py
method: grid
metric: {name: val_loss, goal: minimize}
parameters:
  lr: {values: [0.1, 0.01]}
  epochs: {value: 2}
  flag: {values: [true, false]}
  optimizer: {parameters: {name: {value: adam}, beta: {values: [0.9]}}}
early_terminate: {type: hyperband, max_iter: 27, s: 2}
colour: red
"""
    )
    assert said == [
        "sweep.yaml: 'colour' isn't known and has no effect",
    ]
    assert space.halving is not None
    assert space.halving.rungs() == [3, 9]
    assert (space.metric, space.goal) == ("val_loss", "min")
    points = space.points("")
    assert len(points) == 4
    assert points[0] == {"epochs": 2, "optimizer.name": "adam", "lr": 0.1, "flag": True, "optimizer.beta": 0.9}
    words = arguments(space.command, points[0])
    assert words[0] == "/usr/bin/env"
    assert words[2:] == ["train.py", "--epochs=2", "--optimizer.name=adam", "--lr=0.1", "--flag=True",
                         "--optimizer.beta=0.9"]  # fmt: skip


def test_file_of_wandb_is_drawn() -> None:
    """Every distribution but Bayes'; each value lies where it must, with its type."""
    space, _ = of_text(
        json.dumps({
            "method": "random", "run_cap": 500, "command": ["python", "t.py", "${args_json}"],
            "parameters": {
                "u": {"min": 0.0, "max": 2.0}, "i": {"min": 1, "max": 5}, "c": {"values": ["a", "b"],
                "probabilities": [0.9, 0.1]}, "l": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1.0},
                "e": {"distribution": "log_uniform", "min": -2, "max": 0}, "n": {"distribution": "normal", "mu": 5,
                "sigma": 0.1}, "q": {"distribution": "q_uniform", "min": 0, "max": 100, "q": 10}, "k": {"value": None},
                "ln": {"distribution": "log_normal", "mu": 0, "sigma": 1},
            },
        }),
        "sweep.json",
    )  # fmt: skip
    points = space.points("")
    assert len(points) == 500
    checks: dict[str, Any] = {
        "u": lambda v: 0 <= v <= 2, "i": lambda v: v in range(1, 6) and type(v) is int, "c": lambda v: v in "ab",
        "l": lambda v: 1e-4 <= v <= 1, "e": lambda v: math.exp(-2.001) <= v <= 1, "n": lambda v: 4 < v < 6,
        "q": lambda v: v in range(0, 101, 10), "k": lambda v: v is None, "ln": lambda v: v > 0,
    }  # fmt: skip
    for name, check in checks.items():
        assert all(check(point[name]) for point in points), name
    assert 400 < sum(point["c"] == "a" for point in points) < 490
    assert {point["i"] for point in points} == {1, 2, 3, 4, 5}
    assert json.loads(arguments(space.command, points[0])[2]) == points[0]
    assert len(of_file(Path("sweep.json"), 7)[0].points("")) == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('method: "a\\nb"\nparameters: {a: {values: [1]}}', "unknown method 'a b': known are grid, random, bayes"),
        ("early_terminate: 3\nparameters: {a: {values: [1]}}", "early_terminate is a mapping such as"),
        ("early_terminate: {type: median}\nparameters: {a: {values: [1]}}", "early_terminate is a mapping such as"),
        ("early_terminate: {type: hyperband}\nparameters: {a: {values: [1]}}", "give min_iter, or max_iter and s"),
        ("early_terminate: {type: hyperband, min_iter: .inf}\nparameters: {a: {values: [1]}}", "give min_iter"),
        ("early_terminate: {type: hyperband, min_iter: 3, eta: 1}\nparameters: {a: {values: [1]}}", "eta above 1"),
        ("method: grid", "no parameters"),
        ("- a", "no sweep: a mapping"),
        ("parameters: {a: {values: []}}", "parameter a: values is a list of one or more"),
        ("parameters: {a: {min: 0, max: 1.5}}", "parameter a: a grid needs value, values, whole numbers"),
        ("method: random\nparameters: {a: {min: x, max: 1}}", "parameter a: min is a number, not 'x'"),
        ("method: random\nparameters: {a: {min: 3, max: 1}}", "from 3 to 1 is no range"),
        ("method: random\nparameters: {a: {max: 1, distribution: gamma}}", "unknown distribution 'gamma'"),
        ("method: random\nparameters: {a: {values: [1, 2], probabilities: [1]}}", "probabilities are 2 numbers"),
        ("method: random\nparameters: {a: {}}", "give value, values, or min and max"),
        ("method: random\nparameters: {a: {min: 0, max: 1}}", "how many random draws of a"),
        ("parameters: {a: [1, 2]}", "parameter a is a list: write {values: [a, b]}, or {value: [a, b]} for one"),
        ("parameters: {a: {values: [1, 2], probabilities: [1, 1]}}", "a grid has no probabilities"),
        ("parameters: {a: {distribution: q_uniform, min: 0, max: 9, q: 0}}", "q is a number above 0"),
        ("parameters: {a: {min: 0, max: 1000000}}", "1,000,001 values in a grid; at most 100,000"),
        ("method: random\nparameters: {a: {min: 0}}", "parameter a: give min and max"),
        ("method: random\nparameters: {a: {distribution: int_uniform, min: 0, max: 1.5}}", "are whole numbers"),
        ("method: random\nparameters: {a: {distribution: loguniform, min: 1, max: 2}}", "did you mean 'log_uniform'?"),
        ("method: random\nparameters: {a: {distribution: beta, a: 0}}", "a and b are numbers above 0"),
        ("run_cap: true\nparameters: {a: {value: 1}}", "run_cap is a number of runs, not 'True'"),
        ("run_cap: -1\nparameters: {a: {value: 1}}", "run_cap is a number of runs, not '-1'"),
        (
            "metric: val_loss\nparameters: {a: {value: 1}}",
            "metric is a mapping such as {name: val_loss, goal: minimize}",
        ),
        (
            "metric: {name: a, goal: max}\nparameters: {a: {value: 1}}",
            "unknown goal 'max': known are minimize, maximize",
        ),
        ("parameters: {a.b: {value: 1}, a: {parameters: {b: {value: 2}}}}", "parameter 'a.b' is given twice"),
        ("command: python\nparameters: {a: {value: 1}}", "command is a list of words"),
        ("a: [", "sweep.yaml: "),
        ("\x00", "sweep.yaml: "),
        ("parameters: {a: {value: 2020-13-45}}", "sweep.yaml: month must be in 1..12"),
        ("parameters: {a: {value: 1" + "0" * 5000 + "}}", "sweep.yaml: "),
        ("parameters: &a {a: {parameters: *a}}", "sweep.yaml: an alias stands for what it is in"),
        ("1: 2\nx: 3\nparameters: {a: {value: [}}", "sweep.yaml: "),
        ("method: random\nrun_cap: many\nparameters: {a: {min: 0, max: 1}}", "run_cap is a number of runs, not 'many'"),
        ("method: random\nrun_cap: .inf\nparameters: {a: {min: 0, max: 1}}", "run_cap is a number of runs, not 'inf'"),
        ("method: random\nparameters: {a: {distribution: log_uniform, min: 1, max: 9999}}", "sweep.yaml: "),
        ("method: random\nparameters: {a: {min: 0, max: 1" + "0" * 400 + "}}", "sweep.yaml: "),
        ("method: random\nparameters: {a: {values: [1, 2], probabilities: [.inf, 1]}}", "probabilities are 2 numbers"),
        ("method: random\nparameters: {a: {distribution: log_normal, mu: 1, sigma: 9999}}", "sweep.yaml: "),
        ("method: random\nparameters: {a: {distribution: q_normal, mu: .nan, q: 2}}", "mu nan and sigma 1 give values"),
        ("method: random\nparameters: {a: {distribution: [1], min: 1, max: 2}}", "unknown distribution"),
    ],
)
def test_wrong_file_is_one_line(text: str, said: str) -> None:
    """The message names the file and the parameter."""
    with pytest.raises(UsageError) as raised:
        of_text(text)[0].points("")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(UsageError, match="--random draws nothing from a grid"):
        of_text("method: grid\nparameters: {a: {values: [1, 2]}}", count=3)
    with pytest.raises(UsageError, match=r"nothing\.yaml: No such file"):
        of_file(Path("nothing.yaml"))


DRAWN = {
    "uniform": 0.0987116, "int_uniform": 1, "log": 1.74577e-05, "normal": -1.1662, "beta": 0.477552, "choice": "c",
}  # fmt: skip


def test_draws_never_change() -> None:
    """A sweep of today is gone on with by another Python and another release: these values are kept for good."""
    space = Space(count=1, draws={
        "uniform": Draw("uniform", 0, 1), "int_uniform": Draw("uniform", 1, 9, whole=True),
        "log": Draw("log_uniform", 1e-5, 0.1), "normal": Draw("normal", 0, 1), "beta": Draw("beta", 2, 5),
        "choice": Draw("choice", values=["a", "b", "c"], weights=[1, 2, 3]),
    })  # fmt: skip
    assert space.points("python train.py") == [DRAWN]


DISTRIBUTIONS: dict[str, tuple[Callable[[float], float], type]] = {
    "{min: 1, max: 9}": (lambda u: 1 + math.floor(9 * u), int),
    "{distribution: int_uniform, min: 1, max: 9}": (lambda u: 1 + math.floor(9 * u), int),
    "{min: 1, max: 9.5}": (lambda u: 1 + 8.5 * u, float),
    "{distribution: uniform, min: 1, max: 9}": (lambda u: 1 + 8 * u, float),
    "{distribution: q_uniform, min: 1, max: 9, q: 2}": (lambda u: round((1 + 8 * u) / 2) * 2, int),
    "{distribution: log_uniform, min: -3, max: 2}": (lambda u: math.exp(-3 + 5 * u), float),
    "{distribution: log_uniform_values, min: 1e-5, max: 0.1}": (lambda u: 10 ** (-5 + 4 * u), float),
    "{distribution: q_log_uniform, min: 0, max: 4, q: 3}": (lambda u: round(math.exp(4 * u) / 3) * 3, int),
    "{distribution: q_log_uniform_values, min: 1, max: 40, q: 0.5}": (lambda u: round(40**u / 0.5) * 0.5, float),
    "{distribution: inv_log_uniform, min: 1, max: 4}": (lambda u: math.exp(-4 + 3 * u), float),
    "{distribution: inv_log_uniform_values, min: 0.01, max: 4}": (lambda u: 0.01 * 400**u, float),
    "{distribution: normal}": (NormalDist().inv_cdf, float),
    "{distribution: normal, mu: 2, sigma: 3}": (NormalDist(2, 3).inv_cdf, float),
    "{distribution: q_normal, mu: 2, sigma: 3, q: 1}": (lambda u: round(NormalDist(2, 3).inv_cdf(u)), int),
    "{distribution: log_normal, mu: 0.1, sigma: 0.3}": (lambda u: math.exp(NormalDist(0.1, 0.3).inv_cdf(u)), float),
    "{distribution: q_log_normal, mu: 1, sigma: 0.5, q: 0.5}": (
        lambda u: round(math.exp(NormalDist(1, 0.5).inv_cdf(u)) / 0.5) * 0.5, float),
    "{distribution: beta, a: 2, b: 1}": (math.sqrt, float),
    "{distribution: q_beta, a: 2, b: 1, q: 0.25}": (lambda u: round(math.sqrt(u) / 0.25) * 0.25, float),
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("text", DISTRIBUTIONS)
def test_distributions_are_those_of_wandb(text: str) -> None:
    """Each that its documentation names has the quantiles of its formula there, and its type of number."""
    quantile, kind = DISTRIBUTIONS[text]
    space, said = of_text(f"method: random\nrun_cap: 4000\nparameters: {{a: {text}, b: {{min: 0.0, max: 1.0}}}}")
    assert not said
    drawn = sorted(point["a"] for point in space.points("k"))
    assert {type(value) for value in drawn} == {kind}
    expected = sorted(quantile((number + 0.5) / 4000) for number in range(4000))
    # Kolmogorov and Smirnov's distance; 4,000 draws of the right distribution exceed 0.031 once in a thousand times.
    values = sorted({*(round(value, 6) for value in drawn), *(round(value, 6) for value in expected)})
    ours, theirs = ([bisect_right(part, value + 1e-6) for value in values] for part in (drawn, expected))
    assert max(abs(one - other) for one, other in zip(ours, theirs, strict=True)) / 4000 < 0.031


def test_grid_of_a_file_has_whole_numbers_and_steps() -> None:
    """As W&B's grid: whole numbers with both ends, multiples of q below the maximum; ``run_cap`` ends it."""
    text = "parameters: {a: {min: 1, max: 3}, b: {distribution: q_uniform, min: 0, max: 1, q: 0.5}}"
    points = [{"a": a, "b": b} for a in (1, 2, 3) for b in (0.0, 0.5)]
    assert of_text(text)[0].points("") == points
    assert of_text(f"run_cap: 4\n{text}")[0].points("") == points[:4]
    huge = of_text("run_cap: 2\nparameters: {a: {min: 1, max: 99999}, b: {min: 1, max: 99999}}")[0]
    assert huge.points("") == [{"a": 1, "b": 1}, {"a": 1, "b": 2}]


def test_what_has_no_effect_is_said() -> None:
    """A key of a parameter that its distribution hasn't, a target, and what stops runs early."""
    _, said = of_text(
        "method: random\nrun_cap: 1\nearly_terminate: {type: hyperband, min_iter: 3}\n"
        "metric: {name: loss, goal: minimize, target: 0.1}\n"
        "parameters: {a: {min: 0, max: 1, sigma: 3}, b: {value: 1, q: 2}, c: {values: [1], vals: [2]}}"
    )
    assert [line.removeprefix("sweep.yaml: ") for line in said] == [
        "parameter a: 'sigma' has no effect", "parameter b: 'q' has no effect", "parameter c: 'vals' has no effect",
        "metric.target has no effect here: all runs are trained",
    ]  # fmt: skip


def test_numbers_that_yaml_takes_for_texts() -> None:
    """1e-5 has no point, so that YAML 1.1 reads a text; as a bound it is the number that was meant."""
    space, _ = of_text(
        "method: random\nrun_cap: 50\nparameters: {a: {distribution: log_uniform_values, min: 1e-5, max: 1}}"
    )
    assert all(1e-5 <= point["a"] <= 1 for point in space.points(""))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1e-3, 2", ["1e-3", "2"]),
        ("[1,2],[3]", ["[1,2]", "[3]"]),
        ("f(a,b),c", ["f(a,b)", "c"]),
        ('{"a": 1, "b": [2,3]},{}', ['{"a": 1, "b": [2,3]}', "{}"]),
        ('["a,b","]"],x', ['["a,b","]"]', "x"]),
        ("'a,b',c", ["a,b", "c"]),
        ('"a, b","c"', ["a, b", "c"]),
        ("it's,b", ["it's", "b"]),
        ('5",6"', ['5"', '6"']),
        ("[1,2", ["[1", "2"]),
        (":),:(", [":)", ":("]),
        ("x=1,-2, é ü,true", ["x=1", "-2", "é ü", "true"]),
    ],
)
def test_values_are_split_at_commas_outside_of_quotes_and_brackets(text: str, values: list[str]) -> None:
    """A list, a mapping or a text with a comma is one value; an odd quote or bracket belongs to its value."""
    assert [point["a"] for point in of_words([f"a={text}"], [], 0, 0).points("")] == values
    assert of_words([], [f"a={text}"], 1, 0).draws["a"].values == values


def test_ids_follow_from_the_sweep_and_the_point() -> None:
    """The same for the same, others for others, and fit for a directory's name."""
    points = [{"lr": "0.1"}, {"lr": "../../evil"}]
    first, second = tasks("my sweep/1", points)
    assert [task.id for task in tasks("my sweep/1", points)] == [first.id, second.id]
    assert first.id != tasks("another", points)[0].id
    assert all("/" not in task.id and "/" not in task.name for task in (first, second))
    assert first.name == "lr0.1"
    assert name_of(["python", "a/train.py"], points) == name_of(["python", "a/train.py"], points)
    assert name_of(["python", "a/train.py"], points).startswith("train-sweep-")
