"""What the page of a public name shows beside its docstring: related names, and where it is used in an example.

Both come from what is written anyway. Related are the names of its ``See Also``, or those that its docstring mentions,
those whose docstrings mention it, and its neighbours in the section of the reference. Examples are pages whose code
uses it, and entries of names that mention it and have an example.
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
#: Folders of pages, those that explain a name first.
_FOLDERS = ("how-to", "tutorials", "gallery", "explanation", "migration", "reference")


class Related:
    """Relations between the entries of all pages of the reference."""

    def __init__(self, entries: Callable[[str], dict[str, str]], find: Callable[[str], Any]) -> None:
        """``entries(text)`` are the names that a text documents, and ``find(path)`` is the object of a name."""
        self._find = find
        self._sections: dict[str, list[str]] = {}
        for page in sorted((_DOCS / "reference").glob("*.md")):
            for part in re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
                found = list(entries(part))
                self._sections.update(dict.fromkeys(found, found))
        self._words = {path: _words(find(path)) for path in self._sections}

    @property
    def names(self) -> list[str]:
        """The paths of all entries."""
        return list(self._sections)

    def text(self, path: str) -> str:
        """The docstring."""
        return _text(self._find(path))

    def see_also(self, path: str) -> list[str]:
        """Entries that a reader of this one may want: those of its docstring, or those most closely related first."""
        home = path.rpartition(".")[0]
        listed = re.search(r"\nSee Also\n-+\n(.*?)(\n\n|$)", self.text(path), re.DOTALL)
        names = re.findall(r"[\w.]+", re.sub(r" : .*", "", listed[1])) if listed else []
        own = [other for name in names for other in (f"{home}.{name}", f"hpfracc.{name}", name)]
        section = self._sections[path]
        place = section.index(path)
        near = sorted(section, key=lambda other: abs(section.index(other) - place))
        found = dict.fromkeys(other for other in own if other in self._sections)
        if not found:
            found = dict.fromkeys((*self._mentioned(path), *self._mentioning(path), *near))
        return [other for other in found if other != path][:_MANY]

    def pages(self, path: str) -> list[str]:
        """The pages of the documentation whose code uses it, guides first."""
        return sorted(_pages(path), key=lambda page: _FOLDERS.index(page.split("/")[1]))[:_MANY]

    def links(self, source: str) -> str:
        """A line for a script: guides with the names that it uses, rare ones first, and these names; in Markdown."""
        used = sorted(_names(source) & self._sections.keys())
        guides: dict[str, float] = {}
        for path in used:
            near = [page for page in _pages(path) if page.startswith(("/how-to/", "/tutorials/"))]
            for page in near:
                guides[page] = guides.get(page, 0.0) + 1.0 / len(near)
        best = sorted(guides, key=lambda page: -guides[page])[:_FEW]
        parts = [("See", [f"{{doc}}`{page}`" for page in best])]
        parts.append(("Uses", [f"{{py:obj}}`hf{path.removeprefix('hpfracc')} <{path}>`" for path in used]))
        return " ".join(f"{word} {', '.join(found)}." for word, found in parts if found)

    def block(self, path: str) -> str:
        """The shortest piece of code of those pages that uses it."""
        short = path.rpartition(".")[2]
        blocks = [block for page in _pages(path) for block in _blocks(page) if re.search(rf"\b{short}\b", block)]
        return min(blocks, key=len, default="")

    def examples(self, path: str) -> list[str]:
        """Where it is used: ``/page`` of the documentation, or the path of an entry that has an example."""
        around = dict.fromkeys((*self._mentioning(path), *self._mentioned(path)))
        others = [other for other in around if ">>>" in self.text(other) or _pages(other)]
        return [*_pages(path), *others][:_FEW]

    @staticmethod
    def link(target: str) -> str:
        """A link to a page of the documentation, or to the page of an entry, in reStructuredText."""
        if target.startswith("/"):
            return f":doc:`{target}`"
        return f":py:obj:`hf{target.removeprefix('hpfracc')} <{target}>`"

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


def _pages(path: str) -> list[str]:
    """The pages whose code uses a name."""
    return [page for page, used in _used().items() if path in used]


def _blocks(page: str) -> list[str]:
    """The pieces of code of a page that readers see."""
    if page.startswith("/gallery/"):
        return []
    text = (_DOCS / f"{page[1:]}.md").read_text(encoding="utf-8")
    return _CODE.findall(re.sub(r"^<!-- .*?-->$", "", text, flags=re.MULTILINE | re.DOTALL))


@cache
def _used() -> dict[str, set[str]]:
    """The public names that the code of each page and of each script of the gallery uses."""
    pages = {
        f"/{path.relative_to(_DOCS).with_suffix('')}": "\n".join(_CODE.findall(path.read_text(encoding="utf-8")))
        for folder in _FOLDERS
        if folder != "gallery"
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
