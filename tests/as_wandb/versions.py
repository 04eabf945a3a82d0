"""What W&B's clients before the newest one do otherwise: tests compare each version with what it does itself.

``make test-wandb`` runs them. A table's entry holds before the version that it names, and fails where it doesn't.
"""

from __future__ import annotations

from importlib import metadata
from typing import TypeVar

from trackers.support.client_versions import number

Name = TypeVar("Name")

CLIENT = number(metadata.version("wandb"))

CALLS = {
    # Written differently at first, equal since.
    ("settings", "s.base_url"): "0.31",  # the service's address has changed
    ("run", 'run.write_logs("text")'): "0.28",  # not there
    **{("artifact", call): "0.28" for call in (  # any name of an entry was taken
        'a.add_file("file.bin", "x/../y.bin").path', 'a.add_file("file.bin", "/abs.bin").path',
        'a.add_file("file.bin", "../out.bin")', "sorted(a.manifest.entries)", "a.size",
    )},
    # Made up, or none.
    **{("disabled", f"run.{name}"): "0.28" for name in ("name", "project", "group", "tags", "notes")},
    ("media", "pixels(np.array([[0, 1], [0, 1]]))"): "0.30",  # whole numbers up to 1 were scaled as floats are
    # Equal at first, written differently since.
    **{("module", call): "0.28" for call in (  # removed
        "wandb.util.generate_id().isalnum()", "len(wandb.util.generate_id())", "len(wandb.util.generate_id(4))",
    )},
    **{("run", f"run.{name}()"): "0.30" for name in ("project_name", "get_url", "get_project_url", "get_sweep_url")},
    ("disabled", "run.get_url()"): "0.30",
    ("run", 'run.define_metric("a", summary="best", goal="maximize").goal'): "0.30",
    ("summary", 'run.define_metric("acc", summary="best", goal="maximize").name'): "0.30",
    **{("media", call): "0.30" for call in (  # images of floats were scaled as they are here
        "pixels(np.array([[0.0, 0.5], [0.75, 1.0]]))", "pixels(np.array([[-1.0, 0.0], [0.5, 1.0]]))",
        "pixels(np.array([[True, False]]))", "pixels(np.zeros((1, 2)) + 0.5)",
        "pixels(np.array([[0.0, 0.5]], dtype=np.float16))", "pixels(torch.tensor([[[-0.5, 0.0], [0.5, 1.0]]]))",
        "wandb.Image(np.array([[0, 300]]), normalize=False).image.size",
    )},
}  # fmt: skip
"""By section and call of surface.txt: before which version the outcome differs although the newest's is ours, or is
ours although the newest's differs."""

KINDS = {
    **dict.fromkeys((  # refused; "null" for None
        '{(1, 2): "a"}', "{None: 1}", "{Color.RED: 1}", '{b"a": 1}', '{pathlib.Path("/k"): 1}',
        "{datetime.date(2020, 1, 2): 1}", "{int: 1}",
    ), "0.28"),
}  # fmt: skip
"""The same of config_kinds.py's values."""

REFUSED = {"other_objects": ("0.28", "timedelta is not JSON serializable")}
"""Scripts of patterns.py that end with an error before a version, and its words."""

NAMES = {"EvalTable": "0.28"}
"""Names that the module offers since a version."""

PARAMETERS = {
    ("define_metric", "goal isn't parameter 5"): "0.30", ("define_metric", "overwrite isn't parameter 6"): "0.30",
    ("login", "anonymous isn't parameter 7"): "0.30",
}  # fmt: skip
"""Parameters that stood elsewhere before a version, all of them behind others that a call would give by name."""


def before(version: str) -> bool:
    """Whether the installed client is older than a version."""
    return number(version) > CLIENT


def otherwise(table: dict[Name, str]) -> set[Name]:
    """The entries of a table that hold for the installed client."""
    return {name for name, since in table.items() if before(since)}
