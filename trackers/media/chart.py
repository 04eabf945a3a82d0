"""Charts: a table, and how W&B draws it (the name of a chart there, which column is which, its texts).

A chart is recorded as its table, with ``meta["chart"]``: spec (the name), fields, strings, split_table, and panel:
"Vega2" for a custom chart, "viz" for one of W&B's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trackers.formats.json_values import to_json_values
from trackers.media.base import MediaStore, MediaValue
from trackers.media.table import Table
from trackers.records import MediaFile


@dataclass
class CustomChartSpec:
    """How W&B draws a table.

    Attributes:
        spec_name: the chart's name there. fields: the chart's fields, and the columns that they are.
        string_fields: its texts. key: the name that it is logged under. split_table: show the table elsewhere.
    """

    spec_name: str
    fields: dict[str, Any]
    string_fields: dict[str, Any]
    key: str = ""
    panel_type: str = "Vega2"
    split_table: bool = False


@dataclass(repr=False)
class CustomChart(MediaValue):
    """A table that is drawn as a chart. Made by ``plot_table`` and the other functions of ``wandb.plot``."""

    table: Table
    spec: CustomChartSpec
    type = "table"

    def set_key(self, key: str) -> None:
        """Set the name that it is logged under; ``log`` does it."""
        self.spec.key = key

    def items(self, store: MediaStore) -> list[MediaFile]:
        spec = self.spec
        return _described(
            self.table, store, spec.spec_name, spec.fields, spec.string_fields, spec.panel_type, spec.split_table
        )


@dataclass
class VisualizeSpec:
    """One of W&B's own charts. name: the chart's name there. key: the name that it is logged under."""

    name: str
    key: str = ""


@dataclass(repr=False)
class Visualize(MediaValue):
    """A table that one of W&B's own charts draws. Made by ``visualize``."""

    table: Table
    spec: VisualizeSpec = field(default_factory=lambda: VisualizeSpec(""))
    type = "table"

    def set_key(self, key: str) -> None:
        """Set the name that it is logged under; ``log`` does it."""
        self.spec.key = key

    def items(self, store: MediaStore) -> list[MediaFile]:
        return _described(self.table, store, self.spec.name, {}, {}, "viz", False)


def _described(
    table: Table,
    store: MediaStore,
    spec: str,
    fields: Mapping[str, Any],
    strings: Mapping[str, Any],
    panel: str,
    split_table: bool,
) -> list[MediaFile]:
    (item,) = table.items(store)
    item.meta = {
        "chart": {
            "spec": str(spec),
            "fields": to_json_values(dict(fields)),
            "strings": to_json_values(dict(strings)),
            "panel": panel,
            "split_table": bool(split_table),
        }
    }
    return [item]
