"""A run's inspector, created on first use, so that a run without inspection has no cost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trackers.inspection.config import TensorInspectConfig
    from trackers.inspection.inspector import Inspector, NoInspector
    from trackers.inspection.watching import Watcher
    from trackers.training.recorder import Recorder


class Inspecting:
    """Tensor inspection of a run. Mixed into :class:`trackers.training.run.Run`."""

    _recorder: Recorder
    _inspection: Inspector | NoInspector | None = None
    _watcher: Watcher | None = None
    _loop: Any = None

    if TYPE_CHECKING:

        def log(self, data: Any, step: int | None = None) -> None: ...

        def close_with(self, instrument: Any) -> None: ...

        @property
        def logs_together(self) -> bool: ...

    @property
    def inspection(self) -> Inspector | NoInspector:
        """What ``inspect`` made; before it, one that looks at nothing."""
        from trackers.inspection.inspector import NoInspector

        return self._inspection or NoInspector()

    def inspect(
        self,
        config: TensorInspectConfig | str | os.PathLike[str] | None = None,
        model: Any = None,
        *,
        start_step: int | None = None,
    ) -> Inspector | NoInspector:
        """Look at a model's tensors: statistics of activations, gradients and weights, by nvdlfw-inspect's format.

        With ``run.loop`` each of its steps ends an iteration; without, call ``step()`` of what this answers with.
        Where TransformerEngine is used, call this before the model is built, and its ``attach(model)`` after: the
        loop does so if it is given the model.

        Args:
            config: what to look at, or the path of a YAML file that says so; default TRACKER_TENSOR_INSPECT.
            model: a module or its chunks.
            start_step: steps done before this start; default the run's last step.

        Raises:
            UsageError: a configuration that makes no sense or can't be carried out. MissingPackage: torch or PyYAML.
        """
        from trackers.inspection.config import TensorInspectConfig
        from trackers.inspection.inspector import Inspector, NoInspector
        from trackers.support import launcher

        option = self._recorder.info.option
        path = str(option("TRACKER_TENSOR_INSPECT", "") or "") if config is None else config
        if not isinstance(path, TensorInspectConfig):
            directory = str(option("TRACKER_TENSOR_INSPECT_DIR", "") or "") or None
            config = TensorInspectConfig.from_file(path, log_dir=directory) if path else TensorInspectConfig()
        assert isinstance(config, TensorInspectConfig)
        if self._inspection is not None:
            self._inspection.close()
        self._inspection = NoInspector()
        if config.enabled:
            done = max(self._recorder.step, 0) if start_step is None else start_step
            self._inspection = Inspector(
                self.log,
                self._recorder.problem,
                config,
                done=done,
                rank=launcher.rank(),
                ranks=launcher.world_size() if self.logs_together else 1,
                directory=self._recorder.info.directory,
            )
            self.close_with(self._inspection)
            if model is not None:
                self._inspection.attach(model)
        if self._loop is not None:
            self._loop.inspection = self._inspection
        return self._inspection

    def watch(
        self,
        models: Any,
        criterion: Any = None,
        log: str | None = "gradients",
        log_freq: int = 1000,
        idx: int | None = None,
        log_graph: bool = False,
    ) -> None:
        """Record histograms of a model's gradients and parameters, with each ``log_freq``-th next call of ``log``.

        The names are ``gradients/NAME`` and ``parameters/NAME``; of a second model ``gradients/graph_1NAME``, as W&B
        has them. What can't be watched is named once.

        Args:
            models: a module of PyTorch, or several.
            criterion: taken for W&B's sake.
            log: "gradients", "parameters", "all" or None.
            log_freq: counted are backward passes for gradients, forward passes for parameters.
            idx: number of the first of these models; default how many are watched.
            log_graph: record the layers as the text ``graph_0``, when all of them have run.
        """
        if not self._recorder.is_main:
            return
        if self._watcher is None:
            self._watcher = self._make_watcher()
        self._recorder.guard("watch", self._watcher.watch, models, criterion, log, log_freq, idx, log_graph)

    def unwatch(self, models: Any = None) -> None:
        """End watching these models; None: all of them."""
        if self._watcher is not None:
            self._recorder.guard("unwatch", self._watcher.unwatch, models)

    def _make_watcher(self) -> Watcher:
        from trackers.inspection.watching import Watcher

        recorder = self._recorder
        made = Watcher(recorder.add_beside, lambda name, text: recorder.add_beside({name: text}), recorder.guard)
        self.close_with(made)
        return made

    def inspect_if_asked(self, model: Any, start_step: int) -> None:
        """Begin what TRACKER_TENSOR_INSPECT asks for, or attach to a model what ``inspect`` has begun."""
        if model is None:
            return
        if self._inspection is None and self._recorder.info.option("TRACKER_TENSOR_INSPECT", ""):
            self.inspect(model=model, start_step=start_step)
        elif self._inspection is not None and not self._inspection.attached:
            self._inspection.attach(model)


class NotInspecting:
    """The same where nothing is recorded."""

    def watch(
        self,
        models: Any = None,
        criterion: Any = None,
        log: str | None = "gradients",
        log_freq: int = 1000,
        idx: int | None = None,
        log_graph: bool = False,
    ) -> None:
        """Nothing is watched."""

    def unwatch(self, models: Any = None) -> None:
        """Nothing is watched."""

    @property
    def inspection(self) -> NoInspector:
        """Nothing is looked at."""
        from trackers.inspection.inspector import NoInspector

        return NoInspector()

    def inspect(self, config: Any = None, model: Any = None, *, start_step: int | None = None) -> NoInspector:
        """An inspector that looks at nothing."""
        return self.inspection

    def inspect_if_asked(self, model: Any, start_step: int) -> None:
        """Nothing."""
