"""What the entry of a public name shows beside its docstring: related names, and where it is used in an example.

Both come from what is written anyway. Related are the names that its docstring mentions, those whose docstrings mention
it, and its neighbours in the section of the reference. Examples are pages whose code uses it, and entries of names that
mention it and have an example. A docstring with a ``See Also`` or an ``Examples`` section of its own is left as it is.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Related"]

_DOCS = Path(__file__).parent
_GALLERY = _DOCS.parent / "examples" / "gallery"
_CODE = re.compile(r"^ *```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"^ *from (hpfracc[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
#: At most so many related names and examples.
_MANY, _FEW = 6, 3


class Related:
    """Relations between the entries of all pages of the reference."""

    def __init__(self, entries: Callable[[str], dict[str, str]], find: Callable[[str], Any]) -> None:
        """``entries(text)`` are the names that a text documents, and ``find(path)`` is the object of a name."""
        self._find = find
        self._sections: dict[str, list[str]] = {}
        self._pages: dict[str, str] = {}
        for page in sorted((_DOCS / "reference").glob("*.md")):
            for part in re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
                found = list(entries(part))
                self._sections.update(dict.fromkeys(found, found))
                self._pages.update(dict.fromkeys(found, f"/reference/{page.stem}"))
        self._words = {path: _words(find(path)) for path in self._sections}

    @property
    def names(self) -> list[str]:
        """The paths of all entries."""
        return list(self._sections)

    def text(self, path: str) -> str:
        """The docstring."""
        return _text(self._find(path))

    def see_also(self, path: str) -> list[str]:
        """Entries that a reader of this one may want, most closely related first."""
        section = self._sections[path]
        place = section.index(path)
        near = sorted(section, key=lambda other: abs(section.index(other) - place))
        found = dict.fromkeys((*self._mentioned(path), *self._mentioning(path), *near))
        return [other for other in found if other != path][:_MANY]

    def examples(self, path: str) -> list[str]:
        """Where it is used: ``/page`` of the documentation, or the path of an entry that has an example."""
        around = dict.fromkeys((*self._mentioning(path), *self._mentioned(path)))
        others = [other for other in around if ">>>" in self.text(other) or _pages(other)]
        return [*_pages(path), *others][:_FEW]

    def lines(self, path: str) -> list[str]:
        """What is added to a docstring, in reStructuredText."""
        if path not in self._sections:
            return []
        text, added = self.text(path), []
        if "\nSee Also\n" not in text:
            added += ["", f".. seealso:: {', '.join(map(_link, self.see_also(path)))}"]
        if ">>>" not in text:
            here = self._pages[path]
            links = ["above, on this page" if each == here else _link(each) for each in self.examples(path)]
            added += ["", f"**Examples:** {', '.join(links)}"]
        return [*added, ""]

    def _mentioned(self, path: str) -> list[str]:
        """Entries of the same module, or of hpfracc, that the docstring of this one mentions."""
        home = path.rpartition(".")[0]
        targets = re.findall(r":\w+:`~?([\w.]+)`", self.text(path))
        found = [other for target in targets for other in (target, f"{home}.{target}", f"hpfracc.{target}")]
        return [other for other in found if other in self._sections and other != path]

    def _mentioning(self, path: str) -> list[str]:
        """Entries of the same module, or of hpfracc, that mention this one; only for names that are no other word."""
        home, _, name = path.rpartition(".")
        if not re.search("[a-z][A-Z]", name) and not inspect.isclass(self._find(path)):
            return []
        return [
            other
            for other, words in self._words.items()
            if name in words and other != path and other.rpartition(".")[0] in (home, "hpfracc")
        ]


def _words(value: Any) -> set[str]:
    """Names of classes in the annotations of a function, or of the methods of a class, and in its docstring."""
    members = [value, *(each for name, each in vars(value).items() if name[0] != "_")] if inspect.isclass(value) else []
    functions = [getattr(each, "fget", None) or getattr(each, "__func__", each) for each in members or [value]]
    types = " ".join(str(each) for function in functions for each in getattr(function, "__annotations__", {}).values())
    return set(re.findall(r"\w+", types)) | set(re.findall(r"[A-Z]+[a-z]+[A-Z]\w*|(?<=`)\w+", _text(value)))


def _text(value: Any) -> str:
    return inspect.getdoc(value) or ""


def _link(target: str) -> str:
    if target.startswith("/"):
        return f":doc:`{target}`"
    return f":py:obj:`hf{target.removeprefix('hpfracc')} <{target}>`"


def _pages(path: str) -> list[str]:
    """The pages whose code uses a name."""
    return [page for page, used in _used().items() if path in used]


@cache
def _used() -> dict[str, set[str]]:
    """The public names that the code of each page and of each script of the gallery uses."""
    pages = {
        f"/{path.relative_to(_DOCS).with_suffix('')}": "\n".join(_CODE.findall(path.read_text(encoding="utf-8")))
        for folder in ("tutorials", "how-to", "explanation", "reference")
        for path in sorted((_DOCS / folder).glob("*.md"))
    }
    scripts = {f"/gallery/{path.stem}": path.read_text(encoding="utf-8") for path in sorted(_GALLERY.glob("*.py"))}
    return {page: _names(code) for page, code in (pages | scripts).items()}


def _names(code: str) -> set[str]:
    """Full paths of the names of hpfracc in a piece of code, through its imports."""
    known = {"hf": "hpfracc", "hpfracc": "hpfracc"}
    for module, names in _IMPORT.findall(code):
        for each in re.findall(r"(\w+)(?: as (\w+))?", names.partition("#")[0]):
            known[each[1] or each[0]] = f"{module}.{each[0]}"
    found = set()
    for chain in re.findall(r"(?<![\w.])[A-Za-z_]\w*(?:\.\w+)*", code):
        first, *rest = chain.split(".")
        if first in known:
            whole = [known[first], *rest]
            found |= {".".join(whole[:count]) for count in range(1, len(whole) + 1)}
    return found
