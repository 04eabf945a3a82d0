"""Prefixes that launchers and log collectors put before each line of a program.

``torchrun --tee`` and ``--log-line-prefix-template``, ``srun -l``, ``mpirun --tag-output`` and ``--timestamp-output``,
Hydra's and Intel's ``-prepend-rank``, ``pdsh`` and DeepSpeed's launcher, Ray, ``kubectl logs --prefix --timestamps``,
the files of container runtimes, ``docker logs -t``, ``docker compose logs``, journald and syslog, ``ts``. A line may
have several.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_CLOCK = rb"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_ONE = re.compile(
    rb"\s{0,8}(?:"
    # Times: RFC 3339 (a container runtime's with its stream), C's, syslog's, a clock alone.
    rb"(?:\d{4}-\d\d-\d\d[T ]" + _CLOCK + rb"(?:Z|[+-]\d\d:?\d\d)?(?:\ std(?:out|err)\ [FP])?"
    rb"|(?:[A-Z][a-z]{2}\ )?[A-Z][a-z]{2}\ [\ \d]?\d\ " + _CLOCK + rb"(?:\ \d{4})?"
    rb"|" + _CLOCK + rb")(?=[\s\[<])\s?"
    # Who wrote the line.
    rb"|(?P<label>(?:\[[^\]\n]{1,120}\]){0,3}<std\w{1,6}>(?=:)"
    rb"|\[[^\]\s]{1,200}\](?=:)"
    rb"|\[\d{1,7}\](?=\s)"
    rb"|\[(?:pod|job|deployment|statefulset)/[^\]\s]{1,300}\](?=\s)"
    rb"|\((?:[\w.:\[\]-]{1,80}\ )?pid=\d{1,9}(?:,\ ip=[^)\s]{1,60})?\)(?=\s)"
    rb"|(?:[\w.-]{1,80}\ )?[\w./()-]{1,80}\[\d{1,9}\](?=:\s)"
    rb"|[A-Za-z][\w.-]{0,80}(?=\s{1,40}\|\s)"
    rb"|\d{1,7}(?=:\s)|\d{1,3}(?:\.\d{1,3}){3}(?=:\s)|(?=[\w.-]{0,80}\d)[A-Za-z][\w.-]{0,80}(?=:\s))"
    rb"(?:\s{1,40}\|\s|:\ ?|\s)"
    rb")"
)
_MOST = 16
"""Prefixes of one line that are taken off."""


class Prefix(NamedTuple):
    """text: what stands before the program's line, its times included. label: who wrote the line, b"" if unsaid."""

    text: bytes
    label: bytes


def split(line: bytes) -> tuple[Prefix | None, bytes]:
    """What a launcher put in front of a line (None: nothing), and the line itself."""
    match = _ONE.match(line)
    if match is None:
        return None, line
    labels, end = [], 0
    for _ in range(_MOST):
        if match[1]:
            labels.append(match[1])
        end = match.end()
        match = _ONE.match(line, end)
        if match is None:
            break
    return Prefix(line[:end], b" ".join(labels)), line[end:]
