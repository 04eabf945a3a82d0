"""Hooks that read a layer's tensors while it runs. They are there while the layer is called, in one iteration.

What is a part of training counts: a forward pass in training mode or with gradients, once, though activation
checkpointing runs it again during backward. Hooks hold neither modules nor tensors beyond their iteration.
Tensors are rounded here as FP8 formats would round them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from trackers.errors import UsageError
from trackers.inspection.statistics import FP8_COLUMNS, Cast, MomentSums, Statistic, moments
from trackers.support.interruption import pass_on
from trackers.support.module_calls import Observer, unserializable

TYPES = {"E4M3": "float8_e4m3fn", "E5M2": "float8_e5m2"}
LARGEST = {"E4M3": 448.0, "E5M2": 57344.0}
FLOAT_MAX = 3.4028234663852886e38
BLOCK, TILE = 32, 128
LOWEST, HIGHEST = -127, 127
"""Exponents that E8M0 holds."""
PIECE = 1 << 22
"""Elements that are rounded at a time: what bounds the memory that it takes."""


def check(torch: Any, format: str) -> None:
    """Raise UsageError where this torch has no such type."""
    if not hasattr(torch, TYPES[format]):
        raise UsageError(
            f"LogFp8TensorStats: torch {torch.__version__} has no {TYPES[format]}: install torch 2.1 or later, or "
            "take the feature out"
        )


def rounded(torch: Any, tensor: Any, cast: Cast, amax: Any) -> MomentSums:
    """What a cast does to a tensor: underflows (nonzero elements that become zero), the smallest and the largest
    inverse of a scale, and the sum of squared errors.

    Args:
        tensor: a floating-point one with elements. amax: its largest absolute value, a scalar tensor.
    """
    if cast.recipe == "fp8_current_scaling":
        columns = _per_tensor(torch, tensor, cast.format, amax)
    else:
        matrix = tensor.reshape(-1, tensor.shape[-1] if tensor.dim() else 1)
        matrix = matrix.t() if cast.columnwise else matrix
        columns = (_blocks if cast.recipe == "mxfp8" else _tiles)(torch, matrix, cast.format)
    names = tuple(cast.column(name) for name in FP8_COLUMNS)
    return MomentSums(
        tensor.numel(), names, torch.stack([column.to(torch.float64) for column in columns])
    )  # counts, too


def _round(torch: Any, scaled: Any, format: str) -> Any:
    """To the nearest number that the format has, as float32; what is too large becomes its largest."""
    largest = LARGEST[format]
    return scaled.clamp(-largest, largest).to(getattr(torch, TYPES[format])).to(torch.float32)


def _compare(torch: Any, exact: Any, scaled: Any, inverse: Any, format: str) -> tuple[Any, Any]:
    whole = _round(torch, scaled, format)
    lost = torch.count_nonzero(exact) - torch.count_nonzero(whole)
    return lost, (whole.mul_(inverse).sub_(exact)).square_().sum()


def _scale(torch: Any, amax: Any, format: str, *, power_of_two: bool) -> Any:
    amax = amax.to(torch.float32)
    scale = torch.div(torch.full_like(amax, LARGEST[format]), amax)  # a number / a tensor isn't rounded correctly
    scale = scale.clamp(max=FLOAT_MAX)
    if power_of_two:
        scale = torch.ldexp(torch.ones_like(scale), torch.frexp(scale).exponent - 1)
    return torch.where(torch.isfinite(amax) & (amax > 0), scale, torch.ones_like(scale))


def _per_tensor(torch: Any, tensor: Any, format: str, amax: Any) -> tuple[Any, ...]:
    scale = _scale(torch, amax, format, power_of_two=False)
    inverse = torch.reciprocal(scale)
    sums = []
    for piece in tensor.reshape(-1).split(PIECE):
        exact = piece.to(torch.float32)
        sums.append(_compare(torch, exact, exact * scale, inverse, format))
    return _total(torch, [lost for lost, _ in sums]), inverse, inverse, _total(torch, [error for _, error in sums])


def _blocks(torch: Any, matrix: Any, format: str) -> tuple[Any, ...]:
    """mxfp8 of a matrix, a few rows at a time; rows are filled up with zeros, which change nothing."""
    lost, low, high, errors = [], [], [], []
    width = matrix.shape[1] + -matrix.shape[1] % BLOCK
    for rows in matrix.split(max(1, PIECE // width)):
        blocks = torch.nn.functional.pad(rows.to(torch.float32), (0, width - rows.shape[1])).reshape(-1, BLOCK)
        amax = blocks.abs().amax(dim=1, keepdim=True)
        fraction, exponent = torch.frexp(amax * (1.0 / LARGEST[format]))
        exponent = (exponent - (fraction == 0.5).to(exponent.dtype)).clamp(LOWEST, HIGHEST)
        exponent = torch.where(amax == 0, torch.full_like(exponent, LOWEST), exponent)
        ones = torch.ones_like(amax)
        inverse = torch.ldexp(ones, exponent)
        under, error = _compare(torch, blocks, blocks * torch.ldexp(ones, -exponent), inverse, format)
        lost.append(under)
        errors.append(error)
        # A block of zeros has no scale to speak of: it is no smallest one.
        low.append(torch.where(exponent == LOWEST, torch.full_like(inverse, torch.inf), inverse).amin())
        high.append(inverse.amax())
    smallest = torch.stack(low).amin()
    smallest = torch.where(torch.isinf(smallest), torch.zeros_like(smallest), smallest)
    return _total(torch, lost), smallest, torch.stack(high).amax(), _total(torch, errors)


def _tiles(torch: Any, matrix: Any, format: str) -> tuple[Any, ...]:
    """fp8_block_scaling of a matrix, some rows of tiles at a time."""
    lost, low, high, errors = [], [], [], []
    width = matrix.shape[1] + -matrix.shape[1] % TILE
    for rows in matrix.split(max(TILE, PIECE // width // TILE * TILE)):
        missing = (0, width - rows.shape[1], 0, -rows.shape[0] % TILE)
        tiles = torch.nn.functional.pad(rows.to(torch.float32), missing).reshape(-1, TILE, width // TILE, TILE)
        scale = _scale(torch, tiles.abs().amax(dim=(1, 3), keepdim=True), format, power_of_two=True)
        inverse = torch.reciprocal(scale)
        under, error = _compare(torch, tiles, tiles * scale, inverse, format)
        lost.append(under)
        errors.append(error)
        low.append(inverse.amin())
        high.append(inverse.amax())
    return _total(torch, lost), torch.stack(low).amin(), torch.stack(high).amax(), _total(torch, errors)


def _total(torch: Any, values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else torch.stack(values).sum()


class TensorRequest(NamedTuple):
    """Statistics requested for one tensor of a layer.

    Attributes:
        statistics: with their names. groups, casts: what these need.
        library: instead of all these: called with the tensor as it is.
    """

    layer: str
    tensor: str
    statistics: tuple[tuple[str, Statistic], ...] = ()
    groups: tuple[str, ...] = ()
    casts: tuple[Cast, ...] = ()
    library: Callable[[Any], None] | None = None

    @classmethod
    def of(cls, layer: str, tensor: str, statistics: Mapping[str, Statistic]) -> TensorRequest:
        """With what the statistics need."""
        groups = dict.fromkeys(group for statistic in statistics.values() for group in statistic.groups)
        casts = dict.fromkeys(statistic.cast for statistic in statistics.values() if statistic.cast is not None)
        return cls(layer, tensor, tuple(statistics.items()), tuple(groups), tuple(casts))


class Hooks:
    """The hooks of one iteration.

    Args:
        torch: the module. requests: by module. say: called with what went wrong.
    """

    def __init__(self, torch: Any, requests: Mapping[Any, Sequence[TensorRequest]], say: Callable[[str], None]) -> None:
        self._torch = torch
        self._collected = _Collected(torch, say)
        self._handles: list[Any] = []
        for module, each in requests.items():
            by_tensor = {
                request.tensor: [other for other in each if other.tensor == request.tensor] for request in each
            }
            self._handles.append(Observer(module, _Layer(torch, self._collected, by_tensor).around))

    def remove(self) -> list[tuple[TensorRequest, MomentSums]]:
        """Take the hooks away; what they found, in the order in which it was found."""
        for handle in (*self._handles, *self._collected.handles):
            handle.remove()
        self._handles.clear()
        return self._collected.close()


class _Collected:
    """Where hooks put what they find; after ``close`` what comes late, as a gradient may, goes nowhere."""

    def __init__(self, torch: Any, say: Callable[[str], None]) -> None:
        self.handles: list[Any] = []
        self.once: set[tuple[str, int]] = set()
        self.open = True
        self._torch = torch
        self._say = say
        self._parts: list[tuple[TensorRequest, MomentSums]] = []

    def collect(self, requests: Iterable[TensorRequest], tensor: Any) -> None:
        """Take the numbers of a tensor. Never raises."""
        if not self.open:
            return
        name = ""
        try:
            with self._torch.no_grad(), _exactly(self._torch, tensor):
                for request in requests:
                    name = f"{request.layer}_{request.tensor}"
                    self._measure(request, tensor)
        except (Exception, SystemExit) as error:  # nvdlfw-inspect ends the process where it finds a fault
            pass_on(error)
            self.report_failure(name, error)

    def report_failure(self, name: str, error: BaseException) -> None:
        """Say that a layer or a tensor of it couldn't be looked at."""
        self._say(f"tensor inspection: {name} can't be looked at ({type(error).__name__}: {error})")

    def _measure(self, request: TensorRequest, tensor: Any) -> None:
        torch = self._torch
        plain = _plain(tensor)
        if plain is None or not plain.numel():
            return
        if request.library is not None:
            request.library(plain)
            return
        parts = moments(torch, plain, request.groups) if request.groups else []
        if request.casts:
            ends = parts if "range" in request.groups else moments(torch, plain, ("range",))
            amax = torch.stack([part.row[:2].abs().amax() for part in ends]).amax()  # low and high come first
            parts += [rounded(torch, plain, cast, amax) for cast in request.casts]
        self._parts += [(request, part) for part in parts]

    def close(self) -> list[tuple[TensorRequest, MomentSums]]:
        """What was found; nothing is taken from now on."""
        self.open = False
        self.handles.clear()
        parts, self._parts = self._parts, []
        return parts


class _Layer:
    """What happens around one module's forward."""

    def __init__(self, torch: Any, collected: _Collected, requests: Mapping[str, Sequence[TensorRequest]]) -> None:
        self._torch = torch
        self._collected = collected
        self._requests = requests
        self._within = False

    def around(self, module: Any, go_on: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A call of the module, with hooks: they come after those by which FSDP puts its parameters together."""
        if self._within or not self._collected.open:
            return go_on(*args, **kwargs)
        handles = []
        if set(self._requests) & {"activation", "weight", "wgrad", "dgrad"}:
            handles.append(module.register_forward_pre_hook(self.before, with_kwargs=True))
        if set(self._requests) & {"output", "gradient"}:
            handles.append(module.register_forward_hook(self.after, with_kwargs=True))
        self._within = True
        try:
            return go_on(*args, **kwargs)
        finally:
            self._within = False
            for handle in handles:
                handle.remove()

    def before(self, module: Any, args: Any, kwargs: Any) -> Any:
        """Called before the module's forward; answers with its arguments, if they are others. Never raises."""
        try:
            return self._before(module, args, kwargs)
        except Exception as error:
            pass_on(error)
            self._collected.report_failure(next(iter(self._requests.values()))[0].layer, error)
            return None

    def after(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        """Called after it. Never raises."""
        try:
            self._after(module, output)
        except Exception as error:
            pass_on(error)
            self._collected.report_failure(next(iter(self._requests.values()))[0].layer, error)

    def _before(self, module: Any, args: Any, kwargs: Any) -> Any:
        """Look at the weight while it is whole (FSDP shards it again after forward), and at the input before the module
        may overwrite it; give the module a view of it: the gradient of the view is this layer's part of the input's.
        """
        torch, requests, collected = self._torch, self._requests, self._collected
        if not collected.open or _elsewhere(torch):
            return None
        position, tensor = _first(torch, args, kwargs)
        weight = getattr(module, "weight", None)
        weight = weight if isinstance(weight, torch.Tensor) else None
        if _counts(torch, module):
            if "activation" in requests:
                collected.collect(requests["activation"], tensor)
            if "weight" in requests and self._is_first("weight", self):
                collected.collect(requests["weight"], weight)
        if not torch.is_grad_enabled():
            return None
        if "wgrad" in requests and weight is not None and weight.requires_grad and self._is_first("wgrad", weight):
            collected.handles.append(weight.register_hook(self._hook("wgrad")))
        if "dgrad" not in requests or tensor is None or not tensor.requires_grad:
            return None
        view = tensor.view_as(tensor)
        view.register_hook(self._hook("dgrad"))
        if isinstance(position, int):
            return (*args[:position], view, *args[position + 1 :]), kwargs
        return args, {**kwargs, position: view}

    def _after(self, module: Any, output: Any) -> None:
        """Look at what came out, and at what will come back."""
        torch, requests, collected = self._torch, self._requests, self._collected
        if not collected.open or _elsewhere(torch):
            return
        out = _first(torch, output if isinstance(output, (tuple, list)) else (output,), {})[1]
        if "gradient" in requests and out is not None and out.requires_grad and torch.is_grad_enabled():
            out.register_hook(self._hook("gradient"))
        if "output" in requests and _counts(torch, module):
            collected.collect(requests["output"], out)

    def _is_first(self, tensor: str, of: Any) -> bool:
        key = f"{self._requests[tensor][0].layer}_{tensor}", id(of)
        if key in self._collected.once:
            return False
        self._collected.once.add(key)
        return True

    def _hook(self, tensor: str) -> Callable[[Any], None]:
        collected, requests = self._collected, self._requests[tensor]
        return unserializable(lambda gradient: collected.collect(requests, gradient))


def _first(torch: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """The first tensor of floating-point numbers, and its position or name."""
    for position, value in (*enumerate(args), *kwargs.items()):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return position, value
    return None, None


def _plain(tensor: Any) -> Any:
    """What this rank has of a tensor; None for one that isn't there."""
    if tensor is None:
        return None
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_sparse:
        raise TypeError("its gradient is sparse")
    return tensor.detach()


def _counts(torch: Any, module: Any) -> bool:
    """Whether a forward pass is one of training. While a backward pass runs it is a checkpoint's second one."""
    return bool((module.training or torch.is_grad_enabled()) and torch._C._current_graph_task_id() == -1)


def _elsewhere(torch: Any) -> bool:
    """Whether this is no run of the model: it is compiled, exported or traced, or a CUDA graph is recorded."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _exactly(torch: Any, tensor: Any) -> Any:
    """No autocast: it might round what is computed."""
    kind = getattr(getattr(tensor, "device", None), "type", None)
    return torch.autocast(kind, enabled=False) if kind in ("cuda", "cpu") else nullcontext()
