"""Tensor inspection of a run: which layers are looked at, when, and where their numbers go.

An iteration's values are logged at the number of steps finished before it: its weights are theirs. Nothing waits for
a GPU, and what goes wrong once training has begun is said once and stops nothing.

Running what torch.compile has made as it was written, for a while: hooks see nothing of the compiled code.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from trackers.errors import UsageError
from trackers.inspection import fp8, nvinspect, results, selection
from trackers.inspection.config import InspectionSchedule, TensorInspectConfig
from trackers.inspection.features import BASE, MEASURED, NAMESPACE, Request, Section, sections
from trackers.inspection.hooks import Hooks, Wanted
from trackers.inspection.statistics_log import TextLog
from trackers.support.optional import torch_for
from trackers.values.coerce import number
from trackers.values.device_copy import transfer

FOLDER = "tensor_inspect"
SHOWN = 5
"""Layers that a message names."""


class Planned(NamedTuple):
    """A request of one layer; the module isn't kept alive."""

    module: Callable[[], Any]
    layer: str
    request: Request


class Inspector:
    """Looks at a model's tensors. Made by ``run.inspect``.

    Args:
        log: called with values and a step. say: called with a line that says what went wrong.
        config: what to look at. done: steps done before this start: the first iteration has this number, unless the
            configuration gives a larger one.
        rank, ranks: of all processes. directory: the run's, where there is one.

    Attributes:
        iteration: the number of the one that runs. attached: whether it has been given a model.

    Raises:
        UsageError: a configuration that makes no sense, a feature that nothing here can carry out, a directory that
            can't be written. MissingPackage: torch or PyYAML isn't installed.
    """

    def __init__(
        self,
        log: Callable[[dict[str, Any], int], Any],
        say: Callable[[str], None],
        config: TensorInspectConfig,
        *,
        done: int = 0,
        rank: int = 0,
        ranks: int = 1,
        directory: str = "",
    ) -> None:
        self.iteration = first = max(done, config.init_training_step)
        self._log, self._say, self._ranks = log, say, ranks
        self._torch = torch_for("tensor inspection")
        features = config.read_features()
        with_library, with_engine = nvinspect.installed(), nvinspect.installed(nvinspect.ENGINE)
        directories = config.directories()
        if directories and not with_library:
            raise UsageError("tensor inspection: feature_dirs need nvdlfw-inspect: pip install nvdlfw-inspect")
        self._sections = sections(features, others=bool(directories), engine=with_library and with_engine)
        _can_be_carried_out(self._sections, directories, with_library and with_engine)
        for format in {cast.format for cast in _casts(self._sections)}:
            fp8.check(self._torch, format)
        place = config.log_dir or (Path(directory) / FOLDER if directory else None)
        self._text = TextLog(place, rank, say) if place is not None else None
        self._taken: dict[int, dict[str, Any]] = {}
        self._plan: dict[InspectionSchedule, list[Planned]] = {}
        self._hooks: Hooks | None = None
        self._eager = Eager()
        self.attached = False
        self._library: nvinspect.Library | None = None
        handed = nvinspect.handed_over(features, MEASURED[NAMESPACE], engine=with_engine) if with_library else {}
        if handed:
            messages = str(place or self._scratch())
            try:
                self._library = nvinspect.Library(handed, directories, messages, first, self._take)
            except UsageError:
                self.close()
                raise
        self._by_engine = with_engine and self._library is not None

    def _scratch(self) -> str:
        """A directory of this process's own for what the library writes, which goes with the process."""
        self._made = tempfile.TemporaryDirectory(prefix="trackers-nvdlfw-inspect-", ignore_cleanup_errors=True)
        return self._made.name

    def attach(self, model: Any) -> None:
        """Look at this model's layers from the next forward pass on.

        Args:
            model: a module, or several chunks of one.

        Raises:
            UsageError: two sections mean the same layer.
        """
        self._disarm()
        self._plan.clear()
        chunks = selection.unwrapped(model)
        if self._library is not None:
            self._library.name_layers(chunks)
        layers = selection.names(chunks)
        taken: dict[str, str] = {}
        for section in self._sections:
            if not section.requests:
                continue
            chosen = [name for name, module in layers.items() if self._means(section, name, module)]
            if not chosen and not self._by_engine:
                self._say(_no_layer(section, [name for name, module in layers.items() if self._linear(module)]))
            for name in chosen:
                if name in taken:
                    raise UsageError(
                        f"tensor inspection: {taken[name]} and {section.name} both mean the layer {name}: each layer "
                        "may be in one section"
                    )
                taken[name] = section.name
                for request in section.requests:
                    planned = Planned(weakref.ref(layers[name]), name, request)
                    self._plan.setdefault(request.schedule, []).append(planned)
        self.attached = True
        self._arm()

    def step(self) -> None:
        """An iteration has ended: log what was seen, and get ready for the next one. Never raises."""
        iteration = self.iteration
        self.iteration += 1
        self._guard(self._publish, iteration)
        self._guard(self._arm)

    def close(self) -> None:
        """Take everything away. What an unfinished iteration has seen is left out."""
        self._disarm()
        self._plan.clear()
        try:
            if self._library is not None:
                self._library.close()
        finally:
            self._library = None
            if self._text is not None:
                self._text.close()

    def _guard(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:
            self._say(f"tensor inspection: {type(error).__name__}: {error}")

    def _publish(self, iteration: int) -> None:
        due = self._hooks is not None
        found = self._disarm()
        if self._library is not None:
            self._guard(self._library.step)
        if found:
            self._record(*results.values(self._torch, found, self._ranks), iteration)
        elif due and not self._taken:
            self._say(
                "tensor inspection: none of the chosen layers has run in training in an iteration that is looked at: "
                "is step() called after each, and is the model the one that trains?"
            )
        taken, self._taken = self._taken, {}
        for when, values in taken.items():
            self._record(values, values, when)
        if self._text is not None:
            self._text.drain()

    def _record(self, own: Mapping[str, Any], shared: Mapping[str, Any], iteration: int) -> None:
        if self._text is not None:
            self._text.log(own, iteration)
        self._log(dict(shared), iteration)

    def _take(self, name: str, value: Any, iteration: int) -> None:
        """A number of nvdlfw-inspect's; it may be on its way from a GPU."""
        moving = transfer(value)
        self._taken.setdefault(int(iteration), {})[name] = number(value) if moving is None else moving

    def _linear(self, module: Any) -> bool:
        return isinstance(module, self._torch.nn.Linear)

    def _means(self, section: Section, name: str, module: Any) -> bool:
        if self._by_engine and type(module).__module__.startswith(nvinspect.ENGINE):
            return False  # TransformerEngine looks at its own
        return section.layers.chosen(name, type(module).__name__, self._linear(module))

    def _arm(self) -> None:
        asked: dict[Any, list[Planned]] = {}
        for schedule, planned in self._plan.items():
            for one in planned if schedule.due(self.iteration) else ():
                module = one.module()
                if module is not None:
                    asked.setdefault(module, []).append(one)
        if asked:
            wanted = {module: list(self._wanted(each)) for module, each in asked.items()}
            self._eager.hold(self._torch)
            self._hooks = Hooks(self._torch, wanted, self._say)

    def _wanted(self, asked: Sequence[Planned]) -> Iterator[Wanted]:
        """One look at each tensor of a layer for all that is asked of it; nvdlfw-inspect's own feature has its own."""
        layer = asked[0].layer
        for tensor in dict.fromkeys(one.request.tensor for one in asked):
            requests = [one.request for one in asked if one.request.tensor == tensor]
            if self._library is not None and any(request.namespace == BASE for request in requests):
                yield Wanted(layer, tensor, library=self._library.statistics(layer, tensor))
                requests = [request for request in requests if request.namespace != BASE]
            if requests:
                yield Wanted.of(layer, tensor, {name: one for request in requests for name, one in request.stats})

    def _disarm(self) -> list[Any]:
        hooks, self._hooks = self._hooks, None
        self._eager.release()
        return hooks.remove() if hooks is not None else []


class NoInspector:
    """Looks at nothing: where nothing is asked for, or nothing is recorded."""

    iteration = 0
    attached = True

    def _scratch(self) -> str:
        """A directory of this process's own for what the library writes, which goes with the process."""
        self._made = tempfile.TemporaryDirectory(prefix="trackers-nvdlfw-inspect-", ignore_cleanup_errors=True)
        return self._made.name

    def attach(self, model: Any) -> None:
        """Nothing."""

    def step(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def _casts(found: Sequence[Section]) -> Iterator[Any]:
    for section in found:
        for request in section.requests:
            yield from (one.cast for _, one in request.stats if one.cast is not None)


def _can_be_carried_out(found: Sequence[Section], directories: Sequence[str], possible: bool) -> None:
    for section in found:
        if section.carried_out and not possible and not directories:
            raise UsageError(
                f"tensor inspection: {section.name}: {', '.join(section.carried_out)} is carried out by "
                "TransformerEngine and nvdlfw-inspect, of which one isn't installed: pip install nvdlfw-inspect "
                "'transformer_engine[pytorch]', or take it out"
            )


def _no_layer(section: Section, linear: Sequence[str]) -> str:
    names = ", ".join(linear[:SHOWN]) + (f" and {len(linear) - SHOWN} more" if len(linear) > SHOWN else "")
    return (
        f"tensor inspection: {section.name} matches no layer by {section.layers.describe()}; "
        f"the model's linear layers are {names or 'none'}"
    )


class Eager:
    """One that may ask for it. torch has one stance for the process: it is left when nobody asks any more.

    torch 2.6 or later can; with an earlier one compiled layers aren't looked at.
    """

    _asking: ClassVar[set[int]] = set()
    _stance: ClassVar[Any] = None

    def hold(self, torch: Any) -> None:
        """From now on, until ``release``."""
        set_stance = getattr(torch.compiler, "set_stance", None)
        if set_stance is None or id(self) in Eager._asking:
            return
        if not Eager._asking:
            try:
                Eager._stance = set_stance("force_eager")
            except RuntimeError:  # called from within a compiled region
                return
        Eager._asking.add(id(self))

    def release(self) -> None:
        """Not any more."""
        if id(self) not in Eager._asking:
            return
        Eager._asking.discard(id(self))
        if not Eager._asking:
            stance, Eager._stance = Eager._stance, None
            stance.__exit__(None, None, None)
