"""``TrackersTracker``: a tracker for Accelerate, and so for the training scripts of Diffusers and others built on it.

    from trackers.frameworks.accelerate import TrackersTracker

    accelerator = Accelerator(log_with=TrackersTracker("wandb,mlflow", project="digits"))
    accelerator.init_trackers("digits", config={"lr": 0.1})
    accelerator.log({"loss": loss}, step=step)
    accelerator.end_training()

Importing this module also registers it, so that ``Accelerator(log_with="trackers")`` finds it (Accelerate 1.15). The
project is then that of ``init_trackers``, and ``init_kwargs={"trackers": {...}}`` are arguments of ``trackers.init``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from accelerate import tracking
from accelerate.tracking import GeneralTracker, on_main_process

from trackers.frameworks.shared import Asked, RunHandle, guarded
from trackers.media import Image, Table


def register() -> None:
    """Make ``log_with="trackers"`` known to Accelerate. Importing this module has done it."""
    if hasattr(tracking, "register_tracker_class"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the name is known already
            tracking.register_tracker_class(_ByName)


class TrackersTracker(GeneralTracker):  # type: ignore[misc]
    """Logs what goes through ``Accelerator.log`` to a run, on the main process.

    ``end_training`` ends the run. A run that the script began by ``trackers.init`` is used, and left open.

    Args:
        trackers, project, name, config, **init: as for ``trackers.init``.
        run: the run to log to; default the current one, if any.
        acts_as: the tracker's name for scripts that ask for it, as those of Diffusers do: with "wandb" they log their
            images to this tracker as they would to W&B's.

    Attributes:
        name: "trackers", or ``acts_as``. tracker: the ``trackers.Run``; None on other processes.

    Raises:
        UsageError, NotFound: as ``trackers.init``, from ``init_trackers`` (Accelerate 1.4: with the first value).
    """

    name = "trackers"
    requires_logging_directory = False
    main_process_only = True

    def __init__(
        self,
        trackers: str | Sequence[str] | None = None,
        *,
        run: Any = None,
        project: str | None = None,
        name: str | None = None,
        config: Any = None,
        acts_as: str = "trackers",
        **init: Any,
    ) -> None:
        super().__init__()
        self._handle = RunHandle(trackers, run=run, project=project, name=name, config=config, **init)
        self.name = acts_as

    def asked(self) -> Asked:
        """What training is asked to do (``stop``, ``save``): to be called at each step, on every process.

            if tracker.asked().stop:
                break

        All processes are told at the same call.
        """
        return self._handle.asked()

    @property
    def tracker(self) -> Any:
        """The ``trackers.Run``; None before it is taken or begun, and on other processes than the main one."""
        return self._handle.known

    @on_main_process  # type: ignore[untyped-decorator]
    @guarded
    def start(self) -> None:
        """Begin the run (``init_trackers`` calls this)."""
        _ = self._handle.run

    @on_main_process  # type: ignore[untyped-decorator]
    @guarded
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Add to the run's configuration; nested values and lists are kept as they are."""
        self._handle.run.config.update(values)

    @on_main_process  # type: ignore[untyped-decorator]
    @guarded
    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Record values at a step. kwargs: as for ``Run.log``; what other trackers take besides has no effect."""
        known = {name: kwargs[name] for name in ("commit",) if name in kwargs}
        self._handle.run.log(values, step=step, **known)

    @on_main_process  # type: ignore[untyped-decorator]
    @guarded
    def log_images(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Record lists of images, arrays of several (the first axis), or single ones, by name.

        Args:
            kwargs: for each image: caption, …
        """
        known = {name: value for name, value in kwargs.items() if name in ("caption", "mode", "file_type")}
        images = {name: [Image(image, **known) for image in _several(value)] for name, value in values.items()}
        self._handle.run.log(images, step=step)

    @on_main_process  # type: ignore[untyped-decorator]
    @guarded
    def log_table(
        self,
        table_name: str,
        columns: list[str] | None = None,
        data: list[list[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Record a table, given by columns and rows or as a data frame."""
        self._handle.run.log({table_name: Table(columns=columns, data=data, dataframe=dataframe)}, step=step)

    @on_main_process  # type: ignore[untyped-decorator]
    @guarded
    def finish(self) -> None:
        """End the run, if it was begun here (``end_training`` calls this)."""
        self._handle.finish()


class _ByName(TrackersTracker):
    """As Accelerate makes a tracker that is named in ``log_with``."""

    def __init__(self, project_name: str, trackers: str | Sequence[str] | None = None, **init: Any) -> None:
        super().__init__(trackers, **{"project": project_name, **init})


def _several(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return list(value)
    return list(value) if len(getattr(value, "shape", ())) == 4 else [value]


register()
