"""The exponential part of E_{a,b}: residues at s* = z^(1/a), each with its factor, in any array namespace.

Only elementwise functions and ``where`` are used, so NumPy, PyTorch and JAX all run it. Derivatives are represented by
truncated power series in ``(zeta - z)/z``: lists of coefficients, the value first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from hpfracc._xp import Namespace
from hpfracc.engine.numerics.mittag_leffler_plan import OFFSETS, ContourPlan

#: Larger exponents are factored out before exp and restored at the end, to avoid inf - inf.
_LARGE = 600.0
_HUGE = 1e300
#: Im u of a pole below which derivatives are more accurate along another parabola.
_CLOSE = 0.3
_PHASES = tuple(complex(round(math.cos(2 * math.pi * t)), round(math.sin(2 * math.pi * t))) for t in OFFSETS)

Jet = list[Any]


@dataclass(frozen=True, slots=True)
class Strip:
    """Parameters of the trapezoid rule for poles: ``2 pi / h``, ``sqrt(mu)``, and the largest relevant ``log |q|``.

    Numbers, or arrays with one entry for each z.
    """

    rate: Any
    root_mu: Any
    reach: Any


@dataclass(frozen=True, slots=True)
class Poles:
    """One pole for each z: whether it exists, s*, its root, ``(s*/|s*|)^(1-b)``, ``|s*|``, and its multiplicity."""

    present: Any
    s: Any
    root: Any
    phase: Any
    size: Any
    weight: float


def find_poles(xp: Namespace, plan: ContourPlan, z: Any, sign: int = 0) -> list[Poles]:
    """All poles on the principal sheet; ``sign`` is the common sign of all (real) z, 0 if they may differ."""
    size = _root(xp, plan, xp.abs(z))
    half = xp.sqrt(size)
    if "complex" in str(z.dtype):
        return _complex_poles(xp, plan, z, size, half)
    found = []
    for side, poles in ((1, plan.positive), (-1, plan.negative)):
        for pole in poles if sign in (0, side) else ():
            s, root = size * complex(pole.cosine, pole.sine), half * complex(pole.half_cosine, pole.half_sine)
            phase = complex(math.cos(pole.phase), math.sin(pole.phase))
            found.append(Poles(z * side > 0, s, root, phase, size, pole.weight))
    return found


def _complex_poles(xp: Namespace, plan: ContourPlan, z: Any, size: Any, half: Any) -> list[Poles]:
    """One pole for each rotation by 2 pi that can be on the principal sheet."""
    angle = xp.angle(z)
    # With integer parameters there is no cut, and angles that differ by 2 pi count once.
    slack = math.pi * 2.0**-20 / plan.alpha if plan.closed else 0.0
    most = math.floor((plan.alpha + 1) / 2)
    found = []
    for turn in range(-most, most + 1):
        theta = (angle + 2 * math.pi * turn) / plan.alpha
        present = (theta > -math.pi + slack) & (theta < math.pi + slack)
        theta = xp.where(present, theta, 0.0 * theta)
        phase = _unit(xp, theta * (1 - plan.beta))
        found.append(Poles(present, size * _unit(xp, theta), half * _unit(xp, theta / 2), phase, size, 1.0))
    return found


def _unit(xp: Namespace, theta: Any) -> Any:
    return xp.complex(xp.cos(theta), xp.sin(theta))


def _root(xp: Namespace, plan: ContourPlan, size: Any) -> Any:
    """``size**(1/a)`` accurate to the last place although 1/a is not a float, and finite."""
    if plan.alpha == 1:
        return size
    root = size ** (1 / plan.alpha)
    if plan.correction:
        root = root + root * (plan.correction * xp.log(size))
    return xp.where(root < _HUGE, root, _HUGE)


def _log_q(xp: Namespace, strip: Strip, root: Any) -> Any:
    """``log q``, without overflow."""
    value = (root / strip.root_mu - 1.0) * (-strip.rate)
    return xp.where(xp.real(value) < _LARGE, value, _LARGE + 0j)


def choose_offset(xp: Namespace, strip: Strip, poles: list[Poles], count: int) -> Any:
    """The index into OFFSETS, one for all or one for each z, whose nodes are away from the poles."""
    if not poles:
        return 1
    near = [(pole.present, xp.exp(_log_q(xp, strip, pole.root))) for pole in poles]
    best: Any = None
    choice: Any = None
    for i in (1, 0, 2, 3)[:count]:
        score: Any = None
        for present, q in near:
            distance = xp.where(present, xp.abs(1.0 - _PHASES[i] * q), 2.0)
            score = distance if score is None else xp.where(distance < score, distance, score)
        if best is None:
            best, choice = score, 0.0 * score + i
        else:
            better = (score > best) & (best < 0.7)  # the first is used unless it is close
            best, choice = xp.where(better, score, best), xp.where(better, 0.0 * score + i, choice)
    return choice


def is_close(xp: Namespace, strip: Strip, poles: list[Poles]) -> Any:
    """Whether a pole is near the parabola, for each z; False for all if there is none."""
    close: Any = False
    for pole in poles:
        distance = xp.real(_log_q(xp, strip, pole.root)) / strip.rate
        close = close | (pole.present & (xp.abs(distance) < _CLOSE))
    return close


def add_residues(
    xp: Namespace, plan: ContourPlan, strip: Strip | None, z: Any, poles: list[Poles], offset: Any, total: Any
) -> Any:
    """``total`` plus the poles; overflow gives inf and not nan. Without ``strip`` the full residues are added."""
    if not poles:
        return total
    order, complex_z = plan.order, "complex" in str(z.dtype)
    excess = 0.0 * xp.abs(z)
    for pole in poles:
        beyond = xp.real(pole.s) + (1 - plan.beta) * xp.log(pole.size) - _LARGE
        excess = xp.where(pole.present & (beyond > excess), beyond, excess)
    total = total * xp.exp(-excess)
    for pole in poles:
        alive = pole.present & (xp.real(pole.s) > -750.0)
        jet = _residue(xp, plan, order, pole, excess)
        if strip is not None:
            log_q = _log_q(xp, strip, pole.root)
            alive = alive & (xp.real(log_q) < strip.reach)
            jet = _multiply(jet, _share(xp, plan, strip, order, pole, log_q, offset), order)
        value = jet[order] * float(math.factorial(order))
        value = value if complex_z else xp.real(value)
        if order:
            value = value * whole_power(1.0 / z, order)
        total = total + xp.where(alive, pole.weight * value, 0.0 * total)
    factor = xp.exp(excess / 2)
    if not complex_z:
        return xp.where(excess > 0, total * factor * factor, total)
    real, imag = xp.real(total), xp.imag(total)
    grown = xp.complex(
        xp.where(real == 0, real, real * factor * factor), xp.where(imag == 0, imag, imag * factor * factor)
    )
    return xp.where(excess > 0, grown, total)


def _residue(xp: Namespace, plan: ContourPlan, order: int, pole: Poles, excess: Any) -> Jet:
    """``s^(1-b) e^s / a``, times a power of ``-log s``, as a series, without the factor ``exp(excess)``."""
    alpha, power = plan.alpha, 1 - plan.beta
    real, imag = xp.real(pole.s), xp.imag(pole.s)
    plain = pole.size**power * xp.exp(xp.where(real < _LARGE, real, _LARGE))
    joined = xp.exp(real + power * xp.log(pole.size) - excess)
    size = xp.where((excess > 0) | (real > _LARGE), joined, plain)
    value = _unit(xp, imag) * pole.phase * (size / alpha)
    jet: Jet = [value]
    if order:
        exponent = [pole.s * c for c in _binomials(1 / alpha, order)]
        jet = _multiply(_exponential(exponent, value, order), _binomials(power / alpha, order), order)
    if plan.logs:
        height = [-xp.log(pole.s), *((-1.0) ** k / (k * alpha) for k in range(1, order + 1))]
        for _ in range(plan.logs):
            jet = _multiply(jet, height, order)
    return jet


def _share(xp: Namespace, plan: ContourPlan, strip: Strip, order: int, pole: Poles, log_q: Any, offset: Any) -> Jet:
    """``1 / (1 - e^(2 pi i tau) q)`` as a series."""
    if isinstance(offset, int):
        turn: Any = _PHASES[offset]
    else:
        turn = _PHASES[0] + 0.0 * offset
        for i in (1, 2, 3):
            turn = xp.where(offset == i, _PHASES[i], turn)
    slope = pole.root * (-strip.rate / strip.root_mu)
    exponent = [slope * c for c in _binomials(0.5 / plan.alpha, order)]
    q = _exponential(exponent, turn * xp.exp(log_q), order)
    first = 1.0 / (1.0 - q[0])
    share: Jet = [first]
    for n in range(1, order + 1):
        share.append(_coefficient(q, share, n, 1) * first)
    return share


def whole_power(base: Any, exponent: int) -> Any:
    """Integer power by multiplication; libraries use the logarithm for complex powers, which loses digits."""
    power: Any = None
    while exponent:
        if exponent & 1:
            power = base if power is None else power * base
        base = base * base
        exponent >>= 1
    return 1.0 if power is None else power


def _binomials(exponent: float, order: int) -> list[float]:
    """Coefficients of ``(1 + t)**exponent``."""
    values = [1.0]
    for k in range(order):
        values.append(values[-1] * (exponent - k) / (k + 1))
    return values


def _exponential(exponent: Jet, value: Any, order: int) -> Jet:
    """``exp`` of a series, given the exponential ``value`` of its first coefficient."""
    jet: Jet = [value]
    rising = [k * coefficient for k, coefficient in enumerate(exponent)]
    for n in range(1, order + 1):
        jet.append(_coefficient(rising, jet, n, 1) / n)
    return jet


def _multiply(left: Jet, right: Jet, order: int) -> Jet:
    """The product of two series."""
    return [_coefficient(left, right, n) for n in range(order + 1)]


def _coefficient(left: Jet, right: Jet, n: int, first: int = 0) -> Any:
    """The ``n``-th coefficient of the product of two series, without those of the left one below ``first``."""
    return reduce(add, (left[k] * right[n - k] for k in range(first, n + 1)))
