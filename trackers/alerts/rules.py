"""The language of ``TRACKER_ALERTS``: ``"nan(train_loss); stall(10m); val_loss > 10 for 60s; crashed"``.

::

    rules      = rule *(";" rule)
    rule       = event | ( nan | stall | plateau | comparison | windows ) [ "->" action *("," action) ]
    action     = "stop" | "checkpoint"
    event      = "crashed" | "failed" | "finished" | "preempted" | "stopped"
    nan        = "nan" [ "(" [ pattern *("," pattern) ] ")" ] [ every ]
    stall      = "stall" "(" duration ")"
    plateau    = "plateau" "(" pattern "," count [ "," ( "min" | "max" ) ] ")"
    comparison = pattern operator number [ "for" duration ] [ "until" number ] [ every ]
    windows    = sum operator sum [ "for" duration ] [ every ]
    sum        = product *( ( "+" | "-" ) product )
    product    = factor *( ( "*" | "/" ) factor )
    factor     = number | function "(" ( name "[" count "]" | pattern ) [ "," number ] ")"
    function   = "mean" | "median" | "min" | "max" | "std" | "slope" | "zscore" | "quantile"
    every      = "every" duration
    operator   = ">" | ">=" | "<" | "<=" | "==" | "!="
    duration   = number ( "s" | "m" | "h" | "d" )

A pattern is the name of a metric or a result (``final/…``) as ``fnmatch`` has it. A name with spaces or other signs of
the language stands in quotes. Spaces stand around the signs of a sum, which names may have, too. A window of a pattern
is over the values of one record: of all ranks, as ``All`` logs them.
A comparison's left side may be a name where its right side is a sum: ``loss > 3 * mean(loss[100])``.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import NoReturn

import msgspec

from trackers.alerts import windows
from trackers.errors import did_you_mean

EVENTS = ("crashed", "failed", "finished", "preempted", "stopped")
"""Ends of an attempt."""
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
EVERY_S = 600.0
"""Default minimum time between two alerts of one rule, in seconds."""
MOST_RULES = 100
LONGEST = 10_000
"""Maximum length of all rules, in characters."""
LONGEST_S = 30 * 86400.0
"""Maximum duration, in seconds."""

ALIASES: dict[str, tuple[str, ...]] = {
    "gpu/temp": ("gpu/temp_max_c", "gpu/node*[./]temp_max_c"),
    "gpu/power": ("gpu/power_total_w", "gpu/node*[./]power_total_w"),
    "gpu/util": ("gpu/compute_util_avg", "gpu/node*[./]compute_util_avg"),
    "gpu/memory": ("gpu/memory_used_avg_gb", "gpu/node*[./]memory_used_avg_gb"),
    "gpu/energy": ("gpu/energy_total_j", "gpu/node*[./]energy_total_j"),
    "host/cpu": ("system.cpu", "system.node*.cpu"),
    "host/memory": ("system.memory_percent", "system.node*.memory_percent"),
    "host/disk": ("system.disk.usagePercent", "system.node*.disk.usagePercent"),
}
"""Short names of samples of the machine, and patterns of the names that they are recorded under."""

_DECIMAL = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([a-z]*)")
_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"[^"]*"|'[^']*')|(?P<sign>->|>=|<=|==|!=|[><();,])|(?P<word>[^\s;,()<>=!"']+)|(?P<odd>\S))"""
)
_CALLS = ("nan", "stall", "plateau")
_WINDOW = re.compile(r"(?P<name>.*)\[(?P<count>\d{1,9})\]")
_WORDS = (*EVENTS, *_CALLS)
MOST_VALUES = 1_000_000_000
_MODIFIERS = ("for", "until", "every")
ACTIONS = ("stop", "checkpoint")
"""What a rule can ask the run to do, beside its alert."""


class Rule(msgspec.Struct, frozen=True):
    """One rule.

    text: as it was written, spaces made one. kind: "nan", "stall", "plateau", "compare", "windows" or one of
    :data:`EVENTS`. left, right: of windows, the sums that are compared.
    names: patterns of metrics. sign, value: what a comparison fires at; of a plateau the better direction, if it was
    given, and the number of values. until: it fires anew only after a value on the other side of this one. hold_s: how
    long the condition must hold. every_s: minimum time between two alerts. actions: what the run is asked to do.
    """

    text: str
    kind: str
    names: tuple[str, ...] = ()
    sign: str = ""
    value: float = 0.0
    until: float | None = None
    hold_s: float = 0.0
    every_s: float = EVERY_S
    actions: tuple[str, ...] = ()
    left: windows.Expression = ()
    right: windows.Expression = ()

    @property
    def text_without_actions(self) -> str:
        """The rule as it raises an alert, and asks the run for nothing."""
        return self.text.rpartition("->")[0].rstrip() if self.actions else self.text

    @property
    def level(self) -> str:
        """Of its alerts: INFO, WARN or ERROR."""
        if self.kind in ("nan", "crashed", "failed"):
            return "ERROR"
        return "INFO" if self.kind in ("finished", "stopped") else "WARN"

    def matches(self, name: str) -> bool:
        """Whether it is about a metric."""
        return any(name == pattern or fnmatchcase(name, pattern) for pattern in self.names)

    def holds(self, value: float, active: bool) -> bool:
        """Whether its condition holds for a value. active: it held for the one before."""
        if self.kind == "nan":
            return not math.isfinite(value)
        if active and self.until is not None and not math.isnan(value):
            return value > self.until if self.sign in (">", ">=") else value < self.until
        return OPERATORS[self.sign](value, self.value)


def parse(text: str) -> tuple[Rule, ...]:
    """The rules of an option.

    Raises:
        ValueError: one of them can't be read; the message has its position and what is known.
    """
    if len(text) > LONGEST:
        raise ValueError(f"its rules are longer than {LONGEST:,} characters")
    rules = _Parser(text).rules()
    if len(rules) > MOST_RULES:
        raise ValueError(f"it has {len(rules)} rules; {MOST_RULES} are the most")
    return tuple({rule.text: rule for rule in rules}.values())


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    begin: int
    end: int


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[_Token] = []
        offset = 0
        while (match := _TOKEN.match(text, offset)) is not None:
            kind = str(match.lastgroup)
            token = _Token(kind, match[kind], match.start(kind), match.end())
            if kind == "odd":
                self._refuse(token, f"{match[kind]!r} isn't expected here")
            self._tokens.append(token)
            offset = match.end()
        self._at = 0

    def rules(self) -> list[Rule]:
        rules = []
        while self._at < len(self._tokens):
            if self._sign(";"):
                continue
            rules.append(self._with_actions(self._peek(), self._rule()))
            if self._at < len(self._tokens) and not self._sign(";"):
                token = self._peek()
                if token.text in _MODIFIERS:
                    self._refuse(token, f"{rules[-1].text} takes no {token.text!r}")
                hint = did_you_mean(token.text, _MODIFIERS, ": a rule ends with ;")
                self._refuse(token, f"{token.text!r} isn't expected here{hint}")
        return rules

    def _with_actions(self, first: _Token, rule: Rule) -> Rule:
        if not self._sign("->"):
            return rule
        actions: list[str] = []
        while True:
            token = self._next("stop or checkpoint")
            if token.text not in ACTIONS:
                self._refuse(token, f"a run can't be asked to {token.text!r}: known are {', '.join(ACTIONS)}")
            actions.append(token.text)
            if not self._sign(","):
                break
        if rule.kind in EVENTS:
            self._refuse(first, f"a run that has {rule.kind} can't be asked to {actions[0]}")
        return msgspec.structs.replace(rule, text=self._source_text(first), actions=tuple(dict.fromkeys(actions)))

    def _rule(self) -> Rule:
        first = self._next("a rule")
        if first.kind == "sign":
            self._refuse(first, f"a rule doesn't begin with {first.text!r}")
        plain = first.kind == "word"
        if self._begins_sum(first):
            self._at -= 1
            return self._windows(first, self._sum())
        if self._sign("("):
            if not plain or first.text not in _CALLS:
                known = did_you_mean(first.text, _CALLS, ": known are nan(NAME), stall(10m) and plateau(NAME, 20)")
                self._refuse(first, f"{first.text}(…) is no rule{known}")
            if first.text == "plateau":
                return self._plateau(first)
            return self._nan(first, True) if first.text == "nan" else self._stall(first)
        if self._at < len(self._tokens) and self._peek().text in OPERATORS:
            return self._comparison(first)
        if plain and first.text in EVENTS:
            return Rule(text=first.text, kind=first.text, every_s=0.0)
        if plain and first.text == "nan":
            return self._nan(first, False)
        known = did_you_mean(
            first.text, _WORDS, f": known are {', '.join(EVENTS)}, nan(NAME), stall(10m) and NAME > NUMBER"
        )
        self._refuse(first, f"{first.text!r} is no rule{known}")

    def _nan(self, first: _Token, opened: bool) -> Rule:
        names: list[str] = []
        while opened and not self._sign(")"):
            names.append(self._name(self._next("a metric's name")))
            if not self._sign(","):
                self._expect(")")
                break
        every_s = self._modifiers(first, ("every",)).get("every", EVERY_S)
        return Rule(text=self._source_text(first), kind="nan", names=resolved(names or ["*"]), every_s=every_s)

    def _stall(self, first: _Token) -> Rule:
        duration_s = self._duration(self._next("a duration"))
        self._expect(")")
        return Rule(text=self._source_text(first), kind="stall", hold_s=duration_s, every_s=0.0)

    def _plateau(self, first: _Token) -> Rule:
        name = self._name(self._next("a metric's name"))
        self._expect(",")
        token = self._next("a number of values")
        count = self._number(token)
        if not (1 <= count <= MOST_VALUES and count == int(count)):
            self._refuse(token, f"{token.text} is no number of values")
        sign = ""
        if self._sign(","):
            token = self._next("min or max")
            sign = token.text
            if sign not in ("min", "max"):
                self._refuse(token, f"{sign!r} isn't min or max, the better direction")
        self._expect(")")
        every_s = self._modifiers(first, ("every",)).get("every", EVERY_S)
        names = resolved([name])
        return Rule(text=self._source_text(first), kind="plateau", names=names, sign=sign, value=count, every_s=every_s)

    def _comparison(self, first: _Token) -> Rule:
        name = self._name(first)
        sign = self._next("an operator").text
        token = self._next("a number")
        if self._begins_sum(token):
            self._at -= 2
            return self._windows(first, ("window", "last", self._metric(first, name), 1, 0.0))
        value = self._number(token)
        modifiers = self._modifiers(first, _MODIFIERS)
        until = modifiers.get("until")
        if until is not None:
            if sign not in (">", ">=", "<", "<="):
                self._refuse(first, f"until says when {sign} is over: it goes with > and <")
            if until > value if sign.startswith(">") else until < value:
                side = "more" if sign.startswith(">") else "less"
                self._refuse(token, f"until is where {sign} {token.text} is over: no {side}")
        return Rule(
            text=self._source_text(first), kind="compare", names=resolved([name]), sign=sign, value=value, until=until,
            hold_s=modifiers.get("for", 0.0), every_s=modifiers.get("every", EVERY_S),
        )  # fmt: skip

    def _begins_sum(self, token: _Token) -> bool:
        """Whether a sum of windows begins with the token that was read last."""
        following = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token.kind != "word" or following is None:
            return False
        return (token.text in windows.FUNCTIONS and following.text == "(") or (
            following.text in windows.SIGNS and _DECIMAL.fullmatch(token.text) is not None
        )

    def _windows(self, first: _Token, left: windows.Expression) -> Rule:
        token = self._next("an operator")
        if token.text not in OPERATORS:
            self._refuse(token, f"{token.text!r} is no operator: {', '.join(OPERATORS)}")
        right = self._sum()
        names = tuple({**windows.lengths(left), **windows.lengths(right)})
        modifiers = self._modifiers(first, ("for", "every"))
        return Rule(
            text=self._source_text(first), kind="windows", names=names, sign=token.text, left=left, right=right,
            hold_s=modifiers.get("for", 0.0), every_s=modifiers.get("every", EVERY_S),
        )  # fmt: skip

    def _sum(self, signs: tuple[str, ...] = ("+", "-")) -> windows.Expression:
        def part() -> windows.Expression:
            return self._sum(("*", "/")) if signs == ("+", "-") else self._factor()

        found = part()
        while self._at < len(self._tokens) and self._peek().text in signs:
            sign = self._next("a sign").text
            found = (sign, found, part())
        return found

    def _factor(self) -> windows.Expression:
        token = self._next("a number or a window")
        if token.text not in windows.FUNCTIONS:
            if token.kind == "word" and _DECIMAL.fullmatch(token.text) is None:
                hint = did_you_mean(token.text, list(windows.FUNCTIONS), f": known are {', '.join(windows.FUNCTIONS)}")
                self._refuse(token, f"{token.text!r} is neither a number nor a window such as mean(loss[50]){hint}")
            return ("number", self._number(token))
        self._expect("(")
        name_token = self._next("a metric's name")
        name, count = self._window(token.text, name_token)
        share = 0.0
        if token.text == "quantile":
            self._expect(",")
            share_token = self._next("a share, 0 to 1")
            share = self._number(share_token)
            if not 0 <= share <= 1:
                self._refuse(share_token, f"{share_token.text} is no share, 0 to 1")
        self._expect(")")
        return ("window", token.text, name, count, share)

    def _window(self, function: str, token: _Token) -> tuple[str, int]:
        """Of what a function is, and of how many values; 0: of those of one record, over ranks."""
        joined = token.text
        if token.kind == "quoted":
            joined = token.text[1:-1]
            if self._at < len(self._tokens) and self._peek().text.startswith("["):
                joined += self._next("[COUNT]").text
        match, least = _WINDOW.fullmatch(joined), windows.LEAST.get(function, 1)
        if match is None and "*" in joined and least == 1:
            return joined, 0
        if match is None or not match["name"]:
            self._refuse(token, f"{token.text!r} has no window: {function}({token.text}[50])")
        count = int(match["count"])
        if not least <= count <= windows.MOST_VALUES:
            self._refuse(token, f"{count} is no length of a window: {least} to {windows.MOST_VALUES:,}")
        return self._metric(token, match["name"]), count

    def _metric(self, token: _Token, name: str) -> str:
        """One metric's name: a window is of one."""
        patterns = resolved([name])
        if len(patterns) == 1 and any(sign in name for sign in "*?"):
            more = "without a length it is over those of a record"
            self._refuse(token, f"{name!r} is a pattern: a window is of one metric; {more}")
        return patterns[0]

    def _modifiers(self, first: _Token, allowed: tuple[str, ...]) -> dict[str, float]:
        modifiers: dict[str, float] = {}
        while self._at < len(self._tokens) and self._peek().kind == "word":
            token = self._peek()
            if token.text not in allowed:
                if token.text in _MODIFIERS:
                    self._refuse(token, f"{first.text} takes no {token.text!r}")
                break
            if token.text in modifiers:
                self._refuse(token, f"{token.text!r} is there twice")
            self._at += 1
            value = self._next("a number" if token.text == "until" else "a duration")
            modifiers[token.text] = self._number(value) if token.text == "until" else self._duration(value)
        return modifiers

    def _name(self, token: _Token) -> str:
        name = token.text[1:-1] if token.kind == "quoted" else token.text
        if token.kind == "sign" or not name.strip():
            self._refuse(token, f"{token.text!r} is no metric's name")
        return name

    def _number(self, token: _Token) -> float:
        try:
            value = float(token.text)
        except ValueError:
            self._refuse(token, f"{token.text!r} is no number")
        if math.isnan(value):
            self._refuse(token, "nothing is compared with NaN: nan(NAME) finds it")
        return value

    def _duration(self, token: _Token) -> float:
        match = _DURATION.fullmatch(token.text)
        if match is None or match[2] not in _UNITS:
            self._refuse(token, f"{token.text!r} is no duration: 90s, 10m, 2h or 1d")
        seconds = float(match[1]) * _UNITS[match[2]]
        if not 0 < seconds <= LONGEST_S:
            self._refuse(token, f"{token.text} is no duration of more than nothing and at most 30 days")
        return seconds

    def _source_text(self, first: _Token) -> str:
        return " ".join(self._text[first.begin : self._tokens[self._at - 1].end].split())

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self, what: str) -> _Token:
        if self._at >= len(self._tokens):
            end = len(self._text.rstrip())
            self._refuse(_Token("end", "", end, end), f"{what} is missing at its end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _sign(self, sign: str) -> bool:
        matched = self._at < len(self._tokens) and self._peek().kind == "sign" and self._peek().text == sign
        self._at += matched
        return matched

    def _expect(self, sign: str) -> None:
        if not self._sign(sign):
            token = self._next(f"{sign!r}")
            quotes = "; a name with spaces stands in quotes" if token.kind == "word" else ""
            self._refuse(token, f"{sign!r} is expected, not {token.text!r}{quotes}")

    def _refuse(self, token: _Token, why: str) -> NoReturn:
        raise ValueError(f"character {token.begin + 1}: {why}")


def resolved(names: list[str]) -> tuple[str, ...]:
    """Patterns of the names that metrics are recorded under: short names of samples stand for these."""
    return tuple(pattern for name in names for pattern in ALIASES.get(name, (name,)))
