"""Imports run downstairs: the house of docs/explanation/house.md, enforced from the code's own imports."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.helpers.source import PACKAGE, REPOSITORY, SOURCE, find_cycle, find_imports, find_modules, resolve

#: The rooms of the house and their floors, as the page has them. A room is a folder with all that is in it, or a single
#: file. A folder that is divided into rooms of different floors, or into rooms that must not know each other, stands in
#: DIVIDED instead, unless the rest of it is a room too.
PAGE = (REPOSITORY / "docs" / "explanation" / "house.md").read_text(encoding="utf-8")
FLOORS = {room: int(floor) for room, floor in re.findall(r"^\| `([\w.]+)` \| (\d+) \|", PAGE, re.MULTILINE)}
#: A folder that may import another one of its own floor.
NEIGHBOURS = {("engine.primitives", "engine.numerics"), ("solvers.fitting", "solvers.stepping")} | {
    (f"engine.backends.{name}", "engine.backends.generic") for name in ("numpy", "numba", "torch", "jax", "cupy")
}
#: Their ``__init__.py`` runs before each of their rooms, so it imports nothing of ours above floor 0; the package's own
#: does so only when a public name is touched.
DIVIDED = ("engine", "engine.backends", "solvers")
#: The ``__init__.py`` of the package: stands above all, and nothing may import a name from it.
ROOF = PACKAGE


def room_of(module: str) -> str | None:
    """The room ``module`` lies in (of FLOORS, or ROOF, or of DIVIDED for its ``__init__.py``), or None."""
    if module == ROOF:
        return ROOF
    inside = module.removeprefix(f"{PACKAGE}.")
    if inside in DIVIDED:
        return inside
    while inside not in FLOORS and "." in inside:
        inside = inside.rpartition(".")[0]
    return inside if inside in FLOORS else None


def problems(source: Path) -> list[str]:
    """Everything below ``source`` that breaks a rule of the house, as sentences."""
    modules = find_modules(source)
    found: list[str] = []
    between_rooms: dict[str, set[str]] = defaultdict(set)
    between_files: dict[str, set[str]] = defaultdict(set)
    folders = {room_of(module.name) for module in modules.values() if module.is_package}

    for module in modules.values():
        room = room_of(module.name)
        if room is None:
            found.append(
                f"{module.name} is on no floor: add its folder or file to FLOORS and to the table of the house"
            )
            continue
        if room == ROOF:
            continue
        for use in find_imports(module):
            target = resolve(use.target, modules)
            if target is None or target == module.name:
                continue
            where = f"{module.name}:{use.line} imports {target}"
            other = room_of(target)
            if room in DIVIDED or other is None or other in DIVIDED:  # others are modules on no floor, reported as such
                if room in DIVIDED and FLOORS.get(other or "") != 0:
                    found.append(f"{where}: the __init__.py of a divided folder imports nothing of ours above floor 0")
            elif other == ROOF:
                found.append(f"{where}: import {use.target} from where it lives, not through the package")
            elif FLOORS[other] > FLOORS[room]:
                found.append(f"{where}: floor {FLOORS[room]} imports floor {FLOORS[other]}")
            elif other != room and FLOORS[other] == FLOORS[room] and _are_strangers(room, other, folders):
                found.append(f"{where}: two folders of floor {FLOORS[room]} know each other")
            else:
                between_files[module.name].add(target)
                if other != room:
                    between_rooms[room].add(other)

    for graph in (between_rooms, between_files):
        cycle = find_cycle(graph)
        if cycle is not None:
            found.append(f"imports go round in a circle: {' -> '.join(cycle)}")
    return found


def _are_strangers(room: str, other: str, folders: set[str | None]) -> bool:
    return {room, other} <= folders and (room, other) not in NEIGHBOURS


def test_every_import_runs_downstairs():
    """No import goes upstairs, sideways between folders, or round in a circle, and every file is on a floor."""
    assert problems(SOURCE) == []


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        (
            {"engine/primitives/base.py": "def f():\n    from hpfracc.engine.backends import base"},
            "floor 2 imports floor 3",
        ),
        ({"engine/memory/budget.py": "from hpfracc.engine.primitives.base import Call"}, "two folders of floor 2"),
        ({"solvers/sde/a.py": "from hpfracc.solvers.ode.method import Method"}, "two folders of floor 8"),
        ({"solvers/tensors/a.py": "from hpfracc.solvers.ode.method import Method"}, "floor 7 imports floor 8"),
        (
            {"engine/execution/a.py": "from . import b", "engine/execution/b.py": "from .a import f"},
            "circle: hpfracc.engine.execution.",
        ),
        ({"engine/workload.py": "from hpfracc import explain"}, "not through the package"),
        ({"engine/__init__.py": "from hpfracc.engine import workload"}, "imports nothing of ours"),
        ({"plugins/__init__.py": ""}, "hpfracc.plugins is on no floor"),
    ],
)
def test_a_broken_rule_is_noticed(files: dict[str, str], complaint: str, tmp_path: Path):
    """Each rule, broken in a small house that keeps all of them, is reported, and nothing else is."""
    house = {
        "__init__.py": "",
        "errors.py": "",
        "_arrays.py": "",
        "engine/__init__.py": "",
        "engine/workload.py": "from hpfracc.errors import InvalidInputError",
        "engine/primitives/__init__.py": "",
        "engine/primitives/base.py": "from hpfracc.engine.workload import Bucket",
        "engine/memory/__init__.py": "",
        "engine/backends/__init__.py": "",
        "engine/backends/base.py": "from hpfracc.engine.primitives.base import Call",
        "engine/backends/numpy/__init__.py": "",
        "engine/backends/numpy/adapter.py": "from hpfracc.engine.backends.base import Adapter",
        "engine/backends/torch/__init__.py": "",
        "engine/execution/__init__.py": "",
        "_config.py": "",
        "solvers/__init__.py": "",
        "solvers/tensors/__init__.py": "",
        "solvers/ode/__init__.py": "",
        "solvers/ode/method.py": "from hpfracc.solvers import tensors",
        "solvers/sde/__init__.py": "",
    }
    _build(tmp_path / "whole", house)
    assert problems(tmp_path / "whole") == []
    _build(tmp_path / "broken", house | files)
    found = problems(tmp_path / "broken")
    assert found
    assert all(complaint in problem for problem in found)


def _build(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
