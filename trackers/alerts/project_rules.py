"""Rules that hold for a project's runs: the file ``alerts.txt`` in its directory, a rule or several on each line.

A run takes the rules of its project when it begins, beside those of its own ``TRACKER_ALERTS``; they stand in its
record. A line that begins in ``#`` says something to people. A line that can't be read is left out, and said. Where the
file is somebody else's, its rules raise alerts and ask nothing of training.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from trackers.alerts import PROJECT_FILE, rules
from trackers.errors import UsageError
from trackers.support import confined

MOST_BYTES = 100_000


class ProjectRules(NamedTuple):
    """texts: the rules, each once. problems: of the lines that can't be read, and of the file."""

    texts: list[str]
    problems: list[str]


def read(project: Path) -> ProjectRules:
    """The rules of a project's directory; none where it has no such file."""
    found: list[rules.Rule] = []
    problems: list[str] = []
    lines, is_own = _lines(project, problems)
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                found += rules.parse(line)
            except ValueError as error:
                problems.append(f"{project / PROJECT_FILE}, line {number}: {error}: it isn't watched")
    if not is_own and (asking := next((rule for rule in found if rule.actions), None)):
        problems.append(
            f"{project / PROJECT_FILE} is another account's: its rules raise alerts, and stop nothing "
            f"({asking.text}): TRACKER_ALERTS takes such a rule, or a file of your own"
        )
    texts = [rule.text if is_own else rule.text_without_actions for rule in found]
    return ProjectRules(list(dict.fromkeys(texts)), problems)


def _lines(project: Path, problems: list[str]) -> tuple[list[str], bool]:
    """The file's lines, and whether it is this account's, or root's."""
    try:
        with confined.open_file(project / PROJECT_FILE, root=project) as file:
            content, owner = file.read(MOST_BYTES + 1), os.fstat(file.fileno()).st_uid
        if len(content) > MOST_BYTES:
            raise ValueError(f"is longer than {MOST_BYTES:,} bytes")
        return content.decode().splitlines(), not hasattr(os, "geteuid") or owner in (os.geteuid(), 0)
    except FileNotFoundError:
        return [], True
    except (OSError, ValueError) as error:  # a link, not UTF-8, too long
        problems.append(f"{project / PROJECT_FILE} can't be read: {error}: its rules aren't watched")
        return [], True


def together(own: str, project: list[str]) -> tuple[str, list[str]]:
    """The rules of a run, and of its project's those that it has no room for.

    Args:
        own: its ``TRACKER_ALERTS``, which can be read.
    """
    taken, left = [own] if own.strip(" ;") else [], []
    for text in project:
        try:
            rules.parse("; ".join([*taken, text]))
        except ValueError:
            left.append(text)
        else:
            taken.append(text)
    return "; ".join(taken), left


def change(project: Path, add: str = "", remove: str = "") -> list[str]:
    """Add rules to a project's, or take some out; returns those that hold then. The file's other lines stay.

    Raises:
        UsageError: a rule can't be read, isn't there to be taken out, or the file can't be read or written.
    """
    problems: list[str] = []
    lines, _ = _lines(
        project, problems
    )  # who changes another account's file takes its rules for his own, and sees them
    if problems:
        raise UsageError(problems[0])
    try:
        added, removed = [rule.text for rule in rules.parse(add)], {rule.text for rule in rules.parse(remove)}
    except ValueError as error:
        raise UsageError(str(error)) from None
    kept: list[str] = []
    there: list[str] = []
    for line in lines:
        try:
            texts = [] if line.lstrip().startswith("#") else [rule.text for rule in rules.parse(line)]
        except ValueError:
            texts = []
        there += texts
        if removed.isdisjoint(texts):
            kept.append(line)
        elif left := [text for text in texts if text not in removed]:
            kept.append("; ".join(left))
    if missing := removed.difference(there):
        raise UsageError(f"no rule {sorted(missing)[0]!r}: there are {'; '.join(dict.fromkeys(there)) or 'none'}")
    kept += [text for text in added if text not in there or text in removed]
    if not project.is_dir():
        raise UsageError(f"{project} is no project's directory")
    try:
        confined.write_whole(project / PROJECT_FILE, "".join(f"{line}\n" for line in kept).encode(), root=project)
    except OSError as error:
        raise UsageError(f"{project / PROJECT_FILE} can't be written: {error.strerror}") from error
    return read(project).texts
