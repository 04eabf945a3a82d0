"""Exceptions of this package, as one small tree.

TrackersError
├── UsageError              raised by ``init`` and the command line, before the first step (exit code 2)
│   ├── UnknownTracker
│   ├── MissingPackage
│   ├── ConfigError         an option, a defconfig line, a flag
│   └── CredentialsMissing
├── NotFound                a run, a file, a project that isn't there (exit code 1)
│   └── Damaged             it is there, but its content isn't what it must be
└── DeliveryError           raised by a tracker's ``open``, ``write`` and ``close``; never reaches training
    ├── Unavailable         retried from the cursor, for as long as it takes
    ├── Refused             login or address refused: retried slowly, credentials read afresh
    ├── Rejected            this batch can't be taken: halved until the record is alone, which is set aside
    └── Fatal               this delivery stops, with the command that continues it

Every message says what happened, what is known, and the next command.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

UNDECODABLE = (ValueError, RecursionError)
"""Errors of msgspec and json for bytes that aren't JSON: decoding and UTF-8 errors (ValueError), deep nesting."""

NAME_LONGEST = 80
"""Maximum length of a name from elsewhere in a message, in characters."""


def did_you_mean(word: str, known: Iterable[str], otherwise: str = ".", most: int = 1) -> str:
    """The end of a message about an unknown word: the nearest of the known ones; ``otherwise`` where none is near.

    Args:
        most: how many are named.
    """
    import difflib

    near = difflib.get_close_matches(word, list(known), n=most)
    return f": did you mean {examples(map(repr, near))}?" if near else otherwise


def examples(names: Iterable[object], most: int = 10) -> str:
    """For the end of a message: the first of the names that there are, however many and long somebody made them.

    Returns:
        at most ``most`` names of at most 80 characters each, in one line; "none" where there is none.
    """
    lines = [" ".join(str(name).split()) for name in names]
    first = [name if len(name) <= NAME_LONGEST else f"{name[:NAME_LONGEST]}…" for name in lines[:most]]
    more = f" and {len(lines) - most:,} more" if len(lines) > most else ""
    return (", ".join(first) + more) or "none"


def quoted(value: object) -> str:
    """For a message: a text or another value that somebody wrote, in quotes, at most 200 characters of it."""
    return shortened(repr(value))


def shortened(text: str) -> str:
    """For a message: at most 200 characters of a text."""
    return text if len(text) <= 200 else f"{text[:200]}…"


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, then what it was raised from or while handling, and so on; each once, also in a circle."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


class TrackersError(Exception):
    """Root of everything that trackers raises."""

    @property
    def message(self) -> str:
        """The text, under the name that W&B's errors have."""
        return str(self)


class UsageError(TrackersError, ValueError):
    """A call or a command that can't be carried out as it was given."""


class UnknownTracker(UsageError):
    """A tracker name that is neither built in nor registered as an entry point."""


class MissingPackage(UsageError):
    """A tracker's client package isn't installed."""


class ConfigError(UsageError):
    """An option that is unknown, of the wrong type, or whose dependency is unmet."""


class CredentialsMissing(UsageError):
    """A tracker needs a login that isn't there."""


class NotFound(TrackersError, LookupError):
    """A run, file or project that doesn't exist."""


class Damaged(NotFound):
    """A file, a database or a server's answer whose content isn't what its format says."""


class DeliveryError(TrackersError):
    """A tracker couldn't take what it was given."""


class Unavailable(DeliveryError):
    """The destination can't be reached or is busy; the same batch will be tried again.

    Args:
        message: what happened, without the tracker's name.
        retry_after_s: what the destination asked for (HTTP ``Retry-After``), in seconds.
        limited: it asks for fewer requests (429), which concerns all runs of this user on this machine.

    Attributes:
        reopen: trying again is no use with the tracker as it is: it is opened anew, from its state.
    """

    reopen = False

    def __init__(self, message: str, retry_after_s: float | None = None, *, limited: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.limited = limited


class Refused(DeliveryError):
    """Login or address refused (401, 403, 404)."""


class Rejected(DeliveryError):
    """The destination won't take this batch because of what is in it."""


class Fatal(DeliveryError):
    """The delivery can't continue: a broken package, a refused version."""


def reason(error: BaseException) -> str:
    """Type and message of an exception in one text; the type alone where the message can't be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


Error = TrackersError
CommError = AuthenticationError = Unavailable
"""Names under which scripts that were written for W&B catch errors: ``except wandb.errors.CommError``."""
