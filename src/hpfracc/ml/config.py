"""Settings and arguments of layers, read and refused in one place for PyTorch and JAX."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, final

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import library_of
from hpfracc._config import check_backend, config
from hpfracc.engine.backends.registry import BackendType
from hpfracc.errors import InvalidInputError, PinnedBackendError, ShapeError, warn

__all__ = [
    "INFINITE_AT_START", "GivenOrder", "LayerConfig", "LayerOptions", "LearnedOrder", "LossOptions", "OrderLike",
    "RuleOptions", "check_kernel", "mode_scope", "read_config", "read_convolution", "read_learnable", "read_linear",
    "read_orders", "refuse_foreign", "warn_of_infinite_start",
]  # fmt: skip

#: Derivatives that are infinite at the first sample unless that is 0.
INFINITE_AT_START = frozenset({"riemann_liouville", "hadamard", "hilfer", "katugampola", "marchaud", "tempered"})

#: Anything a layer accepts as its order.
OrderLike = Any


@final
@dataclass(frozen=True)
class LayerConfig:
    """The backend and the mode of a layer.

    Parameters
    ----------
    backend : str or BackendType, default "auto"
        Passed to the engine, which uses it or refuses it: tensors that carry a gradient stay in their own library.
    performance_mode : {"balanced", "deterministic", "memory"}
        ``"balanced"``: the engine chooses from its measurements. ``"deterministic"``: it makes the same choices in
        every run, as under ``hf.config(deterministic=True)``. ``"memory"``: the derivative is recomputed in the
        backward pass instead of keeping its transforms.

    Examples
    --------
    >>> from hpfracc.ml import LayerConfig
    >>> LayerConfig(backend="torch").performance_mode
    'balanced'
    """

    backend: Any = "auto"
    performance_mode: str = "balanced"

    def __post_init__(self) -> None:
        object.__setattr__(self, "backend", BackendType(check_backend(self.backend, auto=True)))
        _reading.choice("performance_mode", self.performance_mode, ("balanced", "deterministic", "memory"))

    @property
    def engine_backend(self) -> str | None:
        """The ``backend=`` of an engine call."""
        return None if self.backend is BackendType.AUTO else str(self.backend.value)

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """The settings of the engine during a call."""
        return mode_scope(self.performance_mode)


def read_config(config: Any) -> LayerConfig:
    """The settings that were given, or those by default."""
    if config is None:
        return LayerConfig()
    return _reading.instance("config", config, LayerConfig, "LayerConfig(backend='torch')")


def mode_scope(mode: str) -> contextlib.AbstractContextManager[Any]:
    """The settings of the engine during a call of a layer in that mode."""
    return config(deterministic=True) if mode == "deterministic" else contextlib.nullcontext()


def warn_of_infinite_start(definition: str) -> None:
    """Warn of a derivative that makes losses and gradients infinite."""
    if definition in INFINITE_AT_START:
        warn(
            f"the {definition} derivative is infinite at the first sample unless that is 0, and so are a loss and its "
            "gradient; to train, use definition='grunwald_letnikov', which is finite there and tends to the same "
            "derivative, or 'caputo', or subtract the first sample",
            UserWarning,
        )


class RuleOptions(TypedDict, total=False):
    """The options of ``FractionalDerivative`` that convolutions accept, which choose the axes themselves."""

    definition: str
    method: str
    step: float


class LayerOptions(RuleOptions, total=False):
    """The options of ``FractionalDerivative`` that ``FractionalLayer`` accepts besides its own ``axis``."""

    channel_axis: int


class LossOptions(LayerOptions, total=False):
    """The options of ``FractionalDerivative`` that ``FractionalLoss`` accepts."""

    axis: int


def refuse_foreign(library: str, module: str, name: str, value: Any) -> None:
    """Refuse an array of the other library, and name the module that takes it."""
    found = library_of(value)
    if found in ("torch", "jax") and found != library:
        what = "a tensor of PyTorch" if found == "torch" else "an array of JAX"
        own = "a tensor" if library == "torch" else "a JAX array"
        raise PinnedBackendError(f"{name} is {what}; use hpfracc.ml.{found}.{module}, or give {own}")


def read_orders(alpha: Any) -> float | tuple[float, ...]:
    """An order that is not learned: a number, or one for each channel."""
    if isinstance(alpha, bool | str) or alpha is None:
        raise InvalidInputError(f"alpha={alpha!r} is not a number; use one such as 0.5, or LearnableOrder(0.5)")
    values = _reading.numbers("alpha", alpha)
    if values.ndim > 1 or not values.size:
        raise ShapeError(f"alpha has shape {values.shape}; use one number such as 0.5, or one for each channel")
    return float(values) if values.ndim == 0 else tuple(values.tolist())


def read_learnable(alpha: Any, bounds: Any) -> tuple[np.ndarray[Any, Any], float, float]:
    """The start of ``rho``, whose sigmoid is the place of a learned order within its bounds, and these bounds."""
    start = _reading.numbers("alpha", alpha)
    low, high = _reading.pair("bounds", bounds)
    if start.ndim > 1 or not start.size:
        raise ShapeError(f"alpha has shape {start.shape}; use one number, or one for each channel")
    if not ((start > low) & (start < high)).all():
        raise InvalidInputError(
            f"alpha={start.tolist()} is not strictly between the bounds {low:g} and {high:g}; start inside them"
        )
    share = (start - low) / (high - low)
    return np.log(share) - np.log1p(-share), low, high


class LearnedOrder:
    """What a learnable order of either library has."""

    bounds: tuple[float, float]
    rho: Any

    @property
    def ceiling(self) -> int | None:
        """The integer n with ``n - 1 < alpha <= n`` for every alpha within the bounds, if there is one."""
        low, high = self.bounds
        return math.ceil(high) if math.ceil(high) - 1 <= low else None

    @property
    def channels(self) -> int | None:
        """Number of orders, or None for a single one."""
        return None if self.rho.ndim == 0 else int(self.rho.shape[0])


@dataclass(frozen=True)
class GivenOrder:
    """A number, a tuple of them, or an array given by the user."""

    value: Any

    ceiling = None

    @property
    def channels(self) -> int | None:
        """Number of orders, or None for a single one."""
        single = isinstance(self.value, float) or getattr(self.value, "ndim", 1) == 0
        return None if single else len(self.value)

    def __call__(self) -> Any:
        """The order."""
        return self.value


def read_convolution(
    given: Any, made: Any, groups: Any, size: Any, axes: Any, count: int
) -> tuple[int, int, int, tuple[int, ...], tuple[int, ...]]:
    """Numbers of channels and groups of a convolution, the size of its kernel, and the axes of the derivatives.

    The kernel has ``count`` axes, its size is one number or one for each axis. Derivatives are along all of the last
    ``count`` axes by default.
    """
    inputs, outputs = _reading.count("in_channels", given), _reading.count("out_channels", made)
    parts = _reading.whole("groups", groups, least=1)
    if inputs % parts or outputs % parts:
        raise InvalidInputError(f"in_channels={inputs}, out_channels={outputs}, groups={parts}; give multiples of it")
    sizes = size if count == 2 and isinstance(size, tuple | list) and len(size) == 2 else [size] * count
    taps = tuple(_reading.count("kernel_size", each) for each in sizes)
    _reading.require_room(f"{inputs:,} and {outputs:,} channels and taps {taps}", inputs * outputs * math.prod(taps), 4)
    known = tuple(range(-count, 0))
    chosen = known if axes is None else axes
    if not isinstance(chosen, tuple | list) or not chosen or sorted({*known} & {*chosen}) != sorted(chosen):
        raise InvalidInputError(f"axes={_reading.shown(axes)}; use different ones of {', '.join(map(str, known))}")
    return inputs, outputs, parts, taps, tuple(chosen)


def read_linear(input_dim: Any, output_dim: Any, bias: Any) -> tuple[int, int, bool] | None:
    """Numbers of features of a linear map, and whether it has a bias; None if there is no map."""
    if input_dim is None:
        if output_dim is not None:
            raise InvalidInputError(f"output_dim={output_dim} without input_dim; give both, or neither")
        return None
    width = _reading.count("input_dim", input_dim)
    made = width if output_dim is None else _reading.count("output_dim", output_dim)
    _reading.require_room(f"input_dim={width:,} and output_dim={made:,}", width * made, 4)
    return width, made, _reading.flag("bias", bias)


def check_kernel(
    shape: Sequence[int], taps: Sequence[int], padding: Sequence[int] | str, dilation: Sequence[int]
) -> None:
    """Refuse samples of a wrong number of axes, and a kernel that is larger than the padded signal."""
    axes = len(taps)
    if len(shape) not in (axes + 1, axes + 2):
        raise ShapeError(f"samples of shape {tuple(shape)}; give (batch, channels, ...) with {axes} further axes")
    if isinstance(padding, str):
        return
    for size, count, more, spacing in zip(shape[-axes:], taps, padding, dilation, strict=True):
        points, reach = size + 2 * more, spacing * (count - 1) + 1
        if reach > points:
            raise ShapeError(
                f"a kernel that reaches over {reach} points is larger than the {points} of samples of shape "
                f"{tuple(shape)}, padding included; use a smaller kernel or more padding"
            )
