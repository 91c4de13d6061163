"""Libraries whose import is under way, in another thread or in the parent of a forked child."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.helpers.source import REPOSITORY

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks"),
]

#: A stand-in for JAX whose import ends when it is told to, and has no attributes before.
SLOW_JAX = """
import os, time
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.01)
local_devices = lambda backend=None: ["host"] if backend == "cpu" else []
__version__ = "0.10.0"
"""

PROLOGUE = """
import os, signal, sys, threading, time
import numpy as np
import hpfracc as hf
from hpfracc.engine.backends import registry
signal.alarm(500)
x = np.ones(64)

def import_in_thread():
    thread = threading.Thread(target=lambda: __import__("jax"))
    thread.start()
    while "jax" not in sys.modules:
        time.sleep(0.001)
    return thread

def go():
    open(os.environ["GO"], "w").close()

def jax_row():
    rows = hf.explain(hf.causal_convolution, x, x).decision.candidates
    return next(row for row in rows if row.backend == "jax").refused
"""


def run(body: str, folder, slow_jax: bool = True) -> str:
    path = [str(REPOSITORY / "src"), str(REPOSITORY)]
    if slow_jax:
        (folder / "jax.py").write_text(SLOW_JAX)
        path.insert(0, str(folder))
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "GO": str(folder / "go"), "HPFRACC_WISDOM": "off"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_library_that_another_thread_is_importing_is_left_out_and_not_given_up(tmp_path) -> None:
    """While it is half imported calls go without it, and say why; once it is whole it is a candidate like any other."""
    out = run(
        """
        thread = import_in_thread()
        hf.causal_convolution(x, x)
        print(jax_row(), registry.unavailable("jax"), sep="|")
        go(); thread.join()
        print(jax_row(), registry.unavailable("jax"), sep="|")
        """,
        tmp_path,
    )
    assert out.splitlines() == ["its import is under way|None", "None|None"]


def test_a_forked_child_does_not_wait_for_an_import_of_its_parent(tmp_path) -> None:
    """It never ends there: automatic calls do without the library, and a call that requests it is refused in time."""
    out = run(
        """
        from hpfracc import _optional
        thread = import_in_thread()
        if os.fork() == 0:
            signal.alarm(400)
            _optional.CHILD_TIMEOUT = 0.3
            hf.causal_convolution(x, x)
            print(jax_row())
            try:
                hf.causal_convolution(x, x, backend="jax")
            except hf.errors.HpfraccError as error:
                print(type(error).__name__, "spawn" in str(error), flush=True)
            os._exit(0)
        _, status = os.wait()
        print(status)
        go(); thread.join()
        """,
        tmp_path,
    )
    refused, error, status = out.splitlines()
    assert "forked" in refused
    assert error == "ImportDelayedError True"
    assert status == "0"


def test_jax_in_a_forked_child_is_refused_only_if_it_was_running(tmp_path) -> None:
    """The child lacks its threads, and a call would hang. If it was only imported, it starts in the child."""
    pytest.importorskip("jax")
    out = run(
        """
        import warnings
        warnings.simplefilter("ignore")
        import jax

        def child(ask):
            if os.fork() == 0:
                signal.alarm(400)
                try:
                    print(type(hf.causal_convolution(*ask())).__name__, flush=True)
                except hf.errors.BackendUnavailableError as error:
                    print("refused" if "was running when this process was forked" in str(error) else error, flush=True)
                os._exit(0)
            print(os.wait()[1], flush=True)

        def asked():
            hf.config(pin={"causal_convolution": "jax"})
            return x, x

        child(asked)
        array = jax.numpy.ones(8)
        child(asked)
        child(lambda: (array, array))
        child(lambda: (x, x))
        """,
        tmp_path,
        slow_jax=False,
    )
    assert out.split() == ["ndarray", "0", "refused", "0", "refused", "0", "ndarray", "0"]
