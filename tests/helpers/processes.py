"""Start another Python that finds the library where this one does."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from tests.helpers.source import SOURCE


def start_python(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start ``python -c code arguments...``; options go to :class:`subprocess.Popen`."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent), **options.pop("env", {})}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, text=True, **options)


def run_python(code: str, *arguments: object, timeout: float = 500.0, **options: Any) -> str:
    """The output of ``python -c code arguments...``, which must end well."""
    with start_python(code, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        output, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, f"ended with {process.returncode}:\n{errors}"
    return output
