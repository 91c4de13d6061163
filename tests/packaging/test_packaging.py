"""Lower bounds and the checks of built files."""

from __future__ import annotations

import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.helpers.source import REPOSITORY
from tests.packaging import check, exercise
from tests.packaging.lowest import lowest


def test_every_library_has_a_lower_bound():
    """Bounds are read from ``pyproject.toml``, and a requirement without one is an error."""
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert lowest(text).items() >= {"numpy": "2.0", "jax": "0.8"}.items()
    with pytest.raises(ValueError, match="'scipy' has no lower bound"):
        lowest('[project]\ndependencies = ["scipy"]\noptional-dependencies = {}')


def test_a_visitor_s_first_calls_are_right(capsys: pytest.CaptureFixture[str]):
    """The script that tries an installed wheel passes here, and refuses a wrong number."""
    exercise.main()
    assert "every result is right" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="not within"):
        exercise.close(1.0, 1.1, 0.01)


def test_incomplete_files_are_reported(tmp_path: Path):
    """A wheel without its data, with a relative link, and an sdist without its licence are reported."""
    with zipfile.ZipFile(tmp_path / "hpfracc-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("hpfracc-1.dist-info/METADATA", "Name: hpfracc\n\n[a link](docs/index.md)\n```python\n```\n")
        wheel.writestr("hpfracc/py.typed", "")
    with tarfile.open(tmp_path / "hpfracc-1.tar.gz", "w:gz"):
        pass
    found = check.problems(tmp_path)
    assert "the wheel lacks hpfracc/__init__.pyi" in found and "the sdist lacks LICENSE" in found
    assert "the page on a package index has the relative link docs/index.md" in found


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_all_extras_leave_cuda_out_where_it_has_no_wheels(platform: str):
    """Markers, as an installer reads them."""
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]

    def libraries(extra: str, system: str) -> set[str]:
        asked = [Requirement(each) for each in extras[extra]]
        used = [each for each in asked if each.marker is None or each.marker.evaluate({"sys_platform": system})]
        inner = [libraries(name, system) for each in used if each.name == "hpfracc" for name in each.extras]
        return {each.name for each in used if each.name != "hpfracc"}.union(*inner)

    assert libraries("all", "linux") - libraries("all", platform) == {"cupy-cuda13x", "nvidia-ml-py"}
    assert {"torch", "jax", "numba"} <= libraries("all", platform)
