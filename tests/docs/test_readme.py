"""The README works as a visitor finds it: without optional libraries, in pieces of ten lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.docs.test_code_blocks import find_blocks
from tests.helpers.source import REPOSITORY, SOURCE

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
#: What an installation without extras brings, as folders of ``site-packages``.
REQUIRED = ("numpy", "scipy", "psutil", "platformdirs", "rich", "pygments", "markdown_it", "mdurl")
SHOWN = [block for block in find_blocks(README) if block.language == "python"]


def test_pieces_are_short():
    """A line of words, and at most ten of code, for each of the five and for all."""
    shown = [block for block in SHOWN if "assert" not in block.text]
    assert len(shown) == 6
    assert [block.line for block in shown if len(block.text.splitlines()) > 10] == []
    assert README.count("](docs/pictures/") == 1


def test_it_runs_without_optional_libraries(tmp_path: Path):
    """With what the package requires and nothing else; the piece for machine learning says what it needs."""
    site = tmp_path / "site"
    site.mkdir()
    for name in REQUIRED:
        for found in Path(np.__file__).parents[1].glob(f"{name}*"):
            if found.name in (name, f"{name}.libs") or found.suffix == ".dist-info":
                (site / found.name).symlink_to(found)
    learning = next(place for place, block in enumerate(SHOWN) if "import torch" in block.text)
    blocks = [block.text for block in SHOWN[:learning] + SHOWN[learning + 2 :]]
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-S", str(script)], env={"PYTHONPATH": f"{SOURCE.parent}{os.pathsep}{site}"},
        capture_output=True, text=True, cwd=tmp_path, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "numpy:fft@cpu" in done.stdout
    assert "pip install '.[torch]'" in README.partition("import torch")[0]


@pytest.mark.parametrize("field", ["rheology", "control", "finance", "machine learning", "the engine"])
def test_there_is_a_piece_for_each(field: str):
    """Each of the five finds a heading."""
    assert f"\n## For {field}\n" in README
