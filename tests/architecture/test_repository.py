"""One version everywhere, and types beside the package."""

from __future__ import annotations

import re

import pytest
from packaging.version import Version

import hpfracc
from tests.helpers.source import REPOSITORY, SOURCE


@pytest.mark.parametrize(
    ("file", "pattern"),
    [("CITATION.cff", r"^version: (\S+)$"), ("recipe/recipe.yaml", r'^  version: "(\S+)"$')],
)
def test_the_version_is_that_of_the_newest_release(file: str, pattern: str):
    """The citation and the recipe name the newest release of the changelog."""
    found = re.search(pattern, (REPOSITORY / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    assert found.group(1) == newest_release()


def newest_release() -> str:
    found = re.search(r"^## \[(\d+\.\d+\.\d+)\]", (REPOSITORY / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def test_changes_since_the_release_have_a_development_version():
    """Where ``[Unreleased]`` has lines, what is here is no release: its version says so, and sorts after it."""
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    changes = text.partition("## [Unreleased]")[2].partition("\n## [")[0].strip()
    version = Version(hpfracc.__version__)
    assert version.is_devrelease == bool(changes)
    assert version.base_version > newest_release() if changes else str(version) == newest_release()


def test_the_package_says_it_is_typed():
    """``py.typed`` lies beside the package, so that a user's type checker reads its annotations."""
    assert (SOURCE / "py.typed").is_file()
