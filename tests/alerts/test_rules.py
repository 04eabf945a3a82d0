"""The language of rules: what each form means, and what is said of one that can't be read."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers.alerts import rules
from trackers.alerts.rules import ALIASES, EVERY_S, Rule, parse
from trackers.hardware import metric_names
from trackers.hardware.gpus.base import Gpu, Reading


def one(text: str) -> Rule:
    """The only rule."""
    (found,) = parse(text)
    return found


def test_forms_are_read() -> None:
    """Each form of the language, several at once, in any spacing."""
    found = parse(
        ' nan(train_loss, *norm*) ;stall(10m);val_loss>10 ; crashed;\n"lm loss" <= -1e-3 for 1.5h every 1d; nan;'
    )
    assert [rule.kind for rule in found] == ["nan", "stall", "compare", "crashed", "compare", "nan"]
    assert found[0].names == ("train_loss", "*norm*")
    assert found[1].hold_s == 600
    assert (found[2].names, found[2].sign, found[2].value) == (("val_loss",), ">", 10)
    assert (found[4].names, found[4].sign, found[4].value) == (("lm loss",), "<=", -1e-3)
    assert (found[4].hold_s, found[4].every_s, found[2].every_s) == (5400, 86400, EVERY_S)
    assert found[5].names == ("*",)
    assert parse("") == parse(" ; ;\n") == ()


def test_rule_may_ask_the_run_to_stop_or_to_save() -> None:
    """Behind an arrow, one or both; the action belongs to the rule's text."""
    found = parse("nan(train_loss) -> stop; loss > 10 for 60s every 1h -> checkpoint, stop; plateau(x, 3) ->stop")
    assert [rule.actions for rule in found] == [("stop",), ("checkpoint", "stop"), ("stop",)]
    assert found[1].text == "loss > 10 for 60s every 1h -> checkpoint, stop"
    assert (found[1].hold_s, found[1].every_s) == (60, 3600)


def test_rule_that_is_there_twice_counts_once() -> None:
    """One alert for one rule."""
    assert len(parse("val_loss  > 10; val_loss > 10")) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("crash", "character 1: 'crash' is no rule: did you mean 'crashed'?"),
        ("crashed; nann(loss)", "character 10: nann(…) is no rule: did you mean 'nan'?"),
        ("val_loss", "character 1: 'val_loss' is no rule: known are crashed, failed"),
        ("val_loss > ten", "character 12: 'ten' is no number"),
        ("val_loss >", "character 11: a number is missing at its end"),
        ("val_loss > nan", "character 12: nothing is compared with NaN: nan(NAME) finds it"),
        ("val_loss > 10 fro 60s", "character 15: 'fro' isn't expected here: did you mean 'for'?"),
        ("val_loss > 10 for 60", "character 19: '60' is no duration: 90s, 10m, 2h or 1d"),
        ("val_loss > 10 for 40d", "character 19: 40d is no duration"),
        ("val_loss > 10 for 1s for 2s", "character 22: 'for' is there twice"),
        ("val_loss > 10 until 11", "character 12: until is where > 10 is over: no more"),
        ("val_loss < 10 until 9", "character 12: until is where < 10 is over: no less"),
        ("val_loss == 10 until 9", "character 1: until says when == is over: it goes with > and <"),
        ("nan(loss) -> stpo", "character 14: a run can't be asked to 'stpo': known are stop, checkpoint"),
        ("nan(loss) ->", "character 13: stop or checkpoint is missing at its end"),
        ("crashed -> stop", "character 1: a run that has crashed can't be asked to stop"),
        ("nan(loss) for 3s", "character 11: nan takes no 'for'"),
        ("plateau(loss)", "character 13: ',' is expected, not ')'"),
        ("plateau(loss, 2.5)", "character 15: 2.5 is no number of values"),
        ("plateau(loss, inf)", "character 15: inf is no number of values"),
        ("plateau(loss, 3, down)", "character 18: 'down' isn't min or max, the better direction"),
        ("stall(10m", "character 10: ')' is missing at its end"),
        ("stall(0s)", "character 7: 0s is no duration"),
        ("crashed every 1h", "character 9: crashed takes no 'every'"),
        ("stall(10m) for 3s", "character 12: stall(10m) takes no 'for'"),
        ("nan(lm loss)", "character 8: ')' is expected, not 'loss'; a name with spaces stands in quotes"),
        ("crashed failed", "character 9: 'failed' isn't expected here: a rule ends with ;"),
        ("> 10", "character 1: a rule doesn't begin with '>'"),
        ("a = 10", "character 3: '=' isn't expected here"),
        ('"" > 1', "character 1: '\"\"' is no metric's name"),
        ("x > 1;" * 2000, "its rules are longer than 10,000 characters"),
        (";".join(f"x{n} > 1" for n in range(101)), "it has 101 rules; 100 are the most"),
    ],
)  # fmt: skip
def test_bad_rule_is_named_with_its_place(text: str, message: str) -> None:
    """One line: where, what, and what is near."""
    with pytest.raises(ValueError, match=r".") as caught:
        parse(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.heavy
@given(st.text(alphabet="nan(stl)crashed;<>=! 0123456789.\"'smhdforuntilevery*[]/\n", max_size=80))
def test_any_text_is_rules_or_an_error(text: str) -> None:
    """Nothing but ValueError comes of it; a rule's text is the same rule."""
    found: tuple[Rule, ...] = ()
    with contextlib.suppress(ValueError):
        found = parse(text)
    for rule in found:
        assert parse(rule.text) == (rule,)


def test_hysteresis_holds_until_the_other_value() -> None:
    """Once it holds, it is over where ``until`` says, and NaN fulfils no comparison."""
    rule = one("loss > 10 until 8")
    assert rule.holds(11, False)
    assert rule.holds(9, True)
    assert not rule.holds(9, False)
    assert not rule.holds(8, True)
    assert not rule.holds(math.nan, True)
    rule = one("acc < 0.5 until 0.6")
    assert rule.holds(0.55, True)
    assert not rule.holds(0.6, True)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_is_any_value_that_is_not_finite(value: float) -> None:
    """Infinity is no loss either."""
    assert one("nan(loss)").holds(value, False)
    assert not one("nan(loss)").holds(0.0, False)


def test_short_names_stand_for_samples_that_there_are() -> None:
    """Every alias stands for a name that the sampler records, on one machine and on several."""
    gpu = Reading(
        gpu=Gpu(index=0, label="0", vendor="nvidia"), compute_frac=0.5, memory_busy_frac=0.5, memory_used_bytes=1,
        memory_total_bytes=2, power_w=1.0, temp_c=1.0,
    )  # fmt: skip
    recorded = set(metric_names.job_values([gpu], 1.0))
    recorded |= {f"{metric_names.MACHINE}{name}" for name in ("cpu", "memory_percent", "disk.usagePercent")}
    for name, patterns in ALIASES.items():
        assert patterns[0] in recorded, name
        assert one(f"{name} > 1").matches(patterns[0])
    assert one("gpu/temp > 90").matches("gpu/node1.temp_max_c")
    assert not one("gpu/temp > 90").matches("gpu/temp")
    assert rules.resolved(["gpu/temp_max_c"]) == ("gpu/temp_max_c",)
