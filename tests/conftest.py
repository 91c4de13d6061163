"""Every test starts from the same state: default settings, nothing learned, its own wisdom file."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from hpfracc import _config
from hpfracc.engine.execution import state
from tests.helpers.gpus import hide_gpus
from tests.helpers.more import More
from tests.helpers.optional import OptionalLibraries
from tests.helpers.rounding import rounding_by_shape
from tests.helpers.thinned import Thinning

#: JAX's double precision as the tests were started with it.
_X64 = os.environ.get("JAX_ENABLE_X64", "0").lower() in ("1", "true", "yes", "y", "on", "t")
#: The limit of :mod:`hpfracc.solvers.ode.compiled.functions`, which needs Numba.
_MAX_COMPILED = 512
# Tests import JAX themselves, several processes at once perhaps: none may take most of a GPU for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Processes that share the tests share the cores too: threads that wait for one another would spin.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    _share = max(1, (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    os.environ.setdefault("OMP_NUM_THREADS", str(_share))

# Compilers make objects by the million and few of them in circles; looking for those is a tenth of their time.
gc.set_threshold(20_000, 20, 20)

# How long an example takes says nothing on a busy machine.
settings.register_profile("hpfracc", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hpfracc")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rounding-by-shape",
        action="store_true",
        help="round transforms differently in batches of different shape, as on ARM (tests/helpers/rounding.py)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Thinning())
    config.pluginmanager.register(More())
    config.pluginmanager.register(OptionalLibraries())


def _resets() -> list[Callable[[], None]]:
    """What forgets the library's global state, from the lowest floor up."""
    return [_config.reset, state.reset, _leave_room]


def _leave_room() -> None:
    """Each test may compile as many right-hand sides as a new process; Numba never frees those of the tests before."""
    functions = sys.modules.get("hpfracc.solvers.ode.compiled.functions")
    if functions is not None:
        functions._MAX_COMPILED = _MAX_COMPILED + len(functions._read)


@pytest.fixture(scope="module", autouse=True)
def settled_heap() -> None:
    """Objects that are there by now are no longer looked at by the garbage collector.

    With PyTorch, JAX and Numba loaded there are millions of them; a full collection takes half a second, and tests of
    memory ask for many.
    """
    gc.freeze()


#: Tests of choosing, falling back and the contract's words: about arms on the host, wherever they run.
_HOST_ALONE = ("tests/engine/execution/", "tests/engine/review/", "tests/contract/")


@pytest.fixture(autouse=True)
def host_alone(request: pytest.FixtureRequest, fresh_state: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No GPU is seen by such a test unless it is marked ``gpu``."""
    if request.node.nodeid.startswith(_HOST_ALONE) and request.node.get_closest_marker("gpu") is None:
        with hide_gpus(monkeypatch):
            yield
    else:
        yield


@pytest.fixture
def rounding_as_on_arm() -> Iterator[None]:
    """Transforms round a row by the shape of its batch."""
    with rounding_by_shape():
        yield


@pytest.fixture(autouse=True)
def asked_rounding(request: pytest.FixtureRequest) -> Iterator[None]:
    """With ``--rounding-by-shape`` every test runs with :func:`rounding_by_shape`."""
    with rounding_by_shape() if request.config.getoption("--rounding-by-shape") else nullcontext():
        yield


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests were started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def wisdom_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names of folders that are not there: most tests keep no file, and making a folder for each takes a while."""
    base = tmp_path_factory.mktemp("wisdom")
    return (base / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def fresh_state(
    request: pytest.FixtureRequest, wisdom_folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """No ``HPFRACC_*`` variable of the user's reaches a test, and no test's state reaches the next."""
    for name in [name for name in os.environ if name.startswith("HPFRACC_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)  # several test processes at once are given a narrow terminal
    own = "tmp_path" in request.fixturenames
    wisdom = request.getfixturevalue("tmp_path") / "wisdom" if own else next(wisdom_folders)
    monkeypatch.setenv("HPFRACC_WISDOM", str(wisdom))
    resets = _resets()
    for reset in resets:
        reset()
    yield
    for reset in resets:
        reset()
    if "jax" in sys.modules:
        import jax

        if jax.config.jax_enable_x64 != _X64:
            jax.config.update("jax_enable_x64", _X64)
