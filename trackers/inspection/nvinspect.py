"""nvdlfw-inspect, where it is installed: started, told of layers and steps, heard by a logger of ours, and ended.

Its statistics come through its logger interface; features that change what is computed are TransformerEngine's, and
are handed over as they are. It is one for the whole process.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trackers.errors import UsageError

PACKAGE, ENGINE = "nvdlfw_inspect", "transformer_engine"
MESSAGES = "nvdlfw_inspect"
"""The name of the logger that nvdlfw-inspect adds its handlers to, and never takes them from."""


def installed(package: str = PACKAGE) -> bool:
    """Whether a package is there; it isn't imported."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


class Library:
    """nvdlfw-inspect at work.

    Args:
        features: what it is to do. feature_dirs: further directories with features.
        log_dir: where its messages go, below ``nvdlfw_inspect_logs``. first: the number of the first iteration.
        take: called with each statistic: name, value, iteration.

    Raises:
        UsageError: it refuses the features, or somebody else has started it.
    """

    def __init__(
        self,
        features: Mapping[str, Any],
        feature_dirs: Sequence[str],
        log_dir: str,
        first: int,
        take: Callable[[str, Any, int], None],
    ) -> None:
        import nvdlfw_inspect.api as api
        from nvdlfw_inspect.logging import BaseLogger

        class Statistics(BaseLogger):  # type: ignore[misc,unused-ignore]
            """Passes nvdlfw-inspect's values to the same place as this package's own statistics."""

            def log_scalar(self, name: str, value: Any, iteration: int, **more: Any) -> None:
                take(name, value, iteration)

        if api.DEBUG_MANAGER is not None:
            raise UsageError("tensor inspection: nvdlfw-inspect is already started: leave its initialize out")
        self._api = api
        self._handlers = list(logging.getLogger(MESSAGES).handlers)
        try:
            api.initialize(
                config_file=dict(features),
                feature_dirs=[*feature_dirs, *engine_features()] or None,
                statistics_logger=Statistics(),
                log_dir=log_dir,
                init_training_step=first,
            )
        except (Exception, SystemExit) as error:
            self.close()
            raise UsageError(f"tensor inspection: nvdlfw-inspect refuses the features: {_text(error)}") from error

    def name_layers(self, chunks: Sequence[Any]) -> None:
        """Tell the model's layers their names."""
        self._api.infer_and_assign_layer_names(list(chunks))

    def statistics(self, layer: str, tensor: str) -> Callable[[Any], None]:
        """What takes its own LogTensorStats of a tensor: this rank's, whatever other ranks have."""
        api = self._api
        return lambda value: api.log_tensor_stats(layer, tensor_name=tensor, tensor=value, skip_reduction=True)

    def step(self) -> None:
        """An iteration has ended."""
        self._api.step()

    def close(self) -> None:
        """End it, and take away what it leaves."""
        try:
            self._api.end_debug()
        finally:
            logger = logging.getLogger(MESSAGES)
            for handler in list(logger.handlers):
                if handler not in self._handlers:
                    logger.removeHandler(handler)
                    handler.close()


def handed_over(features: Mapping[str, Any], measured: Sequence[str], *, engine: bool) -> dict[str, Any]:
    """What of a configuration nvdlfw-inspect is to have: as it is with TransformerEngine; without it, what needs none.

    Args:
        measured: features of TransformerEngine that are measured here without it.
    """
    found = {}
    for name, section in features.items():
        kept = dict(section)
        if not engine and isinstance(kept.get(ENGINE), Mapping):
            inner = {feature: values for feature, values in kept.pop(ENGINE).items() if feature not in measured}
            kept |= {ENGINE: inner} if inner else {}
        if section.get("enabled") and set(kept) - {"enabled", "layers"}:
            found[name] = kept
    return found


def engine_features() -> list[str]:
    """Where TransformerEngine has its features, if it is installed."""
    if not installed(ENGINE):
        return []
    found = importlib.util.find_spec(f"{ENGINE}.debug.features")
    return [] if found is None or found.origin is None else [str(Path(found.origin).parent)]


def _text(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text.removeprefix("[NVDLFW INSPECT ERROR] ")
