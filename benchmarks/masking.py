"""What masking secrets costs where a text is made to be slow, against plain text."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import Figure, main

PLAIN = "the loss of step 12 is 0.5, and training goes on; see train.py for more\n"
NAMES = ("password", "api_key", "token", "secret", "pwd", "HF_TOKEN", "pw", "client_secret", "auth", "PASSWORD",
         "login", "private_key", "Authorization", "x-api-key", "username", "name", "sig", "passphrase")  # fmt: skip
SIGNS = ("=", ":", " ", ": ", " = ", '="', "='", '":"', ",", " is ", "|", "->", "(", ")", "[", "]", "{", "<", ">",
         "//", "@", "&", "?", '\\"', "\t", ";", "--", " -p ", "${", "`", " == ", "_", "\r", "'", '"', "</",
         " - ")  # fmt: skip
VALUES = ("hunter2", "x", "abc123DEF456ghi789", "***", "None", "a", "0", "os.environ", "get", "insert into", "values",
          "Bearer", "http", "mysql", "curl", "docker", "export", "ENV", "set", "the", "ey", "AKIA")  # fmt: skip
REPEATED = (("password == ", 'a"'), ("password == ", '\\"'), ("https://x?token=x", "?a=b"), ("password or ", "a="),
            ("", "pwd= "), ("", '=>token"get'), ("", "pw=a "), ("", "\0"), ("", "pwd=\0"), ("", "pw=a\n"))  # fmt: skip
"""What a text begins with, and of what it is then made: each took the longest of all in some version."""


def texts(size: int, mixed: int) -> Iterator[str]:
    """Texts of so many characters: of one thing, of different passwords, and so many of names, signs and words."""
    for begin, unit in REPEATED:
        yield (begin + unit * size)[:size]
    for seed in range(mixed):
        dice = random.Random(seed)
        units = ["".join(dice.choice(dice.choice((NAMES, SIGNS, SIGNS, VALUES))) for _ in range(dice.randint(1, 6)))
                 for _ in range(dice.randint(1, 5))]  # fmt: skip
        if seed % 5 == 0:
            units = [f"password={seed}{number}{dice.random()}\n" for number in range(size // 20)]
        yield "".join(dice.choices(units, k=size))[:size]


def seconds_per_mb(text: str) -> float:
    """Of the processor."""
    from trackers.support.redaction import mask_source

    began = time.process_time()
    mask_source(text)
    return (time.process_time() - began) / len(text) * 1e6


def measure(quick: bool) -> list[Figure]:
    """The figures, of 400 texts (30 for a try)."""
    size = 5_000 if quick else 20_000
    seconds_per_mb(PLAIN)
    plain = min(seconds_per_mb(PLAIN * (200_000 // len(PLAIN))) for _ in range(3))
    worst = max(min(seconds_per_mb(text), seconds_per_mb(text)) for text in texts(size, 20 if quick else 390))
    return [
        Figure("1 MB of plain text", plain, "s"),
        Figure("1 MB of the slowest text", worst, "s"),
        Figure("  against plain text", worst / plain, "x", at_most=30.0),
    ]


if __name__ == "__main__":
    main(measure, __doc__ or "")
