"""Functions that the tests send to workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import hpfracc as hf
from hpfracc._config import get_settings


class Calls(list[float]):
    """A list that a function may grow and still be the same function: it says itself what is stored of it."""

    def __reduce__(self) -> Any:
        return Calls, ()


#: Calls made in this process.
CALLS = Calls()


def relax(alpha: float, rate: float) -> float:
    """The end of a relaxation, D^alpha y = -rate y, by product integration."""
    return float(hf.solve_fode(lambda t, y: -rate * y, (0.0, 1.0), [1.0], alpha, step=0.05).y[0, -1])


@hf.distributed.stacked
def relax_stack(alpha: np.ndarray, rate: np.ndarray) -> np.ndarray:
    if np.any(rate < 0.0):
        raise ValueError(f"rate {rate.min()} below 0")
    fall = rate[:, None]
    y0 = np.ones((len(alpha), 1))
    return hf.solve_fode(lambda t, y: -fall * y, (0.0, 1.0), y0, alpha[:, None], step=0.05).y[:, 0, -1]


def square(x: float) -> float:
    return x * x


def draw(x: float, rng: np.random.Generator) -> Any:
    return x + rng.standard_normal(3)


def refuse_seven(x: float) -> float:
    if x == 7.0:
        raise ValueError("seven")
    return x


class StubbornError(Exception):
    """An exception that cannot be rebuilt from its arguments."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def stubborn(x: float) -> float:
    raise StubbornError(3, "gone")


def end_worker(x: float) -> float:
    """Item 5 ends its worker, item 7 raises."""
    if x == 5.0:
        os.kill(os.getpid(), signal.SIGKILL)
    return refuse_seven(x)


def misbehave(x: float, folder: str) -> float:
    """Item 3 ends its worker at the first attempt, item 5 at each; item 7 raises; item 9 hangs."""
    mark = Path(folder) / "ended"
    if x == 3.0 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    shorten_grace(0.2)
    stuck(x - 8.0)
    return end_worker(x) * 0.1


def wait_long(x: float) -> float:
    if x == 1.0:
        while True:
            time.sleep(0.01)
    return x


def stuck(x: float) -> float:
    """Item 1 answers no timer for an hour, as a library call that does not return."""
    if x == 1.0:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        time.sleep(3600.0)
    return x


def shorten_grace(seconds: float) -> None:
    """How long a call of this process may ignore its time limit before the process is ended."""
    from hpfracc.distributed import tasks

    tasks._GRACE = seconds


def stuck_soon(x: float) -> float:
    shorten_grace(0.2)
    return stuck(x)


def seen_by_engine(x: float) -> dict[str, Any]:
    """What the engine in a worker believes of the machine and of the settings."""
    from hpfracc._config import current_backend
    from hpfracc.engine.memory.budget import get_budget
    from hpfracc.engine.workers import available_cores

    return {
        "cores": available_cores(),
        "free": get_budget().read("cpu"),
        "deterministic": get_settings().deterministic,
        "numpy": current_backend() == "numpy",
    }


def convolve_often(x: float) -> float:
    """Calls that the engine can learn from."""
    for _ in range(20):
        found = hf.causal_convolution(np.ones(2048), np.full(2048, x))
    return float(found[-1])


def known_ids() -> set[str]:
    """Ids of the records that the engine of a worker knows."""
    from hpfracc.engine.selection.knowledge import knowledge_for

    return {each.id for each in knowledge_for(get_settings()).wisdom.load()}


def nested(x: float) -> float:
    return float(hf.sweep(square, hf.grid(x=[x]), executor="tcp://127.0.0.1:1").values[0])


class Deadly:
    """Records of measurements, at whose reading the first worker of all dies."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return die_once, (self.path,)


def die_once(path: Path) -> list[Any]:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return []
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def sleep_long(folder: str, x: float) -> float:
    """Leave the id of the process, and wait."""
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(600.0)
    return x
