"""Generates the parts of the reference that come from the code.

A part stands in a page between ``<!-- generated: NAME -->`` and ``<!-- end of NAME -->``. ``python docs/_generate.py``
writes all of them, a test checks that they are up to date, and Sphinx generates them again, with their drawings. So a
kernel, an operation or a command-line option is declared once, in the code.

``<!-- entries: MODULE`` with a name on each line, up to ``-->``, is filled only in the built pages. It stands for a
table of these names (``Name: one, two`` with those members, ``Name: *`` with all), or of all public names of the module
if there are none, each of which has a page (``_pages.py``). ``<!-- pages: ...`` is the same without the table.
``name()`` stands for the public classes that this function lists.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import mock

import hpfracc
from hpfracc import cli
from hpfracc._config import BACKENDS
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import KernelSpec
from hpfracc.engine.numerics.expression import FUNCTIONS
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.primitives.base import INEXACT, INTEGERS, Primitive
from hpfracc.profiling.document import read_schema
from hpfracc.solvers import ode
from hpfracc.solvers.ode import Method, all_methods

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["GENERATED", "document", "entries", "fill", "related", "setup"]

_PLACE = re.compile(r"^<!-- generated: (\w+) -->\n.*?^<!-- end of \1 -->$", re.MULTILINE | re.DOTALL)
#: Placeholders of entries: the module, and the lines with names.
_ENTRIES = re.compile(r"^<!-- (entries|pages): ([\w.]+)\n?(.*?) ?-->$", re.MULTILINE | re.DOTALL)
_REFERENCE = Path(__file__).parent / "reference"

#: Groups of dtypes with a short name, which the page explains.
_GROUPS = {"floating": INEXACT, "integer": INTEGERS, "floating, integer": INEXACT | INTEGERS}
#: How often a kernel is compiled, in words.
_COMPILES = {"never": "-", "signature": "per signature", "shape": "per shape"}
#: Options that every command has, and the width of the usage.
_COMMON, _WIDTH = ("help", "json"), 88
#: Devices of each backend. Not read from the adapters, because that would import the libraries.
_WHERE = {"numpy": "host", "numba": "host", "torch": "host, GPU", "jax": "host, GPU", "cupy": "GPU"}


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *([_cell(each) for each in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    """The text with bars that do not end the cell."""
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def _dtypes(names: frozenset[str]) -> str:
    for words, group in _GROUPS.items():
        if names == group:
            return words
    return ", ".join(sorted(names))


def _call(name: str) -> str:
    """Signature of the operation."""
    signature = inspect.signature(getattr(hpfracc, name))
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return f"hpfracc.engine.{name}{inspect.Signature(plain)}"


def _kernels(name: str) -> Iterator[tuple[str, KernelSpec]]:
    for backend in BACKENDS:
        for spec in registry.declaration(backend).specs.get(name, ()):
            yield backend, spec


def _kernel_row(backend: str, spec: KernelSpec) -> tuple[str, ...]:
    declines = " [^declines]" if spec.refuses is not None else ""
    return (
        backend,
        f"`{spec.algorithm}`{declines}",
        _dtypes(spec.dtypes),
        _COMPILES[spec.compiles],
        "yes" if spec.differentiable else "-",
        "yes" if spec.threads else "-",
    )


def _sentence(function: Callable[..., Any]) -> str:
    return _markdown((inspect.getdoc(function) or "").split("\n\n")[0])


def _markdown(text: str) -> str:
    """A paragraph of a docstring as Markdown."""
    text = " ".join(text.split()).replace("``", "`").replace("\\ ", "")
    text = re.sub(r":su([bp]):`([^`]*)`", r"<su\1>\2</su\1>", text)
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    return re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text)


def _operation(name: str, primitive: Primitive) -> Iterator[str]:
    public = getattr(hpfracc, name)
    yield f"(operation-{name})=\n## {name}"
    words = inspect.cleandoc(type(primitive).__doc__ or "")
    if name in hpfracc.__all__:
        text = f"Called as :py:func:`hpfracc.{name}`. Contract of its kernels:\n\n{words}"
    elif inspect.isfunction(public):
        # A public function wraps the primitive: document both.
        text = f".. autofunction:: hpfracc.engine.{name}\n\nContract of its kernels:\n\n{words}"
    else:
        body = "\n".join(f"   {line}".rstrip() for line in words.splitlines())
        text = f".. py:function:: {_call(name)}\n\n{body}"
    yield f"```{{eval-rst}}\n{text}\n```"
    head = ("backend", "algorithm", "dtypes", "compiles", "gradient", "engine threads")
    yield _table(head, [_kernel_row(backend, spec) for backend, spec in _kernels(name)])
    yield "\n".join(
        (
            f'- Operands of `hf.explain("{name}", shape=...)`: {_sentence(primitive.example)}',
            f"- Work: {_sentence(primitive.work)}",
            f"- Workspace (a kernel may hold several copies): {_workspace(primitive)}",
        )
    )


def _workspace(primitive: Primitive) -> str:
    inherited = type(primitive).workspace is Primitive.workspace
    return "Nothing." if inherited else _sentence(primitive.workspace)


def operations() -> str:
    """A section for each operation: its signature, its contract, and its kernels."""
    parts = [text for name, primitive in _public() for text in _operation(name, primitive)]
    note = "[^declines]: Declines some calls because of their size; `hf.explain` then shows the reason."
    return "\n\n".join([*parts, note])


def overview() -> str:
    """Table of operations and backends, with the algorithms of each."""

    def cell(name: str, backend: str) -> str:
        found = dict.fromkeys(f"`{spec.algorithm}`" for other, spec in _kernels(name) if other == backend)
        return ", ".join(found) or "-"

    rows = [(f"[{name}](#operation-{name})", *(cell(name, backend) for backend in BACKENDS)) for name, _ in _public()]
    where = ("*works on*", *(f"*{_WHERE[backend]}*" for backend in BACKENDS))
    return _table(("operation", *BACKENDS), [*rows, where])


def _home(name: str) -> str:
    return "hf" if name in hpfracc.__all__ else "hf.engine"


def _public() -> list[tuple[str, Primitive]]:
    return [
        (name, primitive)
        for name, primitive in PRIMITIVES.items()
        if name in (*hpfracc.__all__, *hpfracc.engine.__all__)
    ]


def commands() -> str:
    """A section for each command and action of ``hpfracc``, from its own parser."""
    return "\n\n".join(_command(_parser(), ()))


def _parser() -> argparse.ArgumentParser:
    """The parser of ``hpfracc``, intercepted before it reads arguments."""
    caught: list[argparse.ArgumentParser] = []

    def catch(parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        caught.append(parser)
        raise SystemExit(0)

    with mock.patch.object(argparse.ArgumentParser, "parse_args", catch):
        cli.main([])
    return caught[0]


def _command(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[str]:
    # argparse has no public way to list what was added to a parser.
    actions = parser._actions
    children = [action for action in actions if isinstance(action, argparse._SubParsersAction)]
    if path:
        yield f"{'#' * (len(path) + 1)} hpfracc {' '.join(path)}"
        yield _as_sentence(parser.description or "")
        parser.formatter_class = partial(argparse.HelpFormatter, width=_WIDTH)
        usage = parser.format_usage().replace("\n       ", "\n").removeprefix("usage: ")
        yield f"```text\n{usage}```"
        rows = [_option_row(action) for action in actions if action not in children and action.dest not in _COMMON]
        if rows:
            yield _table(("option", "meaning"), rows)
    for group in children:
        for name, child in group.choices.items():
            yield from _command(child, (*path, name))


def _as_sentence(text: str) -> str:
    text = " ".join(text.replace("``", "`").split())
    head, colon, rest = text.partition(": ")
    text = rest if colon and head.startswith("`hpfracc") else text
    return text[:1].upper() + text[1:].removesuffix(".") + "."


def _option_row(action: argparse.Action) -> tuple[str, str]:
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        name = value
    else:
        name = action.option_strings[-1] + ("" if action.nargs == 0 else f" {value}")
    return f"`{name}`", re.sub(r"hf\.\w+\(.*?\)|--\w+", r"`\g<0>`", action.help or "")


def functions() -> str:
    """The functions that a formula may call, by number of arguments."""
    counts = sorted(set(FUNCTIONS.values()))
    rows = [
        (str(count), ", ".join(f"`{name}`" for name, arguments in FUNCTIONS.items() if arguments == count))
        for count in counts
    ]
    return _table(("arguments", "functions"), rows)


def names() -> str:
    """Every operation with the first sentence of its contract."""

    def words(name: str, primitive: Primitive) -> str:
        public = getattr(hpfracc, name)
        return _sentence(public if inspect.isfunction(public) else type(primitive))

    rows = [
        (f"[`{_home(name)}.{name}`](operations.md#operation-{name})", words(name, primitive))
        for name, primitive in _public()
    ]
    return _table(("name", "what it computes"), rows)


def fode_methods() -> str:
    """Every method of ``solve_fode``, as it is registered, and as an object if its class is public."""

    def row(method: type[Method]) -> tuple[str, ...]:
        names = ", ".join(f"`{name}`" for name in method.aliases)
        return f"`{method.name}`", names, method.order, ", ".join(sorted(method.libraries)), _sentence(method)

    rows = [row(method) for method in all_methods()]
    objects = "".join(f"    ode.{name}(),\n" for name, _ in _entry(ode.__name__, "all_methods()"))
    code = f"```python\nfrom hpfracc.solvers import ode\n\nmethods = [\n{objects}]\n```"
    return f"{_table(('`method=`', 'other names', 'order', 'arrays', 'what it is'), rows)}\n\n{code}"


def entries(text: str) -> dict[str, str]:
    """The names that a page documents, with their members."""
    found: dict[str, str] = {}
    for _, module, lines in _ENTRIES.findall(text):
        listed = dict(each for line in lines.splitlines() if line.strip() for each in _entry(module, line))
        for name, members in (listed or dict.fromkeys(_own_names(module), "*")).items():
            found[f"{module}.{name}"] = members
    return found


def _entry(module: str, line: str) -> Iterator[tuple[str, str]]:
    """A name and its members; for ``name()`` those of the classes it returns that are public in the module."""
    name, _, members = line.partition(":")
    if name.strip().endswith("()"):
        found = [each.__name__ for each in _object(f"{module}.{name.strip()[:-2]}")()]
        yield from ((each, "") for each in found if each in _module(module).__all__)
    else:
        yield name.strip(), members.strip()


def _own_names(module: str) -> list[str]:
    """Public names of a module, without those that ``hpfracc`` has too."""
    return [name for name in _module(module).__all__ if name not in hpfracc.__all__ and name not in PRIMITIVES]


def _module(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return _object(path)  # an attribute of a module, such as pde.problems


def _object(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(_module(module), name)


def document(text: str) -> str:
    """The page with tables of its entries, and the pages of these in the contents."""
    found = {entry.path: f"{entry.subject}/{entry.file}" for entry in listed() if entry.path in entries(text)}

    def write(place: re.Match[str]) -> str:
        if place[1] == "pages":
            return ""
        links = {path: f"[`hf{path.removeprefix('hpfracc')}`]({found[path]}.md)" for path in entries(place[0])}
        return _table(("name", "what it is"), [(link, _sentence(_object(path))) for path, link in links.items()])

    text = _ENTRIES.sub(write, text)
    short = Counter(path.rpartition(".")[2] for path in found)
    contents = ""
    for path, page in found.items():
        name = path.rpartition(".")[2]
        contents += f"{name if short[name] == 1 else path.removeprefix('hpfracc.')} <{page}>\n"
    return f"{text}\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{contents}```\n" if found else text


@cache
def _neighbour(name: str) -> ModuleType:
    """Import another module of this folder, which is not a package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def profile_fields() -> str:
    """The fields of an exported profile, from its schema."""
    schema = read_schema()
    defined = schema["$defs"]
    parts = [
        ("The document", schema),
        ("The breakdown", schema["properties"]["breakdown"]),
        ("A span", defined["span"]),
        ("A row of the summary", defined["statistics"]),
        ("A bottleneck", schema["properties"]["bottlenecks"]["items"]),
        ("A piece of advice", schema["properties"]["advice"]["items"]),
    ]
    return "\n\n".join(f"## {title}\n\n{_fields(part, defined)}" for title, part in parts)


def _fields(part: dict[str, Any], defined: dict[str, Any]) -> str:
    required = set(part.get("required", ()))
    rows = []
    for name, field in part["properties"].items():
        meant = {**defined[field["$ref"].rpartition("/")[2]], **field} if "$ref" in field else field
        kind = meant.get("type", "one of" if "enum" in meant else "constant")
        kinds = " or ".join(kind) if isinstance(kind, list) else kind
        values = meant.get("enum") or ([meant["const"]] if "const" in meant else [])
        words = [", ".join(f"`{value}`" for value in values), meant.get("description", "")]
        rows.append((f"`{name}`", kinds, "yes" if name in required else "no", "; ".join(filter(None, words))))
    return _table(("field", "type", "required", "meaning"), rows)


#: Groups of families in the measurements of error estimates: a pattern of their names, and a title.
_FAMILIES = {
    "ode adaptive": "ordinary equations, adaptive steps",
    "ode step": "ordinary equations, given step",
    "ode halved": "ordinary equations, given step, halved for the estimate",
    "pde space": "partial equations, error of the grid",
    "pde": "partial equations, error in time",
    ".*callable": "operators on functions",
    ".*(noise|Hurst|Heston)": "noise and rough volatility",
    "": "operators on samples",
}


def trust() -> str:
    """How well error estimates hold: a row for each group of families in ``benchmarks/results/trust*.txt``.

    Of a family that is in several files, the row with the most problems counts.
    """
    found: dict[str, tuple[str, ...]] = {}
    for results in (Path(__file__).parent.parent / "benchmarks" / "results").glob("trust*.txt"):
        for name, *row in re.findall(
            r"^(\w.*?) +(\d+) +(\S+)% +\S+ +\S+ +(\S+) +(\d+) +(\d+) +0$", results.read_text("utf-8"), re.MULTILINE
        ):
            if name not in found or int(row[0]) > int(found[name][0]):
                found[name] = tuple(row)
    groups: dict[str, list[tuple[str, ...]]] = {title: [] for title in _FAMILIES.values()}
    for name, row in found.items():
        groups[next(title for pattern, title in _FAMILIES.items() if re.match(pattern, name))].append(row)
    rows = []
    for title, group in groups.items():
        measured = [row for row in group if row[1] != "nan"]
        least, worst = min(float(row[1]) for row in measured), max(float(row[2]) for row in measured)
        tried, nan, failed = (sum(int(row[place]) for row in group) for place in (0, 3, 4))
        rows.append((title, str(len(group)), f"{tried:,}", f"{least:g} %", f"{worst:g}", str(nan), str(failed)))
    return _table(("what", "families", "problems", "within three", "worst", "no estimate", "stopped"), rows)


def old_names() -> str:
    """Names of older versions that are gone, and what takes their place."""
    names = json.loads(Path(hpfracc.__file__).with_name("old_names.json").read_text(encoding="utf-8"))
    return _table(("then", "now"), [(f"`{path}`", _code(words)) for path, words in names.items()])


def _code(words: str) -> str:
    """Words with the names of ours among them as code."""
    return re.sub(r"\b(?:hf|hpfracc|scipy)\.[\w.]*\w(?:\([^)]*\))?|\bfull_output=True|\.plot\(\)", r"`\g<0>`", words)


#: The parts that a page can contain.
GENERATED: dict[str, Callable[[], str]] = {
    "commands": commands,
    "fode_methods": fode_methods,
    "functions": functions,
    "names": names,
    "old_names": old_names,
    "operations": operations,
    "operators_overview": lambda: str(_neighbour("_operators").operators_overview()),
    "overview": overview,
    "profile_fields": profile_fields,
    "trust": trust,
}


def fill(text: str) -> str:
    """The page with all parts regenerated."""
    return _PLACE.sub(
        lambda found: f"<!-- generated: {found[1]} -->\n\n{_part(found[1])}\n\n<!-- end of {found[1]} -->", text
    )


def _part(name: str) -> str:
    return "\n".join(line.rstrip() for line in GENERATED[name]().splitlines())


def _read(_app: Sphinx, page: str, source: list[str]) -> None:
    if page.count("/") < 2:  # the pages of names are written as they should be
        source[0] = document(fill(source[0]))


@cache
def related() -> Any:
    """The relations between all entries."""
    return _neighbour("_related").Related(entries, _object)


@cache
def pages() -> Any:
    """The module that writes the pages of names."""
    return _neighbour("_pages")


@cache
def listed() -> list[Any]:
    """The names that have a page."""
    found: list[Any] = pages().find_entries(_REFERENCE, entries, _object)
    return found


@cache
def _classes() -> dict[str, str]:
    """The paths of classes by their names, of those that only one class has."""
    classes = [entry.path for entry in listed() if inspect.isclass(_object(entry.path))]
    names = [path.rpartition(".")[2] for path in classes]
    return {name: path for name, path in zip(names, classes, strict=True) if names.count(name) == 1}


def page_of(entry: Any) -> str:
    """The page of a name."""
    value, home = _object(entry.path), _neighbour("_home")
    details = _neighbour("_operators").details(entry.path.removeprefix("hpfracc."))
    return str(pages().page_of(entry, value, related(), details, home.source_of(value, home.read_home())))


def _write(_app: Sphinx) -> None:
    pages().write_pages(_REFERENCE, ((entry, page_of(entry)) for entry in listed()))


def _complete(_app: Sphinx, _what: str, name: str, value: Any, _options: Any, lines: list[str]) -> None:
    """Describe every parameter where it stands, and leave out what the page of an entry has elsewhere."""
    known = any(entry.path == name for entry in listed())
    text = pages().shorten("\n".join(lines), known)
    lines[:] = [*pages().describe(text, value, _object, _classes()).splitlines(), ""]


def _colons(_app: Sphinx, _what: str, _name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    """A colon between a parameter and its description, in place of two dashes."""
    lines[:] = [line.replace(" -- ", ": ", 1) for line in lines]


def _outdated(app: Sphinx, env: Any, _added: set[str], _changed: set[str], _removed: set[str]) -> list[str]:
    """Pages with generated parts, which are read again at every build because the code may have changed."""
    texts = {page: env.doc2path(page).read_text(encoding="utf-8") for page in env.found_docs}
    return [page for page, text in texts.items() if _PLACE.search(text) or _ENTRIES.search(text)]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    app.connect("builder-inited", _write)
    app.connect("source-read", _read)
    app.connect("env-get-outdated", _outdated)
    app.connect("autodoc-process-docstring", _complete, priority=400)  # before it is turned into reStructuredText
    app.connect("autodoc-process-docstring", _colons, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def main() -> None:
    """Write all parts into the pages of the repository."""
    for path in sorted(Path(__file__).parent.glob("*/*.md")):
        text = path.read_text(encoding="utf-8")
        if _PLACE.search(text):
            path.write_text(fill(text), encoding="utf-8")
    _neighbour("_notebooks").write_notebooks()


if __name__ == "__main__":
    main()
