"""What follows from the home of the project, ``docs/home.toml``: addresses, links to sources, the packaged README."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

__all__ = ["packaged_readme", "read_home", "source_of", "urls"]

_ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"(!?)\[([^\[\]]+)\]\((?!https?://|#)([^)]+)\)")


def read_home() -> dict[str, str]:
    """The addresses of ``home.toml``, without a slash at the end."""
    read = tomllib.loads(Path(__file__).with_name("home.toml").read_text(encoding="utf-8"))
    return {name: address.rstrip("/") for name, address in read.items()}


def urls(home: dict[str, str]) -> dict[str, str]:
    """``[project.urls]``; empty without a home."""
    source, documentation = home["home"], home["documentation"]
    found = {"Homepage": documentation or source, "Documentation": documentation, "Source": source}
    if source:
        found |= {"Issues": f"{source}/issues", "Changelog": f"{source}/blob/main/CHANGELOG.md"}
    return {name: address for name, address in found.items() if address}


def source_of(value: Any, home: dict[str, str]) -> str:
    """Where the source of a class or function can be read; empty without a home, and for values without a source."""
    value = inspect.unwrap(value) if callable(value) else value
    if not home["home"] or not (inspect.isclass(value) or inspect.isfunction(value)):
        return ""
    file = Path(inspect.getsourcefile(value) or "").resolve()
    if not file.is_relative_to(_ROOT):
        return ""
    return f"{home['home']}/blob/main/{file.relative_to(_ROOT)}#L{inspect.getsourcelines(value)[1]}"


def packaged_readme(text: str, home: dict[str, str]) -> str:
    """The README as a package index shows it, where relative links lead nowhere.

    With a home, links and pictures are absolute. Without one the words of links stay, and pictures go.
    """
    text = re.sub(r"^<!--.*?-->\n", "", text, flags=re.MULTILINE | re.DOTALL)
    source = home["home"]
    if source:
        kind = {"": "blob", "!": "raw"}
        return _LINK.sub(lambda found: f"{found[1]}[{found[2]}]({source}/{kind[found[1]]}/main/{found[3]})", text)
    text = re.sub(r"^!\[[^\]]*\]\([^)]*\)\n+|^\| !\[.*?\n\n", "", text, flags=re.MULTILINE | re.DOTALL)
    return _LINK.sub(lambda found: found[2], text)
