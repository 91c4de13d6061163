"""Lower bounds and the checks of built files."""

from __future__ import annotations

import re
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

from tests.docs.test_generate import load
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


README = """\
# hpfracc

![A curve](docs/pictures/curve.png)

See [first steps](docs/tutorials/first-steps.md), [the web](https://example.org) and [below](#more).

<!-- from: FILE: 1 -->

| ![One](docs/one.png) | ![Two](docs/two.png) |
| --- | --- |
| [one](examples/one.py) | [two](examples/two.py) |

The end.
"""


@pytest.fixture
def home() -> ModuleType:
    return load("_home")


def test_without_a_home_no_link_is_dead(home: ModuleType):
    """Words of links stay, pictures and their captions go, and there are no addresses."""
    nowhere = {"home": "", "documentation": ""}
    text = home.packaged_readme(README, nowhere)
    assert text == ("# hpfracc\n\nSee first steps, [the web](https://example.org) and [below](#more).\n\n\nThe end.\n")
    assert home.urls(nowhere) == {}
    assert home.source_of(lowest, nowhere) == ""


def test_with_a_home_every_link_is_absolute(home: ModuleType):
    """Links, pictures, sources and addresses are below it."""
    there = {"home": "https://example.org/hpfracc", "documentation": ""}
    text = home.packaged_readme(README, there)
    assert "[first steps](https://example.org/hpfracc/blob/main/docs/tutorials/first-steps.md)" in text
    assert "| ![One](https://example.org/hpfracc/raw/main/docs/one.png) |" in text
    assert "[the web](https://example.org) and [below](#more)" in text
    assert home.urls(there)["Issues"] == "https://example.org/hpfracc/issues"
    assert re.fullmatch(
        r"https://example.org/hpfracc/blob/main/tests/packaging/lowest.py#L\d+", home.source_of(lowest, there)
    )
    assert home.source_of(len, there) == home.source_of(3, there) == ""


def test_the_packaged_readme_has_no_dead_link_and_no_orphaned_words(home: ModuleType):
    """That of the project, with the home that it has, and as if it had none."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    for addresses in (home.read_home(), {"home": "", "documentation": ""}):
        text = re.sub(r"^```.*?^```$", "", home.packaged_readme(readme, addresses), flags=re.MULTILINE | re.DOTALL)
        assert all(target.startswith(("https://", "#")) for target in re.findall(r"\]\(([^)]*)\)", text))
        assert "<!--" not in text and "![" not in text.replace("](https://", "")
        rules = re.sub(r"^[|\s-]+$", "", text, flags=re.MULTILINE)
        assert [line for line in rules.splitlines() if line.strip() and not re.search(r"\w", line)] == []


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


def test_the_changelog_is_short():
    """At most 40 lines a version and 20,000 characters: what a user must know, and no more."""
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(text) <= 20_000
    lengths = {
        version.partition("\n")[0]: sum(bool(line.strip()) for line in version.splitlines())
        for version in text.split("\n## ")[1:]
    }
    assert {version: length for version, length in lengths.items() if length > 40} == {}


def test_versions_of_python_and_pins_of_actions_agree():
    """A version that is named is tried by a workflow; what a workflow uses is a commit, with its tag beside it."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {each.rpartition(" ")[2] for each in project["classifiers"] if re.search(r":: 3\.\d+$", each)}
    workflows = [file.read_text(encoding="utf-8") for file in (REPOSITORY / ".github/workflows").glob("*.yml")]
    assert named == {version for text in workflows for version in re.findall(r'"(3\.\d+)"', text)}
    used = [line for text in workflows for line in re.findall(r"uses: (.*)", text)]
    assert [line for line in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []
