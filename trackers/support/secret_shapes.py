"""What tells a secret from code, numbers and words by its looks, where a name says that there is one."""

from __future__ import annotations

import re

from trackers.support.secret_names import Secrecy, meaning, word_set
from trackers.support.secret_values import is_release, is_secret, is_template, looks_made, looks_random

STATUS = word_set(
    "not missing none ok set unset found invalid valid expired expires required optional enabled disabled done loaded "
    "yes no true false empty present absent wrong incorrect correct stored saved used using given accepted rejected "
    "refreshed updated created deleted available unavailable unknown hidden masked redacted and or the a an is in of "
    "to for from with this that it must should can will has was be value description type default name meaning count "
    "please input string your you loss accuracy id ids per length size bytes usage reference"
)
"""Words behind a secret's name in a sentence or a table's head that are none."""
_ROOTS = word_set(
    "self cls this args arg cfg config conf configuration settings setting os env environ environment process opt "
    "opts option options param params parameters hparams flags ctx context request req response resp kwargs ns "
    "namespace secrets vars var local data inputs input steps github app state model module client session user "
    "account creds credentials obj item row values each"
)
"""Names whose attributes code passes on: config.password."""
NUMBERED = re.compile(
    r"[A-Za-z]{1,30}[_\-]?\d{1,4}(?:[a-z]{1,2}|[_\-.]\d{1,4})?|\d{1,8}(?:[.\-_:xX/]\d{1,8}){0,6}[A-Za-z]{0,3}"
)
"""A word with a number, a date, a size: layer12, 2024-01-01, 640x480."""
_SIGNED = re.compile(r"[A-Za-z0-9][!@#$%^&*?~+][A-Za-z0-9]|[A-Za-z0-9]{3}[!#$^&*?~]")
_MODULES = word_set(
    "torch np numpy jax jnp tf tensorflow typing t pd pandas types datetime pathlib collections abc enum re os sys "
    "json logging functools itertools asyncio threading pydantic transformers datasets tokenizers pl lightning nn "
    "optax flax haiku hydra omegaconf wandb mlflow trackio requests httpx aiohttp flask django fastapi sqlalchemy "
    "builtins ast dataclasses io math random string subprocess time uuid java javax com org net android kotlin scala "
    "std core"
)
"""Modules and packages, whose attributes are types and functions."""
_ATTRIBUTE = re.compile(r"[A-Za-z_]\w{0,100}(?:\.[A-Za-z_]\w{0,100}){1,20}")
CALL = re.compile(
    r"[A-Za-z_][\w.]{0,100}[(\[]|(?:await|not|lambda|new|yield|return|typeof|if|None|True|False)\b|[frbu]{0,2}[\"'`]"
)
_SIGNS = tuple("([{&|!*^")
"""What begins with a call, a keyword or one of these is an expression."""
IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,100}")
_MIXTURE = re.compile(r"[A-Za-z](?=\d)|\d(?=[A-Za-z])")
OF_TOKENS = re.compile("tokens?|keys?")


def is_shaped(value: str) -> bool:
    """Does it look as machines or careful people make secrets?"""
    return looks_made(value) or is_mixed(value)


def is_mixed(value: str) -> bool:
    """Is it letters with digits or signs among them, and no word with a number, date, size or address?"""
    if len(value) < 6 or " " in value or "/" in value or NUMBERED.fullmatch(value) or is_release(value):
        return False
    letters, digits = sum(map(str.isalpha, value)), sum(map(str.isdigit, value))
    return letters > 1 and (digits > 0 or _SIGNED.search(value) is not None)


def is_code(value: str) -> bool:
    """Does the text begin as an expression does?"""
    return CALL.match(value) is not None or value.startswith(_SIGNS)


def is_name(value: str) -> bool:
    """Is it a variable, or an attribute of one?"""
    return IDENTIFIER.fullmatch(value) is not None or _ATTRIBUTE.fullmatch(value) is not None


def is_attribute(name: str, value: str, said: bool = True) -> bool:
    """Is it an attribute of an object that code passes on? ``config.password`` is; ``Summer.Rain2026`` is none.

    Args:
        said: words with a dot between them are one, too, but a password's: it may be code.
    """
    if not _ATTRIBUTE.fullmatch(value):
        return False
    *above, last = value.split(".")
    if above[0] in _ROOTS or above[0] in _MODULES or (not last[-1].isdigit() and meaning(last)):
        return True
    return said and meaning(name) is not Secrecy.PASSWORD and not any(map(str.isdigit, value))


def is_drawn(name: str, value: str) -> bool:
    """Does a text further on in the line of a secret's name look as a machine makes secrets?"""
    mixed = len(value) > 7 and value.isalnum() and len(_MIXTURE.findall(value)) > 2 and not OF_TOKENS.fullmatch(name)
    drawn = mixed or looks_random(value)
    known = meaning(name) >= Secrecy.SECRET and drawn and is_secret(name, value)
    return known and not is_template(value) and "@" not in value and "/" not in value
