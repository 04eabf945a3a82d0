"""Rewinding a W&B run: its server drops the rows above a training step, if it can.

W&B counts that as a rewind of the run (https://docs.wandb.ai/guides/runs/rewind): by its own ``_step``, online, and
only on servers that have it. Where it can't be had, or would cost rows that still count, the new rows follow the
superseded ones, and charts over ``global_step`` show both.
"""

from __future__ import annotations

import logging
import re

from trackers.backends.wandb.client import WandbSession
from trackers.backends.wandb.history_rows import STEP
from trackers.backends.wandb.summary import Definitions
from trackers.errors import DeliveryError
from trackers.tracker import RunInfo, State

REFUSAL = re.compile(r"failed to rewind run(?:: returned error (\d\d\d))?")
"""Message of wandb's client if only the rewind itself failed."""
WILL_NOT = ("400", "403", "404", "405", "422", "501")
TRIES = 4
"""Number of unexpected answers after which a server counts as unable to rewind."""

logger = logging.getLogger("trackers.wandb")


def reopen(
    session: WandbSession, info: RunInfo, state: State, attempt: int, step: int
) -> tuple[WandbSession, int | None]:
    """Open a run again that was just closed, its rows above a training step forgotten.

    Args:
        session: the closed one, whose server has all of its rows.
        attempt: which rewinds. Where that can't be had, ``state`` remembers it.

    Returns:
        the new session, and the ``_step`` of the last row that was kept; None if all were.

    Raises:
        DeliveryError: the server is away, or stumbled.
    """
    kept = last_kept(session, step)
    if kept is not None:
        try:
            found = WandbSession(info, resume=True, fields={}, rewind=kept)
        except DeliveryError as error:
            said = REFUSAL.search(str(error))
            if said is None:
                raise
            tries = int(state.get("rewind_tries", 0)) + 1
            state["rewind_tries"] = tries
            state.save()
            if tries < TRIES and said.group(1) not in WILL_NOT:
                raise
            logger.warning("this server doesn't rewind (%s): rows above step %d stay beside the new ones", error, step)
        else:
            state["rewind_tries"] = 0
            return found, kept
    state["not_rewound"] = [*state.get("not_rewound", []), attempt]
    state["rewind_tries"] = 0
    state.save()
    return WandbSession(info, resume=True, fields={}), None


def last_kept(session: WandbSession, step: int) -> int | None:
    """The ``_step`` behind which the server's rows are all of later training steps; None if there is no such place.

    Rows without a training step count as what they lie between.
    """
    held = session.held()
    kept = held
    for row in session.rows(step + 1, held):  # a row's _step is never below its training step
        training = row.get(STEP)
        if training is not None and training > step:
            kept = min(kept, int(row["_step"]) - 1)
        elif training is not None and kept < held:
            logger.warning("rows above step %d stay beside the new ones: earlier steps were logged after them", step)
            return None
    return kept


def count_again(session: WandbSession, definitions: Definitions, last: int, seq: int) -> None:
    """Minima, maxima and means over the rows that were kept: those of the records up to number ``seq``."""
    for row in session.rows(0, last):
        definitions.see(None, {name: value for name, value in row.items() if not name.startswith("_")})
    definitions.see(seq, {})
