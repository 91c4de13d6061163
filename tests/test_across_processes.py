"""Everything public survives pickle, copy and deepcopy, and the way into another process and back.

The classes are found by walking the public names: a new one that cannot travel, or that no example is given for, fails.
"""

from __future__ import annotations

import copy
import copyreg
import dataclasses
import enum
import functools
import importlib
import importlib.util
import inspect
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import _lazy, control, errors, lattice, memory, noise, pde, rough, transport
from hpfracc.analytics import PerformanceMonitor, UsageTracker
from hpfracc.engine.memory.host import Growth
from hpfracc.profiling import Profiler, Span, get_profiler
from hpfracc.profiling.comparison import Comparison, Rules, SpanComparison
from hpfracc.solvers.ode import problems
from tests.helpers.thinned import thinned
from tests.helpers.travelling import an_error, doubled, fail, give_back, work

GRID = np.linspace(0.0, 1.0, 33)
SIGNAL = np.sin(GRID)

WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "old pickle": lambda value: pickle.loads(pickle.dumps(value, protocol=2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}

#: Classes that belong to their process: refused in words.
BOUND: dict[type, Callable[[], Any]] = {
    Profiler: get_profiler,
    PerformanceMonitor: PerformanceMonitor,
    UsageTracker: UsageTracker,
    memory.MemoryMonitor: memory.get_memory_monitor,
    memory.MemoryPool: memory.get_memory_pool,
}
#: Classes that are not made by hand, or need a device.
LEFT_OUT = {
    hf.FractionalOperator,
    memory.Spillable,
    noise.Noise,
    noise.GaussianNoise,
    noise.LevyNoise,
    pde.BoundaryCondition,
    pde.EvolutionMethod,
    pde.SpaceTerm,
    transport.WaitingTimes,
    transport.Jumps,
}


@pytest.fixture(autouse=True)
def plain_pickling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing distributed changes how exceptions are pickled in the whole process (tblib); this is about ours."""
    for kind in list(copyreg.dispatch_table):
        if isinstance(kind, type) and issubclass(kind, BaseException):
            monkeypatch.delitem(copyreg.dispatch_table, kind)


def public_names() -> Iterator[tuple[str, Any]]:
    """Public names of the package and of each of its public modules."""
    for module in (
        "hpfracc",
        *(f"hpfracc.{name}" for name in sorted(_lazy.modules("hpfracc"))),
        "hpfracc.solvers.ode.problems",
    ):
        if module == "hpfracc.ml" and importlib.util.find_spec("torch") is None:
            continue
        for name in getattr(importlib.import_module(module), "__all__", ()):
            yield f"{module}.{name}", getattr(importlib.import_module(module), name)


def public_classes() -> list[type]:
    return sorted({value for _, value in public_names() if inspect.isclass(value)}, key=lambda each: each.__qualname__)


def decay(t: float, y: Any) -> Any:
    return -y


def abs_of(x: float) -> float:
    return abs(x)


def solved(**options: Any) -> hf.FODEResult:
    """A solution whose right-hand side is a lambda, which cannot be pickled."""
    return hf.solve_fode(lambda t, y: -2.0 * y, (0.0, 1.0), [1.0], 0.7, dense_output=True, **options)


def fitted() -> hf.FODEFit:
    """Of a right-hand side that is a lambda, which cannot be pickled."""
    data = np.exp(-GRID)
    return hf.fit_fode(lambda t, y, k: -k * y, GRID, data, parameters={"k": 0.9}, alpha=1.0, step=0.1, halve=False)


def fitted_evolution() -> hf.FPDEFit:
    """Of an equation that is a lambda, which cannot be pickled."""
    x = np.linspace(0.0, np.pi, 9)
    options = {"u0": np.sin(x), "x": x, "boundary": "dirichlet"}
    data = np.exp(-GRID[1:])[:, None] * np.sin(x)
    return hf.fit_fpde(
        lambda k: {**options, "space": pde.Diffusion(k)}, GRID[1:], data, sigma=1e-3, parameters={"k": 0.9}
    )


def spread() -> hf.FPDEResult:
    """A solution of a partial equation with a lambda, which cannot be pickled."""
    options: dict[str, Any] = {"x": GRID, "space": pde.Diffusion(0.1), "boundary": "neumann", "alpha": 0.7}
    return hf.solve_fpde(lambda t, u: -u, (0.0, 1.0), SIGNAL, step=0.1, dense_output=True, **options)


def told(result: hf.FODEResult) -> Any:
    assert result.sol is not None
    return result.sol(np.linspace(0.01, 1.0, 17)), result.y, result.message, result.decision


def recorded() -> Span:
    profiler = get_profiler(enabled=True)
    profiler.reset()
    with profiler.profile("outer", rows=3) as span:
        hf.causal_convolution(np.ones(8), SIGNAL)
    profiler.disable()
    return span


def shown(span: Span) -> Any:
    return span.name, span.kind, span.id, span.start, span.end, span.metadata, span.error, span.duration


def decisions() -> Any:
    hf.caputo(SIGNAL, GRID, 0.5)
    return hf.last_decision()


def as_dicts(found: Any) -> Any:
    return found.to_dict()


def stream() -> hf.OperatorStream:
    made = hf.Caputo(0.5).stream(0.01)
    made.push(SIGNAL)
    return made


def noisy_stream() -> hf.SmoothDerivativeStream:
    made = hf.SmoothDerivativeStream(0.5, 0.01, noise=0.1, roughness=1.0)
    for value in SIGNAL[:4]:
        made.push(float(value))
    return made


def selector() -> hf.IntelligentBackendSelector:
    made = hf.IntelligentBackendSelector(performance_threshold=0.2)
    made.record_performance("numpy", "fft", 64, 1e-3, True)
    return made


GRAPH = functools.partial(lattice.Lattice, (4, 5), periodic=True)

#: How to make one of a class, and what of it has to be the same afterwards.
EXAMPLES: dict[type, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    hf.SonineDerivative: (lambda: hf.SonineDerivative(np.reciprocal), repr),
    hf.SonineIntegral: (lambda: hf.SonineIntegral(np.reciprocal), repr),
    hf.FODEResult: (lambda: solved(step=0.05), told),
    hf.FPDEResult: (spread, lambda found: (found.u, found.mass, found.sol(0.5), found.decision, found.message)),
    pde.SpaceTimeError: (lambda: pde.SpaceTimeError(1e-6, 1e-9), tuple),
    pde.ModelEquation: (
        lambda: pde.problems.burgers(points=16),
        lambda found: (found.name, found.u0, found.parameters, found.reaction(0.0, found.u0)),
    ),
    pde.TermSum: (lambda: pde.Diffusion(2.0) + pde.Advection(1.0), repr),
    hf.FODEFit: (fitted, lambda found: (found.estimates, found.sets[0].curve, str(found))),
    hf.FPDEFit: (fitted_evolution, lambda found: (found.estimates, found.sets[0].curve, str(found))),
    hf.engine.Explanation: (lambda: hf.explain("fft", shape=(8,)), str),
    hf.Operation: (lambda: hf.fft, lambda found: found is hf.fft),
    hf.OperatorResult: (
        lambda: hf.caputo(SIGNAL, GRID, 0.5, full_output=True),
        lambda found: (found.value, found.to_dict() if hasattr(found, "to_dict") else repr(found)),
    ),
    hf.OperatorStream: (stream, lambda found: copy.deepcopy(found).push(SIGNAL)),
    hf.SmoothDerivativeStream: (noisy_stream, lambda found: copy.deepcopy(found).push(1.0)),
    hf.WorkloadCharacteristics: (lambda: hf.WorkloadCharacteristics("fft", 64, (64,)), repr),
    hf.IntelligentBackendSelector: (selector, lambda found: (repr(found.get_performance_summary()), found.settings)),
    hf.FractionalDifferencer: (lambda: hf.FractionalDifferencer(0.4), lambda found: found.get_params()),
    hf.config: (lambda: hf.config(deterministic=True), lambda found: found._layer),
    hf.use_backend: (lambda: hf.use_backend("numpy"), lambda found: found._name),
    hf.PsiCaputo: (lambda: hf.PsiCaputo(0.5, np.sqrt, np.square), lambda found: found(SIGNAL, GRID + 1.0)),
    hf.VariableOrder: (lambda: hf.VariableOrder(np.cos), lambda found: found(SIGNAL, GRID)),
    lattice.Lattice: (GRAPH, lambda found: found.shortest_path((0, 0), (3, 4))),
    lattice.UnifiedCatalyticLattice: (
        lambda: lattice.UnifiedCatalyticLattice(2, 4),
        lambda found: found.find_shortest_path((0, 0), (3, 3))[0],
    ),
    lattice.LatticeBatch: (lambda: lattice.create_batch([GRAPH()]), lambda found: repr(found.get_stats())),
    lattice.FractionalDiffusion: (
        lambda: GRAPH().fractional(0.7),
        lambda found: found.apply(np.arange(20.0).reshape(4, 5)),
    ),
    lattice.PathBatch: (lambda: lattice.PathBatch(np.arange(4), np.array([0, 2, 4])), lambda found: found.lengths),
    hf.SweepResult: (lambda: hf.sweep(abs_of, hf.grid(x=[-1.0, 2.0])), lambda found: (found.values, repr(found))),
    hf.distributed.ParameterGrid: (lambda: hf.grid(x=[1, 2], y=[3.0]), lambda found: (found.digest(), found[1])),
    hf.distributed.ParameterPoints: (lambda: hf.points(x=[1, 2]), lambda found: (found.digest(), found[1])),
    Comparison: (
        lambda: Comparison([SpanComparison(("a",), 1.0, 2.0, (7, 7), 0.1, "inconclusive", "why")], Rules()),
        lambda found: found.to_dict(),
    ),
    Span: (recorded, shown),
    memory.MemoryReport: (memory.report, repr),
    memory.Pressure: (lambda: memory.Pressure(next(iter(memory.Pressure)).value), repr),
    memory.span: (lambda: memory.span("part"), lambda found: found.name),
    Growth: (lambda: Growth("steady", 0.0, 1.0), repr),
    rough.RoughPaths: (lambda: rough.RoughPaths(GRID, SIGNAL, SIGNAL, 1e-4, SIGNAL), tuple),
    rough.PathValuation: (lambda: rough.PathValuation(1.0, 0.2, 0.1, 0.1), tuple),
    control.TransferFunction: (lambda: 1 / (control.s**0.5 + 2) * control.delay(0.1), repr),
    control.FOPIDController: (lambda: control.FOPID(1.0, 0.5, 0.7).controller(0.1), lambda found: str(found.state())),
    rough.Valuation: (lambda: rough.Valuation(SIGNAL, GRID), tuple),
    noise.HoskingStream: (
        lambda: noise.FractionalBrownian(0.3).stream(0.1, size=2, rng=1),
        lambda found: copy.deepcopy(found).draw(70),
    ),
    transport.ContinuousTimeRandomWalk: (
        lambda: transport.ContinuousTimeRandomWalk(transport.ParetoWaiting(0.7), transport.StableJumps(1.5)),
        lambda found: found.sample(GRID, 2, rng=1),
    ),
    transport.PassageEstimate: (lambda: transport.PassageEstimate(SIGNAL, GRID), tuple),
    transport.FirstPassage: (
        lambda: transport.first_passage(noise.Brownian(), (-1.0, 1.0), paths=20, rng=1),
        lambda found: (found.times, found.survival(GRID).value, repr(found)),
    ),
    transport.MeanSquaredDisplacement: (
        lambda: transport.msd(noise.Brownian().sample(GRID, 5, rng=1), GRID),
        lambda found: (found.value, found.interval, repr(found)),
    ),
    transport.SubordinatedDiffusion: (
        lambda: transport.SubordinatedDiffusion(np.sin, 1.0, 0.5, step=0.1),
        lambda found: found.sample(GRID, 2, rng=1),
    ),
    problems.TestEquation: (
        lambda: problems.relaxation(0.6, rate=3.0),
        lambda found: (found.name, found.fun(0.0, np.ones(1)), found.known()[1], found.parameters),
    ),
    problems.Reference: (lambda: problems.stored_reference("brusselator", 0.8) or _reference(), lambda found: found.y),
}


def _reference() -> problems.Reference:
    return problems.Reference(GRID, SIGNAL, 1e-9)


def layer(kind: Any) -> Any:
    """A layer of PyTorch's."""
    torch = importlib.import_module("torch")
    if kind.__name__ in ("FractionalConv1d", "FractionalConv2d"):
        return kind(1, 1, 2, 0.4)
    if kind.__name__ in ("FractionalRNN", "FractionalLSTM"):
        return kind(1, 2)
    if kind.__name__ == "NeuralFODE":
        return kind(decay, 0.7)
    if kind.__name__ == "NeuralFSDE":
        return kind(decay, decay, model="volterra", alpha=0.7, noise="diagonal", step=0.1)
    if kind.__name__ in ("GraphDiffusion", "LaplacianPower"):
        return kind(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), 0.4)
    return kind(torch.linspace(0.0, 1.0, 4), 0.4) if kind.__name__ == "FractionalResidual" else kind(0.4)


def example(kind: type) -> tuple[Any, Callable[[Any], Any]]:
    """An instance of a class, and a function of it that must be equal after the round trip."""
    if kind in EXAMPLES:
        make, look = EXAMPLES[kind]
        return make(), look
    if kind.__module__.startswith("hpfracc.ml.torch."):
        return layer(kind), lambda found: [repr(found), *(value.tolist() for value in found.state_dict().values())]
    if issubclass(kind, enum.Enum):
        return next(iter(kind)), lambda found: found
    if issubclass(kind, hf.FractionalOperator):
        return kind(0.5), repr  # type: ignore[call-arg]
    if dataclasses.is_dataclass(kind):  # a report of plain values
        made = object.__new__(kind)
        for number, field in enumerate(dataclasses.fields(kind)):
            object.__setattr__(made, field.name, float(number))
        return made, lambda found: [getattr(found, field.name) for field in dataclasses.fields(kind)]
    return kind(), lambda found: type(found)


def the_same(one: Any, two: Any) -> bool:
    if isinstance(one, tuple | list):
        return len(one) == len(two) and all(map(the_same, one, two))
    if isinstance(one, np.ndarray):  # by another arm perhaps
        return bool(np.allclose(one, two, rtol=1e-12, atol=1e-12))
    return bool(one == two)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in public_classes() if not issubclass(kind, BaseException) and kind not in {*BOUND, *LEFT_OUT}],
    ids=lambda kind: kind.__qualname__,
)
def test_every_public_class_travels(kind: type):
    """The copy has the same values and behaviour."""
    made, look = example(kind)
    for way, go in WAYS.items():
        assert the_same(look(made), look(go(made))), way


@pytest.mark.parametrize("kind", BOUND, ids=lambda kind: kind.__qualname__)
def test_what_belongs_to_its_process_says_so(kind: type):
    """Pickling recorders, monitors and pools raises an error that says what to send instead."""
    for way, go in WAYS.items():
        with pytest.raises(TypeError, match="process"):
            go(BOUND[kind]())
        assert way


def test_every_public_function_and_operation_travels():
    """Functions are pickled by name; a copy is the same object."""
    for name, value in public_names():
        if callable(value) and not inspect.isclass(value) and value is not control.s:  # which is a value
            for way, go in WAYS.items():
                assert go(value) is value, (name, way)


def all_errors() -> list[type[BaseException]]:
    found = [value for _, value in public_names() if inspect.isclass(value) and issubclass(value, BaseException)]
    found += [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, BaseException)]
    below = list(found)
    while below:
        more = below.pop().__subclasses__()
        found += more
        below += more
    ours = {kind for kind in found if kind.__module__.startswith("hpfracc.")}
    return sorted(ours, key=lambda kind: kind.__qualname__)


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__qualname__)
def test_every_error_and_warning_travels(kind: type[BaseException]):
    """Message, attributes, notes and cause survive; a cause that cannot be pickled is replaced by its text."""
    made = an_error(kind)
    for way, go in WAYS.items():
        found = go(made)
        assert type(found) is kind, way
        assert (str(found), found.args, found.__notes__) == (str(made), made.args, made.__notes__)
        if isinstance(found, errors.HpfraccError):
            assert vars(found).keys() == vars(made).keys()
            assert isinstance(found.__cause__, ExceptionGroup)
            assert "gone" in str(found.__cause__.exceptions[1])
    if isinstance(made, errors.AllBackendsFailedError):
        found = WAYS["pickle"](made)
        assert [str(each) for each in found.failures.values()] == ["no", "StubbornError: gone"]


@pytest.mark.parametrize("make", [decisions, lambda: hf.explain("fft", shape=(64,))], ids=["decision", "explanation"])
def test_decisions_and_explanations_travel(make: Callable[[], Any]):
    """The copy has the same text and the same data."""
    made = make()
    for way, go in WAYS.items():
        found = go(made)
        assert as_dicts(found) == as_dicts(made), way
        assert str(found) == str(made)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"step": 0.05, "method": "pece"},
        {"step": 0.05, "method": "implicit_trapezoid"},
        {"step": 0.05, "method": "l1"},
        {"step": 0.05, "method": "l2_1sigma"},
        {"step": 0.05, "method": "mittag_leffler"},
        {"step": 0.05, "terms": [(1.0, 0.3)]},
        {"terms": [(lambda t: 1.0, 0.3)]},
        {"step": 0.05, "derivative": "riemann_liouville"},
        {"events": lambda t, y: y[0] - 0.6},
        {"jac": lambda t, y: -2.0 * np.eye(1)},
        {"method": "adaptive_local", "rtol": 1e-3},
    ],
    ids=lambda options: " ".join(
        f"{key} {value}" if isinstance(value, str | float) else key for key, value in options.items()
    ),
)
@thinned(one_in=2)
def test_dense_output_travels(options: dict[str, Any]):
    """The dense output is the same, even if the right-hand side cannot be pickled."""
    made = solved(**options)
    for way, go in WAYS.items():
        assert the_same(told(go(made)), told(made)), way


def test_dense_output_of_delays_and_variable_orders_travels():
    """The dense output is the same where the history or the order is a function."""
    delayed = hf.solve_fode(
        lambda t, y, past: -past[0], (0.0, 1.0), [1.0], 0.7, delays=[0.3], history=lambda t: np.ones(1),
        dense_output=True,
    )  # fmt: skip
    varying = hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], lambda t: 0.7 + 0.1 * t, step=0.05, dense_output=True)
    for made in (delayed, varying):
        for way, go in WAYS.items():
            assert the_same(told(go(made)), told(made)), way


def test_every_test_equation_travels():
    """Each test equation is the same after the round trip."""
    for name in problems.__all__:
        make = getattr(problems, name)
        if inspect.isclass(make) or name == "stored_reference":
            continue
        made = make()
        for way, go in WAYS.items():
            found = go(made)
            assert the_same(found.fun(0.5, made.y0 + 1.0), made.fun(0.5, made.y0 + 1.0)), (name, way)
            assert found.parameters == made.parameters


# In another process: what is sent there is used there, and errors come back as themselves.


def test_there_and_back_by_spawn(monkeypatch: pytest.MonkeyPatch):
    """Operations, operators and solutions reach a spawned process, and its errors reach the caller.

    The process has NumPy alone: to import the other libraries takes longer than all that is tried here.
    """
    for name in ("NUMBA", "TORCH", "JAX"):
        monkeypatch.setenv(f"HPFRACC_DISABLE_{name}", "1")
    solution = solved(step=0.05).sol
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        tasks = [(hf.fft, SIGNAL), (hf.Caputo(0.5), SIGNAL, GRID), (solution, GRID), (doubled, SIGNAL)]
        found = pool.map_async(work, tasks).get(timeout=500)
        for task, value in zip(tasks, found, strict=True):
            np.testing.assert_allclose(value, work(task), rtol=1e-12, atol=1e-12)
        with pytest.raises(errors.AllBackendsFailedError) as caught:
            pool.apply_async(fail, ("AllBackendsFailedError",)).get(timeout=500)
        assert set(caught.value.failures) == {"numpy", "torch"}


def test_there_and_back_by_joblib():
    """Results and decisions pass through joblib's workers, which use cloudpickle."""
    joblib = pytest.importorskip("joblib")
    made = [solved(step=0.05), decisions(), hf.Riesz(0.5), problems.lorenz()]
    found = joblib.Parallel(n_jobs=2, timeout=500)(joblib.delayed(give_back)(value) for value in made)
    assert the_same(told(found[0]), told(made[0]))
    assert as_dicts(found[1]) == as_dicts(made[1])
    assert found[2] == made[2]
    assert the_same(found[3].fun(0.0, made[3].y0), made[3].fun(0.0, made[3].y0))
