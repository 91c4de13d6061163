"""``hpfracc info`` shows devices, backends, memory, wisdom and settings, without importing array libraries."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.cli import main
from hpfracc.cli.info import collect
from hpfracc.engine.execution.calibration import calibrate
from tests.helpers.source import SOURCE


def test_all_information_is_present():
    """Every backend has a version or a reason; memory is in bytes; wisdom and settings are present."""
    found = collect()
    assert {row["name"] for row in found["backends"]} == {"numpy", "numba", "torch", "jax", "cupy"}
    for row in found["backends"]:
        assert row["available"] == (row["why_not"] is None)
        assert row["version"] if row["available"] else row["why_not"]
    assert 0 < found["memory"]["host"]["free"] <= found["memory"]["host"]["limit"]
    assert len(found["memory"]["devices"]) == len(found["machine"]["gpus"])
    assert found["wisdom"]["state"] == "kept"
    assert found["settings"]["gpu_memory_limit"] == 0.8
    assert found["hpfracc"] == hf.__version__


def test_what_is_disabled_and_learned_shows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A disabled backend names the variable, the variable is listed, and the records are counted."""
    monkeypatch.setenv("HPFRACC_DISABLE_NUMBA", "1")
    hf._config.refresh_environment()
    report = calibrate(["bitwise_xor"], backends=["numpy"])
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    numba = next(row for row in found["backends"] if row["name"] == "numba")
    assert numba["why_not"] == "disabled by HPFRACC_DISABLE_NUMBA"
    assert found["environment"]["HPFRACC_DISABLE_NUMBA"] == "1"
    assert found["settings"]["disabled"] == ["numba"]
    assert found["wisdom"]["records"] == report.kept
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    for word in ("disabled by HPFRACC_DISABLE_NUMBA", f"{report.kept} (", "gpu_memory_limit", "processor"):
        assert word in text


def test_no_array_library_is_imported():
    """``hpfracc info`` does not import torch, jax, cupy or numba."""
    script = "import sys, hpfracc.cli as c; c.main(['info', '--json']); print(sorted(sys.modules), file=sys.stderr)"
    answer = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(SOURCE.parent), "HPFRACC_WISDOM": "off"},
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    assert "'numpy'" in answer.stderr
    for name in ("torch", "jax", "cupy", "numba"):
        assert f"'{name}'" not in answer.stderr


def test_versions_for_a_report(capsys: pytest.CaptureFixture[str]):
    """hpfracc, Python, every library with its version or its absence, and the devices."""
    hf.show_versions()
    text = capsys.readouterr().out
    assert f"hpfracc {hf.__version__}" in text
    assert f"Python {sys.version.split()[0]}" in text
    assert "processor" in text
    for name in ("numpy", "scipy", "torch", "pandas", "sklearn"):
        line = next(line for line in text.splitlines() if line.startswith(name))
        assert line.split()[1][0].isdigit() or line.rstrip().endswith("not installed")
    assert next(line for line in text.splitlines() if line.startswith("numpy")).rstrip().endswith(np.__version__)
