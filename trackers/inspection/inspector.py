"""Tensor inspection of a run: which layers are looked at, when, and where their numbers go.

An iteration's values are logged at the number of steps finished before it: its weights are theirs. Nothing waits for
a GPU, and what goes wrong once training has begun is said once and stops nothing.

Running what torch.compile has made as it was written, for a while: hooks see nothing of the compiled code.
Results of hooks are combined here, and nvdlfw-inspect's own features passed on.
"""

from __future__ import annotations

import importlib.util
import logging
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from trackers.errors import UsageError
from trackers.inspection import features as selection
from trackers.inspection import hooks as fp8
from trackers.inspection.config import InspectionSchedule, TensorInspectConfig
from trackers.inspection.features import BASE, MEASURED, NAMESPACE, Section, StatisticsRequest, sections
from trackers.inspection.hooks import Hooks, TensorRequest
from trackers.inspection.statistics import MomentSums, TextLog, Whole, whole
from trackers.reductions import Max, Reduction
from trackers.support.interruption import pass_on, suppress
from trackers.support.optional import torch_for
from trackers.support.staying import Stays
from trackers.values.coerce import number
from trackers.values.device_copy import Vector, deferred_number, transfer

PACKAGE, ENGINE = "nvdlfw_inspect", "transformer_engine"
MESSAGES = "nvdlfw_inspect"
"""The name of the logger that nvdlfw-inspect adds its handlers to, and never takes them from."""


def installed(package: str = PACKAGE) -> bool:
    """Whether a package is there; it isn't imported."""
    with suppress(ImportError, ValueError):
        return importlib.util.find_spec(package) is not None
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
            pass_on(error)
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
    handed = {}
    for name, section in features.items():
        rest = dict(section)
        if not engine and isinstance(rest.get(ENGINE), Mapping):
            inner = {feature: values for feature, values in rest.pop(ENGINE).items() if feature not in measured}
            rest |= {ENGINE: inner} if inner else {}
        if section.get("enabled") and set(rest) - {"enabled", "layers"}:
            handed[name] = rest
    return handed


def engine_features() -> list[str]:
    """Where TransformerEngine has its features, if it is installed."""
    if not installed(ENGINE):
        return []
    spec = importlib.util.find_spec(f"{ENGINE}.debug.features")
    return [] if spec is None or spec.origin is None else [str(Path(spec.origin).parent)]


def _text(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text.removeprefix("[NVDLFW INSPECT ERROR] ")


class Values(NamedTuple):
    """By name. own: this rank's numbers. shared: what is to be logged: the same, or parts of those of all ranks."""

    own: dict[str, Any]
    shared: dict[str, Any]


def combined(torch: Any, sums: Sequence[tuple[TensorRequest, MomentSums]], ranks: int) -> Values:
    """The statistics of everything measured in an iteration.

    Several forward passes are taken together. Of several ranks, each has its part of an activation or a gradient; the
    weights are the same on all that have them.
    """
    tensors: dict[tuple[str, str], _Tensor] = {}
    for (request, part), (vector, offset) in zip(sums, _moved(torch, [part for _, part in sums]), strict=True):
        tensors.setdefault((request.layer, request.tensor), _Tensor(request)).add(part, vector, offset)
    own: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for tensor in tensors.values():
        for name, statistic in tensor.request.statistics:
            full = f"{tensor.request.layer}_{tensor.request.tensor}_{name}"
            own[full] = shared[full] = tensor.number(statistic.value)
            if ranks > 1:
                alike = tensor.request.tensor == "weight"
                kind: type[Reduction] = Max if alike else statistic.kind
                shared[full] = kind(*([own[full]] if alike else map(tensor.number, statistic.parts)))
    return Values(own, shared)


def _moved(torch: Any, parts: Sequence[MomentSums]) -> list[tuple[Vector, int]]:
    """Where each part's numbers will be: one copy to the host for each device."""
    offsets: list[Any] = [None] * len(parts)
    for device in dict.fromkeys(part.row.device for part in parts):
        here = [number for number, part in enumerate(parts) if part.row.device == device]
        vector = Vector(torch.cat([parts[number].row for number in here]))
        offset = 0
        for number_ in here:
            offsets[number_] = vector, offset
            offset += len(parts[number_].names)
    return offsets


class _Tensor:
    """A tensor's numbers, when they have arrived."""

    def __init__(self, request: TensorRequest) -> None:
        self.request = request
        self._parts: list[tuple[MomentSums, Vector, int]] = []
        self._whole: Whole | None = None

    def add(self, part: MomentSums, vector: Vector, offset: int) -> None:
        """One more part of it, whose numbers begin at this offset."""
        self._parts.append((part, vector, offset))

    def number(self, of: Any) -> Any:
        """A number made of them, now or later."""
        return deferred_number([vector for _, vector, _ in self._parts], lambda: of(self._together()))

    def _together(self) -> Whole:
        if self._whole is None:
            alike: dict[tuple[str, ...], list[Whole]] = {}
            for part, vector, offset in self._parts:
                row = {name: vector.value(offset + column) for column, name in enumerate(part.names)}
                alike.setdefault(part.names, []).append({"count": part.elements, **row})
            self._whole = {name: number for parts in alike.values() for name, number in whole(parts).items()}
        return self._whole


FOLDER = "tensor_inspect"
SHOWN = 5
"""Layers that a message names."""


class Planned(NamedTuple):
    """A request of one layer; the module isn't kept alive."""

    module: Callable[[], Any]
    layer: str
    request: StatisticsRequest


class Inspector(Stays):
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
        with_library, with_engine = installed(), installed(ENGINE)
        directories = config.directories()
        if directories and not with_library:
            raise UsageError("tensor inspection: feature_dirs need nvdlfw-inspect: pip install nvdlfw-inspect")
        self._sections = sections(features, others=bool(directories), engine=with_library and with_engine)
        _can_be_carried_out(self._sections, directories, with_library and with_engine)
        for format in {cast.format for cast in _casts(self._sections)}:
            fp8.check(self._torch, format)
        folder = config.log_dir or (Path(directory) / FOLDER if directory else None)
        self._text = TextLog(folder, rank, say) if folder is not None else None
        self._taken: dict[int, dict[str, Any]] = {}
        self._plan: dict[InspectionSchedule, list[Planned]] = {}
        self._hooks: Hooks | None = None
        self._eager = Eager()
        self.attached = False
        self._library: Library | None = None
        handed = handed_over(features, MEASURED[NAMESPACE], engine=with_engine) if with_library else {}
        if handed:
            messages = str(folder or self._scratch())
            try:
                self._library = Library(handed, directories, messages, first, self._take)
            except UsageError:
                self.close()
                raise
        self._by_engine = with_engine and self._library is not None

    def _elsewhere(self) -> tuple[Any, ...]:
        return NoInspector, ()

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
        owners: dict[str, str] = {}
        for section in self._sections:
            if not section.requests:
                continue
            chosen = [name for name, module in layers.items() if self._means(section, name, module)]
            if not chosen and not self._by_engine:
                self._say(_no_layer(section, [name for name, module in layers.items() if self._linear(module)]))
            for name in chosen:
                if name in owners:
                    raise UsageError(
                        f"tensor inspection: {owners[name]} and {section.name} both mean the layer {name}: each layer "
                        "may be in one section"
                    )
                owners[name] = section.name
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
            pass_on(error)
            self._say(f"tensor inspection: {type(error).__name__}: {error}")

    def _publish(self, iteration: int) -> None:
        due = self._hooks is not None
        sums = self._disarm()
        if self._library is not None:
            self._guard(self._library.step)
        if sums:
            self._record(*combined(self._torch, sums, self._ranks), iteration)
        elif due and not self._taken:
            self._say(
                "tensor inspection: none of the chosen layers has run in training in an iteration that is looked at: "
                "is step() called after each, and is the model the one that trains?"
            )
        measured, self._taken = self._taken, {}
        for when, values in measured.items():
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
        if self._by_engine and type(module).__module__.startswith(ENGINE):
            return False  # TransformerEngine looks at its own
        return section.layers.chosen(name, type(module).__name__, self._linear(module))

    def _arm(self) -> None:
        asked: dict[Any, list[Planned]] = {}
        for schedule, planned in self._plan.items():
            for entry in planned if schedule.due(self.iteration) else ():
                module = entry.module()
                if module is not None:
                    asked.setdefault(module, []).append(entry)
        if asked:
            request = {module: list(self._tensor_requests(each)) for module, each in asked.items()}
            self._eager.hold(self._torch)
            self._hooks = Hooks(self._torch, request, self._say)

    def _tensor_requests(self, asked: Sequence[Planned]) -> Iterator[TensorRequest]:
        """One look at each tensor of a layer for all that is asked of it; nvdlfw-inspect's own feature has its own."""
        layer = asked[0].layer
        for tensor in dict.fromkeys(entry.request.tensor for entry in asked):
            requests = [entry.request for entry in asked if entry.request.tensor == tensor]
            if self._library is not None and any(request.namespace == BASE for request in requests):
                yield TensorRequest(layer, tensor, library=self._library.statistics(layer, tensor))
                requests = [request for request in requests if request.namespace != BASE]
            if requests:
                yield TensorRequest.of(
                    layer, tensor, {name: statistic for request in requests for name, statistic in request.stats}
                )

    def _disarm(self) -> list[Any]:
        hooks, self._hooks = self._hooks, None
        self._eager.release()
        return hooks.remove() if hooks is not None else []


class NoInspector:
    """Looks at nothing: where nothing is asked for, or nothing is recorded."""

    iteration = 0
    attached = True

    def attach(self, model: Any) -> None:
        """Nothing."""

    def step(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def _casts(chosen: Sequence[Section]) -> Iterator[Any]:
    for section in chosen:
        for request in section.requests:
            yield from (statistic.cast for _, statistic in request.stats if statistic.cast is not None)


def _can_be_carried_out(chosen: Sequence[Section], directories: Sequence[str], possible: bool) -> None:
    for section in chosen:
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
            except RuntimeError as error:  # called from within a compiled region
                pass_on(error)
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
