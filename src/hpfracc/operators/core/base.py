"""The base class of operators, and their common ``__call__``."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
from abc import ABC
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Literal, TypeVar, Unpack, cast, overload

import numpy as np
from numpy.typing import NDArray

from hpfracc._arrays import KINDS, has_unit, is_chunked, is_sharded, quick_kind
from hpfracc._choices import RuleName, SideName
from hpfracc._frames import has_labels, open_samples, with_units
from hpfracc._plugs import cluster_support
from hpfracc._reading import choice, corrected, corrects_keywords, flag, number
from hpfracc._xp import namespace_of
from hpfracc.engine.execution.api import composite
from hpfracc.engine.selection.decision import join_decisions
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError
from hpfracc.operators.core import reporting
from hpfracc.operators.core.applying import (
    UNIFORM,
    apply_rule,
    cache_application,
    cached_applications,
    learned_application,
    pick_rule,
)
from hpfracc.operators.core.call_types import ArraySamples, CallParameters, OperatorFunction, P, SameArray
from hpfracc.operators.core.function import FAST, Function, read_problem
from hpfracc.operators.core.grids import Grid, cached_grid, read_points
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import OperatorResult, Outcome, propagated_noise, relabelled, report_outcome
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.values import Samples, flip, move_axis
from hpfracc.profiling.recorder import shared as spans

if TYPE_CHECKING:
    from hpfracc.operators._stream import OperatorStream


class FractionalOperator(ABC):
    """An operator is pure data (a frozen dataclass) that can be called; subclasses are final.

    A subclass has the fields ``alpha`` and ``method`` (and its own), and the data below. It applies itself to samples
    by one of its rules, and to functions by the spectral or graded method, unless it overrides ``_of_samples`` and
    ``_of_function``. :func:`function_of` makes its function.
    """

    __slots__ = ()

    #: The order, and the name of the method.
    alpha: Any
    method: RuleName
    #: Full name of the definition, and its short names.
    definition: ClassVar[str]
    short_names: ClassVar[tuple[str, ...]] = ()
    #: The operator in errors.
    who: ClassVar[str]
    #: ``"derivative"`` or ``"integral"``: which of the two factories creates it.
    kind: ClassVar[str] = "derivative"
    #: The name of its function.
    function_name: ClassVar[str]
    #: The formula of its docstring, in LaTeX, for the reference page.
    formula: ClassVar[str] = ""
    #: The rules for uniform grids by their ``method=`` names; the first is the default.
    rules: ClassVar[Mapping[str, Rule]] = {}
    #: The rules for any increasing grid, by the same names; a ``"fast"`` rule among them also handles uniform grids.
    any_grid_rules: ClassVar[Mapping[str, Rule]] = {}
    #: The kinds of grid it accepts.
    grids: ClassVar[tuple[str, ...]] = ("uniform", "any")
    #: ``"left"``: from the origin on; ``"right"``: up to the end. A field of the operators that have both.
    side: SideName = "left"
    #: The integer next above a traced order. A field of the operators that have orders above 1.
    ceiling: int | None = None
    #: Where it starts if neither ``origin`` nor the samples' points say so; None for 0.
    usual_origin: ClassVar[float | None] = None
    #: Options of a call that it does not take: a two-sided operator has no ``origin``.
    unused: ClassVar[tuple[str, ...]] = ()
    #: Where only positive orders are defined (an integral of order 0 is f itself): what to use for others.
    instead: ClassVar[str] = ""
    #: Whether it can be applied to a stream.
    streams: ClassVar[bool] = False
    #: Whether a time c times longer multiplies the result by ``c ** power``, with a power of ``-alpha`` (``alpha`` for
    #: integrals), so that the result has a unit.
    scales: ClassVar[bool] = False
    #: Whether it has the initial terms of Riemann-Liouville, for functions.
    initial_terms: ClassVar[bool] = False
    #: The operator that it applies, which gives its rules; None for those with rules of their own.
    inner: ClassVar[type[FractionalOperator] | None] = None
    _repr_html_ = reporting.operator_as_html

    def __init_subclass__(cls) -> None:
        _, found, after = inspect.cleandoc(cls.__doc__ or "").partition(".. math::")
        if found and "formula" not in vars(cls):
            cls.formula = " ".join(after.split("\n\n")[0].split()).rstrip(".,")
        if cls.inner is not None and "inner" in vars(cls):
            cls.kind, cls.rules, cls.any_grid_rules = cls.inner.kind, cls.inner.rules, cls.inner.any_grid_rules

    @overload
    def __call__(
        self, f: Any, t: Any = None, *, full_output: Literal[True], **options: Unpack[CallParameters]
    ) -> OperatorResult: ...
    @overload
    def __call__(self, f: Any, t: Any = None, *, full_output: bool, **options: Unpack[CallParameters]) -> Any: ...
    @overload
    def __call__(self, f: ArraySamples, t: Any = None, **options: Unpack[CallParameters]) -> NDArray[Any]: ...
    @overload
    def __call__(self, f: SameArray, t: Any = None, **options: Unpack[CallParameters]) -> SameArray: ...
    @overload
    def __call__(self, f: Callable[[Any], Any], t: Any = None, **options: Unpack[CallParameters]) -> Any: ...
    @corrects_keywords
    def __call__(
        self,
        f: Any,
        t: Any = None,
        *,
        step: Any = None,
        axis: int | Sequence[int] | None = None,
        dim: Any = None,
        time_unit: str | None = None,
        origin: float | None = None,
        factor: float | None = None,
        rtol: float | None = None,
        backend: Any = None,
        noise: float | None = None,
        full_output: bool = False,
    ) -> Any:
        """Apply the operator.

        Parameters
        ----------
        f : array_like or callable
            Samples, with any leading shape, or a function of an array of points. Samples may be a pandas ``Series`` or
            ``DataFrame`` or an xarray ``DataArray``; the result then has the same type and labels. Samples, points and
            step may be quantities of pint or astropy; the result then has the unit of f over that of t to the power
            alpha, and ``origin`` counts in the unit of t.
        t : array_like, optional
            The points of the samples, or those at which a callable's result is computed. The points of samples may be
            dates (``datetime64``). Labelled samples need neither ``t`` nor ``step`` if their labels are dates, time
            differences, floating-point numbers, or integers with a name.
        step : float, optional
            Spacing of the samples, instead of ``t``; may carry a gradient.
        axis : int, optional
            The axis of the samples along which the points lie: by default the last one, or the index of a frame. For
            the fractional Laplacian also several axes, each with its points in ``t`` or its ``step``.
        dim : hashable, optional
            For a ``DataArray``: the name of that axis, required if there are several; or the names of several axes.
        time_unit : str, optional
            Unit in which dates are counted, from the first one: ``"s"`` by default, or ``"ns"``, ``"us"``, ``"ms"``,
            ``"min"``, ``"h"``, ``"D"``, ``"W"``. A derivative of order alpha is per unit to the power alpha.
        origin : float, optional
            Where the operator starts: ``t[0]`` for samples, 0 for callables. With ``side="right"`` the end b of the
            interval: by default the last point of ``t``.
        factor : float, optional
            For a callable: the function is ``(t - origin)**factor`` times a smooth function; the factor is treated
            exactly.
        rtol : float, optional
            For a callable: tolerance relative to the largest value; for ``method="fast"``: that of the kernel. 1e-10 by
            default.
        backend : str, optional
            Backend of the engine.
        noise : float, optional
            For samples: standard deviation of independent noise; what it causes is added to the error estimate.
        full_output : bool
            Return an :class:`OperatorResult` instead of the value alone.

        Returns
        -------
        array or OperatorResult
            An array of the caller's library, shaped like the samples (for a callable like ``t``, or a number if ``t``
            is one).

        Raises
        ------
        DivergenceError
            If the integral of a callable does not exist, such as that of 1/t from 0.

        Warns
        -----
        AccuracyWarning
            If the method did not converge on a callable, or if rounding leaves an error above ``rtol`` (above 1e-3 of
            the largest value, if none is given); not with ``full_output``, which reports it.

        Notes
        -----
        A callable is evaluated at 33 points at first, and at more until the results agree. A feature that all of them
        miss, i.e. one narrower than about 1/200 of the distance from the origin to the last point of ``t``, is not
        detected; give points of ``t`` up to it and beyond, or samples.
        """
        usual = full_output is False and not spans.on and origin is rtol is factor is noise is dim is time_unit is None
        if usual and (axis is None or (type(axis) is int and axis == -1)):
            found = self._repeated(f, t, step, backend)
            if found is not None:
                return found
        options = {"origin": origin, "factor": factor, "rtol": rtol, "backend": backend}
        options["full_output"] = flag("full_output", full_output)
        if noise is not None:
            options["noise"] = number("noise", noise, least=0.0)
            if not full_output or callable(f) or is_chunked(f) or is_sharded(f):
                raise InvalidInputError(f"noise={noise}: for samples in one piece, with full_output=True; omit it")
        with spans.span(type(self).__name__) if spans.on else nullcontext():
            labelled = dim is not None or time_unit is not None
            if not callable(f) and any(map(has_unit, (f, t, step))):
                return self._call_with_units(f, t, step, axis, labelled, **options)
            if labelled and is_chunked(f):
                raise InvalidInputError("dim= and time_unit= are for labelled samples; f is a Dask array: use axis=")
            if is_chunked(f) or not (labelled or has_labels(f, None if callable(f) else t)):
                return self._call_plain(f, t, step, -1 if axis is None else axis, **options)
            opened = open_samples(f, t, step=step, axis=axis, dim=dim, time_unit=time_unit, chunked=True)
            return relabelled(opened, self._call_plain(opened.values, opened.t, step, opened.axis, **options))

    def _repeated(self, f: Any, t: Any, step: Any, backend: Any) -> Any:
        """The result for samples like earlier ones, along the last axis, which are not read again; None for others."""
        try:
            if type(self.alpha) is float:
                # Sharded arrays are never cached.
                cached = cached_applications.get((self, (KINDS.get(type(f)) or quick_kind)(f)))
                repeat: Any = None if cached is None else cached.repeat
            elif type(f) is not np.ndarray and not is_sharded(f):
                repeat = learned_application(self, f)
            else:
                return None
        except (AttributeError, IndexError, TypeError):  # not an array, a single number, or an unhashable field
            return None
        if repeat is None or (t is None) == (step is None):
            return None
        if t is None:
            return repeat(f, step, None, backend) if type(step) is float and 0.0 < step < math.inf else None
        grid = cached_grid(t)
        return None if grid is None or grid.n != f.shape[-1] else repeat(f, grid.step, grid, backend)

    def _call_with_units(self, f: Any, t: Any, step: Any, axis: Any, labelled: bool, **options: Any) -> Any:
        """Apply to samples with units."""
        if labelled or options["full_output"] or not self.scales or type(self.alpha) not in (float, int):
            raise UnsupportedDtypeError(
                f"f, t or step has a unit; the result of {self.who} has one if it is proportional to a fixed power of "
                "time, for an order that is one plain number, without full_output=, dim= and time_unit=; give plain "
                "numbers, such as t.to('s').magnitude"
            )
        power = self.alpha if self.kind == "integral" else -self.alpha
        plain = functools.partial(self._call_plain, axis=-1 if axis is None else axis, **options)
        return with_units(plain, f, t, step, power)

    def _call_plain(
        self, f: Any, t: Any, step: Any, axis: Any, *, full_output: bool, noise: float = 0.0, **options: Any
    ) -> Any:
        """Read the arguments, apply the operator, and report the result."""
        if is_chunked(f):
            return cluster_support().apply_operator(
                self, f, t, step=step, axis=axis, **options, full_output=full_output
            )
        if is_sharded(f):
            del options["factor"]
            options |= {"step": step, "axis": axis, "full_output": full_output or None}
            return cluster_support().apply_shards(self, f, t, options)
        right = self._is_right()
        problem, grid, axis = read_problem(self, f, t, step, axis, **options, right=right)
        # A JAX order is float64 inside, regardless of the user's setting: the samples keep their dtype.
        with namespace_of(self._order_like()).scope(), composite() as decisions:
            outcome = self._of_function(problem) if isinstance(problem, Function) else self._of_samples(problem)
            made = list(decisions)  # without those of the error estimate
            estimate: Any = math.nan
            checked = isinstance(problem, Function) and outcome.looked
            if (full_output or checked) and outcome.error is not None:
                estimate = outcome.error()
                if noise and isinstance(problem, Samples):
                    estimate = estimate + propagated_noise(self._of_samples, problem, outcome.value, noise)
        value = outcome.value
        if right:
            value = flip(value)
            estimate = flip(estimate) if getattr(estimate, "ndim", 0) else estimate
        if isinstance(problem, Function):
            value, start, note = problem.shaped(value), problem.start, ""
        else:
            start, note = grid.origin, problem.grid.note
            if outcome.reusable is not None and problem.values is f and problem.grid is grid:
                cache_application(self, f, outcome.reusable)
            if axis != -1:
                value = move_axis(value, -1, axis)
        if not (full_output or checked):
            return value
        points = t if isinstance(problem, Function) else grid.known_times()
        result = OperatorResult(
            value, outcome.method, estimate, join_decisions(made), start, message=note, t=points, axis=axis
        )
        return report_outcome(self, outcome, result, options["rtol"], full_output)

    def _is_right(self) -> bool:
        return choice("side", self.side, ("left", "right")) == "right"

    def _start_of(self, t: Any, origin: Any) -> Any:
        """Where the operator starts on a callable, None for 0."""
        if "origin" not in self.unused:
            return origin
        if origin is not None:
            raise InvalidInputError(f"origin={origin!r}: {self.who} is two-sided and has no origin; leave it out")
        return None if t is None else float(read_points(t).min())

    def _tolerance(self, rtol: Any) -> float:
        """The tolerance of ``method="fast"``; no other method for samples has one."""
        from hpfracc.history.exponentials import MIN_TOLERANCE

        if self.method not in FAST:
            raise InvalidInputError(
                f"rtol={rtol!r} is for callables and for method='fast'; other methods for samples do not use it"
            )
        return number("rtol", rtol, least=MIN_TOLERANCE, below=1.0)

    def stream(self, step: float, *, rtol: float = 1e-6, axis: int | None = None, dim: Any = None) -> OperatorStream:
        """The same operator for a signal that arrives in chunks, with bounded memory.

        Parameters
        ----------
        step : float
            Spacing of the samples.
        rtol : float
            Largest deviation from the values for the whole signal, relative to their maximum.
        axis : int, optional
            The axis of each chunk along which the points lie: by default the last one, or the index of a frame.
        dim : hashable, optional
            The name of that axis, for chunks that are a ``DataArray``.

        Returns
        -------
        OperatorStream
            ``push(chunk)`` returns the values at the chunk's points.

        Examples
        --------
        >>> import numpy as np
        >>> import hpfracc as hf
        >>> f = np.sin(np.linspace(0.0, 20.0, 2001))
        >>> stream = hf.Caputo(0.5).stream(0.01)
        >>> values = np.concatenate([stream.push(chunk) for chunk in np.array_split(f, 7)])
        >>> bool(np.allclose(values, hf.caputo(f, step=0.01, alpha=0.5), atol=1e-6))
        True
        """
        from hpfracc.operators._stream import OperatorStream

        if self._is_right():
            raise InvalidInputError("side='right' looks ahead, to samples that a stream does not have; use side='left'")
        return OperatorStream(self, step, rtol=rtol, axis=axis, dim=dim)

    def _streamed(self) -> tuple[Rule, Order]:
        """The rule and the order for streaming this operator."""
        if not self.streams:
            raise InvalidInputError(f"{type(self).__name__} has no streaming form; give it the whole signal")
        order = self._order()
        if not order.plain or order.known is None:
            raise InvalidInputError(f"the order of a stream of {self.who} is a plain number; give float(alpha)")
        if order.is_integer:
            raise InvalidInputError(
                f"alpha={order.known:g}: {self.who} of whole order has no memory to stream; use differences"
            )
        if self.method in FAST:
            raise InvalidInputError(
                f"{self.who}: a stream is fast by itself; leave method='fast' out, or name a uniform rule"
            )
        return self._rule(order, UNIFORM, self.who), order

    def _order(self) -> Order:
        """The order, checked."""
        order = read_order(self.alpha, ceiling=self.ceiling)
        known = order.known
        if self.instead and known is not None and (known < 0.0 or (known == 0.0 and self.kind == "derivative")):
            raise InvalidInputError(f"alpha={known:g}: the order of {self.who} must be positive; {self.instead}")
        return order

    def _inner(self) -> FractionalOperator:
        """The operator that it applies, with the fields that both have."""
        own, inner = ({field.name for field in dataclasses.fields(cast(Any, each))} for each in (self, self.inner))
        return cast("FractionalOperator", cast(Any, self.inner)(**{name: getattr(self, name) for name in own & inner}))

    def _order_like(self) -> Any:
        """The order, which determines the library together with the samples."""
        return self.alpha

    def _own_grid(self, grid: Grid, t: Any) -> Grid:
        """The grid in the operator's own variable, if that is not the caller's ``t``."""
        return grid

    def _of_samples(self, samples: Samples) -> Outcome:
        """Apply to samples, on a grid that may or may not be uniform."""
        return self.applied(samples, self.who)

    def applied(self, samples: Samples, who: str) -> Outcome:
        """Apply to samples. Errors call the operator ``who``."""
        order = self._order()
        return apply_rule(self._rule(order, samples.grid, who), samples, order, who)

    def _rule(self, order: Order, grid: Grid, who: str) -> Rule:
        """The rule for samples on a grid."""
        return pick_rule(self, self.method, who, grid)

    def _of_function(self, function: Function) -> Outcome:
        """Apply to a callable."""
        from hpfracc.operators.core.spectral import differentiate

        return differentiate(function, self._order(), self.method, initial_terms=self.initial_terms)


Operator = TypeVar("Operator", bound=FractionalOperator)


def operator_of(kind: Callable[..., Operator], alpha: Any, *fields: Hashable) -> Operator:
    """``kind(alpha, *fields)``, cached if the order is a plain number: creating an operator takes 2 us."""
    if type(alpha) is float:
        try:
            found: Operator = _cached_operator(kind, alpha, *fields)
            return found
        except TypeError:  # an unhashable field; the operator raises the error
            pass
    return kind(alpha, *fields)


@functools.lru_cache(maxsize=128, typed=True)
def _cached_operator(kind: Callable[..., Any], *fields: Hashable) -> Any:
    return kind(*fields)


_FUNCTION = """
Parameters
----------
{parameters}

Returns
-------
array or OperatorResult
    The result in the library and shape of the samples (the shape of ``t`` for a callable), or an
    :class:`OperatorResult` with ``full_output=True``.

See Also
--------
{kind}, {see_also}
"""


@functools.cache
def _described(documented: Any) -> dict[str, str]:
    """The entries of a docstring's list of parameters, by the name of each parameter."""
    _, _, text = (inspect.getdoc(documented) or "").partition("Parameters\n----------\n")
    entries = re.split(r"\n(?=\S)", re.split(r"\n\n(?=\w.*\n---)", text)[0])
    return {name: entry for entry in entries for name in entry.partition("\n")[0].partition(" : ")[0].split(", ")}


def function_of(
    kind: type[FractionalOperator], *, see_also: str
) -> Callable[[Callable[Concatenate[Any, P], Any]], OperatorFunction[P]]:
    """The function of an operator, with the summary and the examples of the decorated one, which has no body.

    It has the fields of the operator after ``f`` and ``t``, those that the decorated one does not name as keywords, and
    the options of a call; ``see_also`` has the names of related functions.
    """

    def decorate(function: Callable[Concatenate[Any, P], Any]) -> OperatorFunction[P]:
        kind.function_name, made = function.__name__, cast(Any, kind)
        apply = cast(Any, inspect.unwrap(kind.__call__))  # its keywords are corrected with the function's own
        declared, made.__init__ = dataclasses.fields(made), corrects_keywords(made.__init__)
        own = [each for each in inspect.signature(function).parameters.values() if each.kind is not each.VAR_KEYWORD]
        placed = len(own) - 2
        after = [(field.name, None if field.default is dataclasses.MISSING else field.default) for field in declared]

        @functools.wraps(function)
        def call(f: Any, t: Any = None, *placed_fields: Any, **options: Any) -> Any:
            if len(placed_fields) > placed:
                given = 2 + len(placed_fields)
                raise TypeError(f"{function.__name__}() takes {len(own)} positional arguments but {given} were given")
            named = [options.pop(name, default) for name, default in after[len(placed_fields) :]]
            try:
                return apply(operator_of(made, *placed_fields, *named), f, t, **options)
            except TypeError as error:
                raise corrected(error, call) from error.__cause__

        keyword = inspect.Parameter.KEYWORD_ONLY
        fields = [
            inspect.Parameter(field.name, keyword, default=field.default, annotation=field.type)
            for field in declared[placed:]
        ]
        of_call = [each for each in inspect.signature(kind.__call__).parameters.values() if each.kind is keyword]
        call.__signature__ = inspect.Signature([*own, *fields, *of_call])  # type: ignore[attr-defined]
        if function.__doc__:
            summary, _, rest = inspect.cleandoc(function.__doc__).partition("\n")
            named = [each.name for each in (*own, *fields, *of_call) if each.name not in kind.unused]
            known = {**_described(kind), **_described(kind.__call__)}
            listed = dict.fromkeys(known[name] for name in named if name in known)  # some share one description
            common = _FUNCTION.format(parameters="\n".join(listed), kind=kind.__name__, see_also=see_also)
            call.__doc__ = f"{summary}\n{common}{rest}"
        return cast("OperatorFunction[P]", call)

    return decorate
