"""Writes a page of the reference for each public name, when the site is built.

The names are those that the pages of ``docs/reference`` list. A page begins with an example; its parameters stand in
groups, and those that a docstring describes by reference ("As for :class:`Caputo`") are copied from there. The pages
are in a folder beside that of their subject, ``docs/reference/SUBJECT/``, which is not part of the repository.
"""

from __future__ import annotations

import inspect
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import hpfracc

__all__ = ["Entry", "find_entries", "group_options", "page_of", "shorten", "write_pages"]

#: Options of long lists that few calls need, by what they are for; all others come first.
OPTIONS = {
    "Accuracy": (
        "rtol", "atol", "factor", "noise", "estimate", "ceiling", "initial", "max_step", "first_step", "max_steps",
        "breakpoints", "halve", "max_evaluations", "penalty", "noise_step", "exploration_budget", "precision",
    ),
    "Performance": (
        "backend", "compile", "dtype", "device", "jac", "jac_sparsity", "jac_parameters", "workers", "processes",
        "batch", "batched", "batch_size", "budget", "resources", "executor", "foreach", "adjoint", "save", "keep",
        "gpu_memory_limit", "performance_threshold", "enable_learning", "wisdom", "memory",
    ),
    "Rarely needed": (
        "dim", "time_unit", "side", "period", "normalisation", "inverse", "psi", "rate", "derivative", "dy0", "history",
        "delays", "interpretation", "correlation", "key", "first_path", "progress", "loss", "f_scale", "absolute_sigma",
        "store", "version", "retries", "timeout", "on_error", "before", "at", "form", "mass", "maximize", "config",
        "channel_axis", "observe", "terms", "max_sensitivity", "min_phase_margin", "max_control", "starts", "start",
        "args", "dense_output", "events", "t0", "du0", "antithetic", "factors", "pin", "never", "allow_slow",
    ),
}  # fmt: skip
#: Lists of at most so many parameters stay as they are; a reference with more words than that is a description.
_SHORT, _WORDS = 8, 12
#: A section of a docstring: its title, underlined.
_TITLE = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_LIKE = re.compile(r"(.*?)\b[Aa]s (?:for|in) :\w+:`~?([\w.]+)`[,;.]?(.*)$", re.DOTALL)
_TYPE = re.compile(r"(?<![\w.`\"])[A-Z]\w+(?![\w`\"])")
#: The parameters of an entry are a level in.
_INDENT = "    "


class Entry(NamedTuple):
    """A public name with a page: its path, the members that the page has, its subject and the name of its file."""

    path: str
    members: str
    subject: str
    file: str

    @property
    def shown(self) -> str:
        """The name as users write it."""
        return f"hf{self.path.removeprefix('hpfracc')}"


def find_entries(folder: Path, entries: Callable[[str], dict[str, str]], find: Callable[[str], Any]) -> list[Entry]:
    """The names of all pages in ``folder``, in order; files differ also where case does not count."""
    found = []
    for page in sorted(folder.glob("*.md")):
        listed = entries(page.read_text(encoding="utf-8"))
        files: dict[str, str] = {}
        for path in sorted(listed, key=lambda path: inspect.isclass(find(path))):  # functions have their plain name
            name = path.rpartition(".")[2]
            choices = (name, f"{name}-class", path.removeprefix("hpfracc.").replace(".", "-"))
            taken = {file.lower() for file in files.values()}
            files[path] = next(each for each in choices if each.lower() not in taken)
        found += [Entry(path, members, page.stem, files[path]) for path, members in listed.items()]
    return found


def write_pages(folder: Path, pages: Iterable[tuple[Entry, str]]) -> None:
    """Write the pages that have changed, and remove those that are no more."""
    kept = set[Path]()
    for entry, text in pages:
        path = folder / entry.subject / f"{entry.file}.md"
        kept.add(path)
        path.parent.mkdir(exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.glob("*/*.md"):
        if path not in kept:
            path.unlink()
    for place in folder.iterdir():
        if place.is_dir() and not any(place.iterdir()):
            shutil.rmtree(place)


def page_of(entry: Entry, value: Any, related: Any, details: Iterable[str], source: str) -> str:
    """The page of a name: what it is, an example, ``details``, its documentation, and what is related."""
    text = inspect.getdoc(value) or ""
    kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
    members = f"   :members: {entry.members}".replace(" *", "") if entry.members else "   :no-members:"
    parts = [f"# {entry.shown}", _rst(_lead(text)[0])]
    example = dict(_sections(text)).get("Examples", "")
    if not example and isinstance(getattr(value, "definition", None), str):  # an operator: that of its function
        example = dict(_sections(inspect.getdoc(getattr(hpfracc, value.definition, None)) or "")).get("Examples", "")
    uses = related.pages(entry.path)
    if example:
        parts.append(_rst(".. rubric:: Example", "", example))
    elif block := related.block(entry.path):
        parts.append(_rst(".. rubric:: Example", "", ".. code-block:: python", "", textwrap.indent(block, "   ")))
    else:
        uses = related.examples(entry.path)
    parts += details
    parts.append(_rst(f".. auto{kind}:: {entry.path}" + (f"\n{members}" if kind == "class" else "")))
    near = (f"- {related.link(each)}: {_lead(related.text(each))[0]}" for each in related.see_also(entry.path))
    parts += ["## Related", _rst(*near)]
    if uses:
        parts.append(_rst(f"Used in {', '.join(map(related.link, uses))}."))
    if source:
        parts.append(f"[Source]({source})")
    return "\n\n".join(parts) + "\n"


def _rst(*lines: str) -> str:
    body = "\n".join(lines)
    return f"`````{{eval-rst}}\n{body}\n`````"


def _lead(text: str) -> tuple[str, str]:
    """The summary of a docstring on one line, and all that follows."""
    first, _, rest = text.partition("\n\n")
    return " ".join(first.split()), rest


def _sections(text: str) -> list[tuple[str, str]]:
    """The sections of a docstring; the first has no title."""
    parts = _TITLE.split(text)
    return list(zip(["", *parts[1::2]], (part.strip("\n") for part in parts[::2]), strict=True))


def _joined(sections: Iterable[tuple[str, str]]) -> str:
    return "\n\n".join(f"{title}\n{'-' * len(title)}\n{body}" if title else body for title, body in sections if body)


def _fields(body: str) -> list[tuple[str, str]]:
    """Parameters: the line with names and type, and the description."""
    found = []
    for part in re.split(r"^(?=\S)", body, flags=re.MULTILINE)[1:]:
        head, _, rest = part.partition("\n")
        found.append((head, inspect.cleandoc(rest)))
    return found


def _names(head: str) -> list[str]:
    return [name.strip() for name in head.partition(" : ")[0].split(",")]


def shorten(text: str, entry: bool) -> str:
    """The docstring of an entry without what its page has elsewhere: the summary, the example, related names."""
    if not entry:
        return text
    left = [(title, body) for title, body in _sections(text) if title not in ("Examples", "See Also")]
    left[0] = ("", _lead(left[0][1])[1])
    return _joined(left)


def describe(text: str, value: Any, find: Callable[[str], Any], classes: dict[str, str]) -> str:
    """The docstring with every parameter described where it stands, in groups, and with links of types."""
    sections = []
    for title, body in _sections(text):
        if title in ("Parameters", "Other Parameters"):
            fields = [(_linked(head, classes), words) for head, words in _expanded(_fields(body), value, find, classes)]
            sections += group_options(title, fields)
        elif title in ("Returns", "Yields", "Attributes"):
            lines = (_written(_linked(head, classes), words) for head, words in _fields(body))
            sections.append((title, "\n".join(lines)))
        else:
            sections.append((title, body))
    return _joined(sections)


def group_options(title: str, fields: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The section of a list of parameters; of a long one, a section for each group of options."""
    if sum(len(_names(head)) for head, _ in fields) <= _SHORT:
        yield title, "\n".join(_written(*field) for field in fields)
        return
    groups: dict[str, list[str]] = {title: [], **{name: [] for name in OPTIONS}}
    for head, words in fields:
        first = _names(head)[0].lstrip("*")
        groups[next((name for name, options in OPTIONS.items() if first in options), title)].append(
            _written(head, words)
        )
    for name, written in groups.items():
        yield name, "\n".join(written)


def _written(head: str, words: str) -> str:
    return "\n".join((head, *(f"{_INDENT}{line}".rstrip() for line in words.splitlines())))


def _linked(head: str, classes: dict[str, str]) -> str:
    """A line of a parameter or result, with links for the classes that its type names."""
    names, colon, kind = head.rpartition(" : ")
    if "`" in kind:
        return head
    return f"{names}{colon}" + _TYPE.sub(
        lambda found: f":py:class:`{found[0]} <{classes[found[0]]}>`" if found[0] in classes else found[0], kind
    )


def _expanded(
    fields: list[tuple[str, str]], value: Any, find: Callable[[str], Any], classes: dict[str, str], depth: int = 3
) -> list[tuple[str, str]]:
    """The parameters, those that are described by reference to another object copied from there."""
    found: list[tuple[str, str]] = []
    for head, words in fields:
        like = _LIKE.match(words)
        other = _resolve(like[2], value, find, classes) if like and depth else None
        if like is None or other is None:
            found.append((head, words))
            continue
        before, after = like[1].strip(), " ".join(like[3].split())
        there = dict(_sections(inspect.getdoc(other) or "")).get("Parameters", "")
        fields_there = _expanded(_fields(there), other, find, classes, depth - 1)
        known = {name: field for field in fields_there for name in _names(field[0])}
        listed = re.findall(r"``(\w+)``", before)
        wanted = listed if head.startswith("**") else _names(head)
        plain = head.startswith("**") or len(before.split()) < _SHORT
        if not plain or len(after.split()) > _WORDS or not wanted or not all(name in known for name in wanted):
            found.append((head, words))
            continue
        copied = list(dict.fromkeys(known[name] for name in wanted))
        if before.endswith(":"):
            copied[0] = (copied[0][0], f"{before} {copied[0][1]}")
        if after:
            copied[-1] = (copied[-1][0], f"{copied[-1][1]} Here {after}")
        found += copied
    return found


def _resolve(name: str, value: Any, find: Callable[[str], Any], classes: dict[str, str]) -> Any:
    """The object that a docstring of ``value`` calls ``name``, or None."""
    module = getattr(value, "__module__", "hpfracc")
    owner = f"{module}.{getattr(value, '__qualname__', '').rpartition('.')[0]}".rstrip(".")
    for home in (owner, module, "hpfracc", ""):
        try:
            return _attribute(f"{home}.{name}".lstrip("."), find)
        except (AttributeError, ImportError, ValueError):
            continue
    return find(classes[name]) if name in classes else None


@cache
def _attribute(path: str, find: Callable[[str], Any]) -> Any:
    """An object, the member of a class too."""
    parts = path.split(".")
    for place in range(len(parts), 0, -1):
        if (module := sys.modules.get(".".join(parts[:place]))) is not None:
            value = module
            for name in parts[place:]:
                value = getattr(value, name)
            return value
    return find(path)
