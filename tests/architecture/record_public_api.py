"""Writes ``data/api-VERSION.json``: the public names, signatures and calls of the version that is checked out.

Run from the root of a checkout of that version, with the root of this one in ``PYTHONPATH`` behind it::

    PYTHONPATH=$PWD/src:THIS python -m tests.architecture.record_public_api THIS/tests/architecture/data

Calls are read from the README, the documentation, the examples, the benchmarks and the tests, without running them.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.helpers import public_api

#: Classes that are not called what their function is called.
CLASSES = {"tempered": "TemperedRiemannLiouville"}
_BLOCK = re.compile(r"^```(?:python|pycon)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def sources(root: Path) -> Iterator[ast.Module]:
    """The Python of a checkout that calls the library."""
    for folder in ("examples", "benchmarks", "tests"):
        for path in sorted((root / folder).rglob("*.py")):
            yield ast.parse(path.read_text(encoding="utf-8"))
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        blocks = []
        for block in _BLOCK.findall(path.read_text(encoding="utf-8")):
            try:
                ast.parse(block)
            except SyntaxError:
                continue  # a session with prompts, or an excerpt
            blocks.append(block)
        yield ast.parse("\n".join(blocks))


class Reader(ast.NodeVisitor):
    """Finds the calls of public names in one file.

    A variable that was last assigned a call of a public class, or of a function annotated to return one, counts as an
    instance of that class.
    """

    def __init__(self, known: dict[str, Any], returns: dict[str, str]) -> None:
        self.known, self.returns = known, returns
        self.aliases: dict[str, str] = {}
        self.instances: dict[str, str] = {}
        self.calls: dict[str, set[public_api.Call]] = defaultdict(set)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.partition(".")[0] == "hpfracc":
                self.aliases[alias.asname or "hpfracc"] = alias.name if alias.asname else "hpfracc"

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if (node.module or "").partition(".")[0] == "hpfracc":
            for alias in node.names:
                self.aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        made = self.class_of(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.instances.pop(target.id, None)
                if made is not None:
                    self.instances[target.id] = made

    def visit_With(self, node: ast.With) -> None:
        # What is refused is no call that later versions have to take.
        if not any("raises" in ast.unparse(item.context_expr) for item in node.items):
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name = self.name_of(node.func)
        starred = any(isinstance(each, ast.Starred) for each in node.args) or any(k.arg is None for k in node.keywords)
        if name is not None and not starred:
            self.calls[name].add((len(node.args), tuple(sorted(str(each.arg) for each in node.keywords))))

    def name_of(self, node: ast.expr) -> str | None:
        """The public name, or ``Class.method``, that an expression stands for."""
        if isinstance(node, ast.Name):
            if node.id in self.instances:
                return f"{self.instances[node.id]}.__call__"
            path = self.aliases.get(node.id)
            return path if path in self.known else None
        if isinstance(node, ast.Call):
            made = self.class_of(node)
            return None if made is None else f"{made}.__call__"
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in self.instances:
                return f"{self.instances[node.value.id]}.{node.attr}"
            made = self.class_of(node.value)
            if made is not None:
                return f"{made}.{node.attr}"
            path = self.path_of(node)
            return path if path in self.known else None
        return None

    def path_of(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id)
        if isinstance(node, ast.Attribute):
            above = self.path_of(node.value)
            return None if above is None else f"{above}.{node.attr}"
        return None

    def class_of(self, node: ast.expr) -> str | None:
        """The public class that an expression makes an instance of."""
        if not isinstance(node, ast.Call):
            return None
        name = self.name_of(node.func)
        if name is None:
            return None
        return name if inspect.isclass(self.known.get(name)) else self.returns.get(name)


def name_options(names: dict[str, Any]) -> None:
    """Put the options themselves in place of the ``**options`` that functions hand on."""
    for path, told in names.items():
        module, _, name = path.rpartition(".")
        owner = f"{module}.{CLASSES.get(name, name.title().replace('_', ''))}"
        if told["signature"] is None or "**options" not in told["signature"]:
            continue
        if name == "fdeint":
            source, left_out = names[f"{module}.solve_fode"]["signature"], {"t_eval", "events", "dense_output"}
        elif owner in names:
            source, left_out = names[owner]["members"]["__call__"], set()
        else:
            continue
        mine = [
            each
            for each in public_api.read_signature(told["signature"]).parameters.values()
            if each.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        left_out |= {each.name for each in mine}
        handed_on = [
            each
            for each in public_api.read_signature(source).parameters.values()
            if each.kind is inspect.Parameter.KEYWORD_ONLY and each.name not in left_out
        ]
        told["signature"] = str(inspect.Signature([*mine, *handed_on]))


def recorded_calls(root: Path, known: dict[str, Any], names: dict[str, Any]) -> dict[str, list[public_api.Call]]:
    """The calls below ``root`` that bind to the signatures in ``names``, sorted."""
    classes = {value.__name__: path for path, value in known.items() if inspect.isclass(value)}
    returns = {}
    for path, value in known.items():
        if inspect.isfunction(value):
            annotation = str(inspect.signature(value).return_annotation).strip("'\"").rpartition(".")[2]
            if annotation in classes:
                returns[path] = classes[annotation]
    found: dict[str, set[public_api.Call]] = defaultdict(set)
    for tree in sources(root):
        reader = Reader(known, returns)
        reader.visit(tree)
        for name, calls in reader.calls.items():
            found[name] |= calls
    kept = {}
    for name, calls in sorted(found.items()):
        spelled = public_api.find_spelled(names, name)
        if spelled is not None:
            signature = public_api.read_signature(spelled)
            bound = sorted(call for call in calls if public_api.binds(signature, call))
            if bound:
                kept[name] = bound
    return kept


def main() -> None:
    import hpfracc

    root, folder = Path.cwd(), Path(sys.argv[1])
    spec = importlib.util.find_spec("hpfracc")
    assert spec is not None and spec.origin is not None and Path(spec.origin).is_relative_to(root), spec
    known = public_api.public_objects()
    names = {path: public_api.describe(value) for path, value in sorted(known.items())}
    name_options(names)
    if "**settings" in names["hpfracc.config"]["signature"]:
        settings = ", ".join(f"{name}=..." for name in sorted(hpfracc._config._SETTABLE))
        names["hpfracc.config"]["signature"] = f"(*, {settings})"
    results = {path: public_api.describe(value) for path, value in public_api.returned_objects().items()}
    record = {
        "version": hpfracc.__version__,
        "names": names,
        "results": results,
        "calls": recorded_calls(root, known, names),
    }
    path = folder / f"api-{hpfracc.__version__}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(path, len(names), "names", sum(map(len, record["calls"].values())), "calls")


if __name__ == "__main__":
    main()
