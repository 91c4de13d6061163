"""Generates the reference of the operators from their declarations and from one call of each."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

import hpfracc
from hpfracc._config import BACKENDS
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.decision_log import composite
from hpfracc.operators.core.base import FractionalOperator
from hpfracc.operators.core.registry import all_operators
from hpfracc.operators.core.rule import Rule

__all__ = ["details", "operators_overview", "plot"]

#: Orders that are drawn, if the operator supports them.
_ORDERS = (0.25, 0.5, 0.75, 1.0, 1.5)
_COLOURS = ("#2f63c9", "#42856a", "#a96a12", "#bf2450", "#6a3cc0")
#: Further parameters that an operator requires.
_NEEDS: dict[str, dict[str, Any]] = {
    "caputo_katugampola": {"rho": 2.0},
    "hilfer": {"beta": 0.5},
    "katugampola": {"rho": 2.0},
    "psi_caputo": {"psi": np.square},
    "riesz_feller": {"theta": 0.25},
    "tempered": {"rate": 1.0},
    "tempered_caputo": {"rate": 1.0},
}
#: Definitions that come first.
_FIRST = ("caputo", "riemann_liouville", "grunwald_letnikov")
_POINTS = 241
_WIDTH, _HEIGHT, _MARGIN = 640, 250, 34


def _make(kind: type[FractionalOperator], alpha: float, method: str = "auto") -> Any:
    needs = _NEEDS.get(kind.definition, {})
    if kind.definition == "distributed_order":  # all orders up to alpha
        return kind(1.0, max(math.ceil(alpha) - 1.0, 0.0), alpha, method=method)  # type: ignore[call-arg]
    if kind.definition == "sonine":  # Caputo's kernel with an exponential decay
        return kind(lambda u: u**-alpha * np.exp(-u) / math.gamma(1.0 - alpha), method=method)  # type: ignore[call-arg]
    return kind(alpha, method=method, **needs)  # type: ignore[call-arg]


def _samples(kind: type[FractionalOperator]) -> tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A test function as text, points that suit the operator, and its values there.

    It does not vanish at the origin, where the definitions differ.
    """
    if kind.definition in ("hadamard", "caputo_hadamard"):
        t = np.geomspace(1.0, 8.0, _POINTS)
        return "cos(3 log t)", t, np.cos(3.0 * np.log(t))
    if kind.definition == "weyl":
        t = np.arange(_POINTS) * (2.0 * np.pi / _POINTS)
        return "sin t + sin(3t)/3", t, np.sin(t) + np.sin(3.0 * t) / 3.0
    if kind.definition in ("riesz", "riesz_feller", "fractional_laplacian"):
        t = np.linspace(-4.0, 4.0, _POINTS)
        return "exp(-t²)", t, np.exp(-(t**2))
    t = np.linspace(0.0, 8.0, _POINTS)
    return "cos t", t, np.cos(t)


def _curves(kind: type[FractionalOperator]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    _, t, f = _samples(kind)
    for alpha in _ORDERS:
        try:
            value = np.asarray(_make(kind, alpha)(f, t))
        except (hpfracc.errors.HpfraccError, ValueError):
            continue  # not supported by this definition
        yield f"{alpha:g}", value


def plot(name: str) -> str:
    """Drawing of the test function and of the operator ``definition_kind`` applied to it."""
    kind = next(kind for kind in all_operators() if f"{kind.definition}_{kind.kind}" == name)
    what, t, f = _samples(kind)
    curves = [("f", f), *_curves(kind)]
    finite = np.concatenate([row[np.isfinite(row)] for _, row in curves[1:]] + [f])
    # A derivative that is infinite at the origin leaves the drawing.
    low, high = (float(np.quantile(finite, share)) for share in (0.01, 0.99))
    low, high = min(low - 0.1 * (high - low), 0.0), max(high + 0.1 * (high - low), 0.0)
    right = 104

    def place(x: Any, y: Any) -> tuple[Any, Any]:
        across = _MARGIN + (x - t[0]) / (t[-1] - t[0]) * (_WIDTH - _MARGIN - right)
        down = _HEIGHT - _MARGIN - (np.clip(y, low, high) - low) / (high - low) * (_HEIGHT - 2 * _MARGIN + 14)
        return across, down

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" style="max-width:{_WIDTH}px;width:100%" '
        f'font-family="sans-serif" font-size="12"><title>{kind.definition} of {what}</title>'
    ]
    x0, zero = place(t[0], 0.0)
    x1, _ = place(t[-1], 0.0)
    parts.append(f'<line x1="{x0}" x2="{x1}" y1="{zero:.1f}" y2="{zero:.1f}" stroke="currentColor" opacity=".35"/>')
    pale = 'fill="currentColor" opacity=".7"'
    parts += [
        f'<text x="{place(x, 0)[0]:.0f}" y="{_HEIGHT - 8}" text-anchor="middle" {pale}>{x:.3g}</text>'
        for x in (t[0], t[-1])
    ]
    parts += [
        f'<text x="{_MARGIN - 4}" y="{place(0, y)[1] + 4:.1f}" text-anchor="end" {pale}>{y:.2g}</text>'
        for y in (low, high)
    ]
    ends = []
    for number, (name, row) in enumerate(curves):
        colour = "currentColor" if number == 0 else _COLOURS[number - 1]
        xs, ys = place(t, row)
        good = np.isfinite(ys)
        points = " ".join(f"{x:.0f},{y:.1f}" for x, y in zip(xs[good][::2], ys[good][::2], strict=True))
        dash = ' stroke-dasharray="4 3"' if number == 0 else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>')
        ends.append((float(ys[good][-1]), name, colour))
    # Labels at the right end, moved apart so that they do not overlap.
    last = 0.0
    for y, name, colour in sorted(ends):
        last = max(y + 4.0, last + 17.0)
        label = f"&alpha; = {name}" if name != "f" else "f"
        parts.append(f'<text x="{_WIDTH - right + 8}" y="{last:.1f}" fill="{colour}">{label}</text>')
    parts.append("</svg>")
    caption = f"f(t) = {what} (dashed) and the {kind.kind} of f for several orders (solid)"
    return f"```{{raw}} html\n<figure>{''.join(parts)}<figcaption>{caption}</figcaption></figure>\n```"


def _backends(kind: type[FractionalOperator]) -> tuple[list[str], list[str]]:
    """The operations that a call makes, found by making one, and the backends that have all of them."""
    _, t, f = _samples(kind)
    with composite() as decisions:
        _make(kind, 0.5)(f, t)
    operations = list(dict.fromkeys(decision.operation for decision in decisions))
    serving = [name for name in BACKENDS if all(registry.declaration(name).specs.get(op) for op in operations)]
    return operations, serving


def _accuracy(rule: Rule, served: list[str]) -> str:
    """Order of accuracy at two orders of the operator, if it supports them."""
    found = []
    for alpha in (0.5, 1.5):
        if f"{alpha:g}" in served:
            try:
                found.append(f"{rule.accuracy(alpha):g} at alpha = {alpha:g}")
            except hpfracc.errors.HpfraccError:
                continue
    return ", ".join(found).replace("inf at", "spectral at")


def _words(kind: type[FractionalOperator]) -> str:
    """First paragraph of the class docstring, as Markdown."""
    text = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    return re.sub(r":math:`([^`]*)`", r"$\1$", text)


def _grids(kind: type[FractionalOperator]) -> str:
    """The grids of an operator: uniform, uniform in a function of t, non-uniform."""
    return ", ".join("non-uniform" if grid == "any" else grid for grid in kind.grids)


def _in_order() -> list[type[FractionalOperator]]:
    """Derivatives and then integrals, those of the usual definitions first."""

    def place(kind: type[FractionalOperator]) -> tuple[str, int]:
        return kind.kind, _FIRST.index(kind.definition) if kind.definition in _FIRST else len(_FIRST)

    return sorted(all_operators(), key=place)


def _anchor(kind: type[FractionalOperator]) -> str:
    return f"operator-{kind.function_name.replace('_', '-')}"


def details(name: str) -> Iterator[str]:
    """What the page of an operator's function has: formula, names, grids, backends, methods and a drawing."""
    kind = next((kind for kind in all_operators() if kind.function_name == name), None)
    if kind is None:
        return
    yield f"({_anchor(kind)})="
    yield f"$$ {kind.formula} $$"
    yield _words(kind)
    yield plot(f"{kind.definition}_{kind.kind}")
    operations, serving = _backends(kind)
    factory = f"create_fractional_{kind.kind}"
    names = ", ".join(f'`"{name}"`' for name in (kind.definition, *kind.short_names))
    yield "\n".join(
        (
            f"- Names in `hf.{factory}(alpha, definition)`: {names}.",
            f"- Grids: {_grids(kind)}. Also callables.",
            f"- Uses {', '.join(f'[{op}](../operations.md#operation-{op})' for op in operations)}; "
            f"backends: {', '.join(serving)}.",
        )
    )
    served = [name for name, _ in _curves(kind)]
    others = getattr(kind, "any_grid_rules", {})
    rows = [
        (f"`{name}`", where, _accuracy(rule, served), rule.cost, "yes" if rule.companion is not None else "-")
        for where, rules in (
            ("uniform" if others or "any" not in kind.grids else "uniform, non-uniform", kind.rules),
            ("non-uniform", others),
        )
        for name, rule in rules.items()
    ]
    head = ("method", "grid", "order of accuracy, smooth samples", "cost", "error estimate")
    yield "\n".join(f"| {' | '.join(line)} |" for line in (head, tuple("---" for _ in head), *rows))


def operators_overview() -> str:
    """Table of all operators, and the names of their pages."""
    rows = [(f"[`{kind.definition}`](#{_anchor(kind)})", kind.kind, _words(kind), _grids(kind)) for kind in _in_order()]
    head = ("definition", "kind", "summary", "grids")
    names = "\n".join(f"{kind.function_name}\n{kind.__name__}" for kind in _in_order())
    table = "\n".join(f"| {' | '.join(line)} |" for line in (head, tuple("---" for _ in head), *rows))
    return f"{table}\n\n<!-- pages: hpfracc\n{names}\n-->"
