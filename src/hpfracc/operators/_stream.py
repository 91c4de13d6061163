"""Operators on streams: recent samples are stored, older ones are represented by a few decaying states."""

from __future__ import annotations

import math
from typing import Any, final, overload

import numpy as np
from numpy.typing import NDArray

from hpfracc._arrays import device_of, dtype_name, library_of
from hpfracc._choices import ArraySamples, SameArray
from hpfracc._frames import has_labels, open_samples
from hpfracc._reading import number, shown
from hpfracc._xp import array_namespace
from hpfracc.engine.execution.api import causal_convolution, exponential_recurrence
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError
from hpfracc.history.exponentials import MIN_TOLERANCE
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.stream_plans import WINDOW, StreamPlan, plan_stream
from hpfracc.operators.core.values import Samples, as_values, check_axis, constant, join, move_axis, zeros
from hpfracc.profiling.recorder import watched

#: The weights of old samples are this much more accurate than ``rtol``, because their errors accumulate.
_MARGIN = 1e-3


@final
class OperatorStream:
    """A fractional operator on an unbounded signal, applied chunk by chunk.

    Created by :meth:`FractionalOperator.stream`. For any chunk sizes, the values equal those of the same rule on the
    whole signal within ``rtol`` of their maximum. The state has a fixed size. A stream can be pickled at any time and
    continues where it stopped. Each stream is for one signal (of any batch shape) and one thread.

    Attributes
    ----------
    operator : FractionalOperator
        The operator that is applied.
    method : str
        The rule that is used.
    step, rtol : float
        As given.
    count : int
        Number of points pushed so far.
    state_size : int
        Numbers stored for each row: recent samples and decaying states.

    Notes
    -----
    Supports derivatives of non-integer order and integrals of order below 1 (the memory of others does not decay).
    Above order 1 all points need the first samples, where n is the order rounded up: for Caputo the first n + 9, for
    Riemann-Liouville the first n + 3. In chunks that end earlier the points up to there are nan.
    """

    #: The name of the axis; None in streams that were pickled by versions without it.
    dim: Any = None

    def __init__(self, operator: Any, step: Any, *, rtol: Any = 1e-6, axis: int | None = None, dim: Any = None) -> None:
        if isinstance(operator, type) or not hasattr(operator, "_streamed"):
            raise InvalidInputError(f"operator={shown(operator)} is no operator; give one, such as hf.Caputo(0.5)")
        self.operator = operator
        self.step = number("step", step, above=0.0)
        self.rtol = number("rtol", rtol, least=MIN_TOLERANCE / _MARGIN, below=1.0)
        self.axis = axis
        self.dim = dim
        self._prepare()
        self.reset()

    def _prepare(self) -> None:
        self._rule, self._order = self.operator._streamed()
        self.method: str = self._rule.name
        self._plan: StreamPlan = plan_stream(self._rule, self._order, _MARGIN * self.rtol, type(self.operator).__name__)

    def reset(self) -> None:
        """Discard the state. The next chunk starts a new signal."""
        self.count = 0
        self._head: Any = None  # the first samples, until they are no longer needed
        self._last: Any = None  # the samples that the next inputs depend on
        self._window: Any = None  # the newest inputs
        self._states: list[Any] = []
        self._firsts: list[Any] = []

    @property
    def state_size(self) -> int:
        """Numbers stored for each row."""
        plan = self._plan
        terms = len(plan.far.rates) * (1 if plan.alternating is None else 2)
        return terms + WINDOW + plan.lookback

    @overload
    def push(self, chunk: ArraySamples) -> NDArray[Any]: ...
    @overload
    def push(self, chunk: SameArray) -> SameArray: ...
    @overload
    def push(self, chunk: complex) -> Any: ...
    @watched
    def push(self, chunk: Any) -> Any:
        """The operator at the points of ``chunk``.

        Parameters
        ----------
        chunk : array_like
            The next samples, any number of them along the stream's axis, or a single number. The other axes, dtype and
            library must be those of the first chunk. May be labelled (pandas, xarray): the result has the same labels,
            but the step is that of the stream.

        Returns
        -------
        array
            In the shape and library of the chunk.
        """
        if self.dim is not None or has_labels(chunk):
            opened = open_samples(chunk, axis=self.axis, dim=self.dim, by_row=True)
            return opened.close(self._push(opened.values, opened.axis))
        return self._push(chunk, -1 if self.axis is None else self.axis)

    def _push(self, chunk: Any, axis: Any) -> Any:
        values = as_values(chunk)
        if values.ndim == 0:
            return self._push(values[None], -1)[0]
        axis = check_axis(axis, values.ndim)
        values = self._like_before(move_axis(values, axis, -1))
        with array_namespace(values).scope():
            result = self._advance(values)
        return move_axis(result, -1, axis) if axis != -1 else result

    def _like_before(self, values: Any) -> Any:
        """The chunk in the dtype of the stream; raises an error if it differs from earlier chunks."""
        known = self._head if self._last is None else self._last
        if known is None:
            return values
        for what, read, error in (
            ("library", library_of, InvalidInputError),
            ("device", device_of, InvalidInputError),
            ("rows of shape", lambda array: tuple(array.shape[:-1]), ShapeError),
            ("dtype", dtype_name, UnsupportedDtypeError),
        ):
            if read(known) != read(values):
                raise error(
                    f"the stream began with {what} {read(known)}, this chunk has {read(values)}; convert it, or "
                    "reset() for a new signal"
                )
        return values

    def _advance(self, x: Any) -> Any:
        if self.count >= WINDOW:
            return self._beyond(x)
        missing = WINDOW - self.count
        first, rest = x[..., :missing], x[..., missing:]
        self._head = first * 1 if self._head is None else join([self._head, first])
        values = self._at_head(first.shape[-1])
        self.count += first.shape[-1]
        if self.count < WINDOW:
            return values
        head, plan = self._head, self._plan
        self._window = plan.inputs(head)
        self._last = head[..., WINDOW - plan.lookback :]
        self._firsts = plan.firsts(head, self.step)
        terms = len(plan.far.rates)
        self._states = [_wider(zeros(head, terms)) for _ in range(1 if plan.alternating is None else 2)]
        self._head = None
        return join([values, self._beyond(rest)]) if rest.shape[-1] else values

    def _at_head(self, new: int) -> Any:
        """The rule on the first samples, padded with zeros; nan at points that still need later samples."""
        head = self._head
        n = head.shape[-1]
        if n < self._rule.head(self._order)[1]:
            return head[..., n - new :] * math.nan
        padded = join([head, zeros(head, WINDOW - n)]) if n < WINDOW else head
        with np.errstate(invalid="ignore"):
            return self._rule.apply(Samples(padded, Grid(WINDOW, 0.0, self.step)), self._order)[..., n - new : n]

    def _beyond(self, x: Any) -> Any:
        n, plan = x.shape[-1], self._plan
        if n == 0:
            return x * 1
        seen = join([self._last, x])
        with np.errstate(invalid="ignore"):
            fresh = plan.inputs(seen)[..., plan.lookback :]
        inputs = join([self._window, fresh])
        near = causal_convolution(plan.near, inputs[..., 1:])[..., WINDOW - 1 :]
        far = self._far(_wider(inputs[..., :n]))
        numbers = np.arange(self.count, self.count + n, dtype=np.float64)
        for first, weights in zip(self._firsts, plan.start(numbers), strict=True):
            far = far + _wider(first) * constant(weights, far)
        self._last = seen[..., seen.shape[-1] - plan.lookback :] * 1
        self._window = inputs[..., inputs.shape[-1] - WINDOW :] * 1
        self.count += n
        return (near + array_namespace(near).astype(far, near.dtype)) * self.step**plan.scale

    def _far(self, delayed: Any) -> Any:
        """The contribution of inputs older than the window; ``delayed`` are those that leave it now."""
        plan, n = self._plan, delayed.shape[-1]
        value, self._states[0] = exponential_recurrence(
            plan.far.rates, plan.far.weights, 1.0, delayed, initial=self._states[0], final=True
        )
        if plan.alternating is not None:
            # Weights times (-1)^lag: change the sign of every other input, apply the weights, and change it back.
            signs = constant(1.0 - 2.0 * ((self.count + np.arange(n)) % 2), delayed)
            turned, self._states[1] = exponential_recurrence(
                plan.far.rates, plan.alternating, 1.0, delayed * signs, initial=self._states[1], final=True
            )
            value = value + turned * signs
        return value

    def __getstate__(self) -> dict[str, Any]:
        made = ("_rule", "_order", "_plan", "method")
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __repr__(self) -> str:
        return f"<stream of {self.operator!r} by {self.method!r}, {self.count} points so far>"


def _wider(values: Any) -> Any:
    """Convert to double precision. In single precision a slowly decaying state is lost to rounding."""
    xp = array_namespace(values)
    return xp.astype(values, "complex128" if xp.is_complex(values) else "float64")
