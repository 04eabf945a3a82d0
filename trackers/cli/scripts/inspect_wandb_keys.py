"""``inspect_wandb_keys``: every name in a run of W&B, each in one group, none cut off."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from trackers.analysis.tables import plain
from trackers.cli.scripts import wandb_query
from trackers.cli.scripts.wandb_query import Query
from trackers.metrics.groups import grouped
from trackers.readers.reader import SourceRun
from trackers.records import Metrics, Summary, Text

NAME = "inspect_wandb_keys"
TITLES = {
    "GPU-related keys": ("gpu",),
    "Training metrics keys": ("training", "validation"),
    "Final keys": ("final",),
    "System keys": ("system",),
}
"""Titles printed above groups."""


def main(arguments: Sequence[str]) -> int:
    """Run the program; 1 where the run has no names."""
    made = wandb_query.parser(NAME, "List every metric of a W&B run, by group.")
    wandb_query.choose_one(made)
    options = made.parse_args(arguments)
    query = Query(options)
    run = query.run(options.run_name, options.run_id)
    names = _names(query, run)
    groups = grouped(names)
    listed = {title: sorted(name for part in parts for name in groups[part]) for title, parts in TITLES.items()}
    if options.json:
        print(json.dumps({**wandb_query.described(run), "total": len(names), "keys": groups}, indent=2))
    else:
        print(wandb_query.head(run))
        print(f"\nTotal unique keys: {len(names)}")
        for title, found in listed.items():
            if found:
                print("\n".join([f"\n{title}:", *(f"  - {plain(name)}" for name in found)]))
    if not names:
        print("No keys found in this run: nothing was logged, or not yet", file=sys.stderr)
        return 1
    return 0


def _names(query: Query, run: SourceRun) -> list[str]:
    found = query.keys(run)
    if found is None:
        seen: set[str] = set()
        for record in query.records(run):
            if isinstance(record, (Metrics, Text, Summary)):
                seen.update(record.values)
        found = list(seen)
    return sorted(set(found))
