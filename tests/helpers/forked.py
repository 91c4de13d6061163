"""Run a piece of a test in a forked child."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable


def run_in_child(function: Callable[[], object], *, expect: int = 0, timeout: int = 500) -> None:
    """Call ``function`` in a child and wait; fail unless it ends with exit status ``expect``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn where threads run
        pid = os.fork()
    if pid == 0:
        status = 99
        try:
            signal.alarm(timeout)  # a child that never gets a lock must not hang the tests
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code == expect, f"the child ended with {code}, not {expect}"
