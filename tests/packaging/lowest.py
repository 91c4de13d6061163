"""Prints the lowest version of every library that ``pyproject.toml`` allows, as constraints for pip."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_REQUIREMENT = re.compile(r"^(?P<name>[\w.-]+)(\[[\w,-]+\])?>=(?P<version>[\w.]+)")


def lowest(pyproject: str) -> dict[str, str]:
    """The lower bound of each library, of the package itself and of its extras for users."""
    project = tomllib.loads(pyproject)["project"]
    extras = project["optional-dependencies"]
    wanted = list(project["dependencies"])
    for name in extras:
        if name not in ("test", "test-bare", "dev", "docs"):  # tools of ours, in the versions of constraints.txt
            wanted += extras[name]
    found = {}
    for each in wanted:
        if each.startswith("hpfracc["):
            continue
        match = _REQUIREMENT.match(each)
        if match is None and not each.startswith("numpy<"):
            raise ValueError(f"{each!r} has no lower bound")
        if match is not None:
            found[match["name"]] = match["version"]
    return found


if __name__ == "__main__":
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    print("\n".join(f"{name}=={version}" for name, version in lowest(text).items()))
