"""Samples of the machine that lay in a tracker's own names and units, as they were (``backends/system_names.py``)."""

from __future__ import annotations

from collections.abc import Mapping

from trackers.formats import vendor_system_names
from trackers.records import SYSTEM_PREFIX, Number

NAMES = {"mlflow": vendor_system_names.mlflow_name, "trackio": vendor_system_names.trackio_name}


def is_sample(name: str, step: int | None) -> bool:
    """Whether a value is a sample of the machine."""
    return step is None and name.startswith(SYSTEM_PREFIX)


def back(values: Mapping[str, Number], names: Mapping[str, str], tracker: str) -> dict[str, Number]:
    """Values by a tracker's names for them, as they were logged.

    Args:
        names: its names, and ours; what isn't there has kept its own.
    """
    return {
        names.get(name, name): vendor_system_names.restored(
            value, NAMES[tracker](names[name])[1] if name in names else 1.0
        )
        for name, value in values.items()
    }


def returned(values: Mapping[str, Number], tracker: str) -> dict[str, Number]:
    """Samples as they come back from a tracker: a long number's last digit can change with its unit."""
    if not tracker:
        return dict(values)
    factors = {name: NAMES[tracker](name)[1] for name in values}
    return {
        name: value if factors[name] == 1.0 else vendor_system_names.restored(value * factors[name], factors[name])
        for name, value in values.items()
    }
