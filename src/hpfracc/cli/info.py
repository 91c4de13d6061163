"""``hpfracc info``: show the hardware, the backends, the stored measurements and the settings."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from typing import Any

from hpfracc.cli.answer import Answer, hpfracc_version
from hpfracc.profiling.formats import make_console


def add_command(commands: Any, summary: str, common: argparse.ArgumentParser) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser("info", help=summary, parents=[common], allow_abbrev=False)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    """Collect and show the information. No array library is imported."""
    data = collect()
    return Answer(data, lambda: _view(data))


def collect() -> dict[str, Any]:
    """All information as plain values."""
    from hpfracc._config import BACKENDS, get_settings
    from hpfracc.engine import hardware
    from hpfracc.engine.memory.host import HostProbe
    from hpfracc.engine.selection.knowledge import knowledge_for
    from hpfracc.engine.selection.wisdom_sharing import summarize

    settings = get_settings()
    machine = hardware.machine()
    backends = [_backend(name, settings.disabled) for name in BACKENDS]
    wisdom = summarize(knowledge_for(settings).wisdom)
    return {
        "hpfracc": hpfracc_version(),
        "machine": machine.to_dict(),
        "memory": {
            "host": HostProbe().read().to_dict(),
            "devices": [
                {"device": gpu.device, "total": gpu.memory, "free": hardware.driver_free_bytes(gpu.device)}
                for gpu in machine.gpus
            ],
        },
        "backends": backends,
        "wisdom": {name: value for name, value in wisdom.items() if name != "rows"},
        "settings": asdict(settings),
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith("HPFRACC_")},
    }


def show_versions() -> None:
    """Print the versions of hpfracc, Python and the libraries that it can use, and the devices.

    Paste it into a report of a problem. No library is imported for it; ``hpfracc info`` shows more.

    See Also
    --------
    explain

    Examples
    --------
    >>> import hpfracc as hf
    >>> hf.show_versions()  # doctest: +SKIP
    hpfracc 0.3.0
    processor  Intel(R) Xeon(R) Processor, 2 of 2 threads (x86_64)
    ...
    """
    from rich.console import Group

    from hpfracc._optional import EXTRAS
    from hpfracc.engine import hardware

    names = ("numpy", "scipy", *EXTRAS)
    libraries = [(name, hardware.library_version(name) or "not installed") for name in names]
    make_console().print(Group(_machine(collect()), _grid(libraries)))


def _backend(name: str, disabled: frozenset[str]) -> dict[str, Any]:
    from hpfracc.engine import hardware
    from hpfracc.engine.backends import registry
    from hpfracc.engine.execution.operation import all_operations

    why = f"disabled by HPFRACC_DISABLE_{name.upper()}" if name in disabled else registry.unavailable(name)
    offered = [] if why else [arm for operation in all_operations() for arm in registry.arms(operation)]
    return {
        "name": name,
        "available": why is None,
        "version": hardware.library_version(name),
        "why_not": why,
        "devices": sorted({arm.device for arm in offered if arm.backend == name}),
        "kernels": sum(len(registry.specs(operation, name)) for operation in all_operations()),
    }


def _view(data: dict[str, Any]) -> Any:
    from rich.console import Group

    return Group(_machine(data), _backends(data), _knowledge(data))


def _grid(rows: list[tuple[str, str]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(Text(name), Text(value))
    return grid


def _machine(data: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.text import Text

    from hpfracc._reading import format_bytes

    machine, memory = data["machine"], data["memory"]
    cpu, host = machine["cpu"], memory["host"]
    threads = len(cpu["affinity"])
    rows = [
        ("processor", f"{cpu['model']}, {threads} of {cpu['logical']} threads ({cpu['architecture']})"),
        (
            "memory",
            f"{format_bytes(host['free'])} free of {format_bytes(host['limit'])} (limited by {host['tightest']})",
        ),
    ]
    free = {gpu["device"]: gpu["free"] for gpu in memory["devices"]}
    for gpu in machine["gpus"]:
        left = free.get(gpu["device"])
        total = "" if gpu["memory"] is None else f" of {format_bytes(gpu['memory'])}"
        rows.append((gpu["device"], f"{gpu['name']}, {_bytes(left)} free{total}, driver {gpu['driver']}"))
    if not machine["gpus"]:
        rows.append(("GPUs", "none visible to this process"))
    rows.append(("system", f"{machine['system']}, Python {machine['python']}"))
    return Group(Text(f"hpfracc {data['hpfracc']}", style="bold"), _grid(rows))


def _bytes(size: int | None) -> str:
    from hpfracc._reading import format_bytes

    return "unknown" if size is None else format_bytes(size)


def _backends(data: dict[str, Any]) -> Any:
    from rich.text import Text

    from hpfracc.profiling.formats import make_table

    words = dict.fromkeys(("backend", "usable", "version", "devices"), "word")
    table = make_table("Backends", **words, kernels="number", reason="text")
    for row in data["backends"]:
        mark = Text("yes", style="green") if row["available"] else Text("no", style="yellow")
        found = row["version"] or "-", ", ".join(row["devices"]) or "-", str(row["kernels"])
        table.add_row(row["name"], mark, *found, Text(row["why_not"] or ""))
    return table


def _knowledge(data: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.text import Text

    wisdom = data["wisdom"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(wisdom["kinds"].items())) or "nothing yet"
    rows = [
        ("folder", wisdom["path"] or "none"),
        ("state", wisdom["state"]),
        ("records", f"{wisdom['records']} ({kinds}), {_bytes(wisdom['bytes'])} on disk"),
    ]
    settings = [(name, _setting(value)) for name, value in data["settings"].items() if name != "version"]
    parts = [Text("Wisdom", style="bold"), _grid(rows), Text(""), Text("Settings", style="bold"), _grid(settings)]
    if data["environment"]:
        parts += [Text(""), Text("Environment", style="bold"), _grid(list(data["environment"].items()))]
    return Group(*parts)


def _setting(value: Any) -> str:
    if isinstance(value, frozenset | set | list | tuple):
        return ", ".join(sorted(map(str, value))) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_setting(item)}" for key, item in value.items()) or "none"
    return "none" if value is None else str(value)
