"""Names of W&B's runs that runs here don't have: without effect, or refused with the real call."""

from __future__ import annotations

import difflib
import logging
from typing import Any, NoReturn

from trackers.training.wandb_arguments import NotProvided

GRADIENTS = "gradient and parameter histograms aren't logged by watch here; log them yourself as Histogram"
HINTS = {
    "Plotly": "log the plotly figure itself instead",
    "plot": "log a Table or a matplotlib figure instead",
    "plot_table": "log a Table instead",
    "Api": "`trackers show` and `trackers ls` read runs on this machine",
    "link_model": "log_artifact keeps the file with the run",
    "use_artifact": "log_artifact works here",
}
RUN_WITHOUT_EFFECT = {
    "watch": GRADIENTS,
    "unwatch": "nothing is watched",
    "log_code": "the script, its arguments and git state are recorded anyway",
}
RUN_REFUSED = (
    "use_artifact", "link_artifact", "upsert_artifact", "finish_artifact", "log_model", "use_model", "link_model",
    "restore", "display", "to_html", "get_url", "get_project_url", "get_sweep_url", "project_name",
)  # fmt: skip
_warned: set[str] = set()


def of_run(name: str, ours: list[str]) -> Any:
    """What ``run.<name>`` is to a script written for W&B, where a run of ours has no such name.

    Raises:
        AttributeError: W&B's runs have none either; the message has the nearest of ``ours``.
    """
    if name in RUN_WITHOUT_EFFECT:

        def without_effect(*arguments: Any, **more: Any) -> None:
            if name not in _warned:
                _warned.add(name)
                logging.getLogger("trackers").warning("run.%s has no effect here: %s", name, RUN_WITHOUT_EFFECT[name])

        return without_effect
    if name in RUN_REFUSED:
        return RefusedName(f"run.{name}")
    near = difflib.get_close_matches(name, [key for key in ours if not key.startswith("_")], n=1)
    raise AttributeError(f"a run has no {name!r}" + (f": did you mean {near[0]!r}?" if near else ""))


class RefusedName:
    """A function or a part of W&B that isn't provided: using it raises :class:`NotProvided`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: Any, **more: Any) -> NoReturn:
        raise NotProvided(refusal(self._name, call=True))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotProvided(refusal(f"{self._name}.{name}", call=self._name in ("plot", "sdk")))

    def __repr__(self) -> str:
        return f"<{refusal(self._name, call=False)}>"


def refusal(name: str, call: bool = True) -> str:
    """The one line that says so."""
    hint = HINTS.get(name.partition(".")[0])
    dots = "(...)" if call else ""
    return f"trackers has no {name!r}: that is W&B's own; call it as `import wandb; wandb.{name}{dots}`" + (
        f", or {hint}" if hint else ""
    )
