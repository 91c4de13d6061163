"""Rows of ``solve_fode`` and ``solve_fpde``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from scipy.integrate import solve_ivp

import hpfracc as hf
from _alternatives.row import Pair, row
from hpfracc.pde import Diffusion, Dirichlet, Region, Robin
from hpfracc.special import mittag_leffler

Array = np.ndarray[Any, Any]


def largest(difference: Any) -> float:
    """The largest absolute value, where there is one."""
    return float(np.nanmax(np.abs(difference)))


def inverse_laplace(transform: Callable[[complex], Any], t: float, count: int = 64) -> Any:
    """A real function with the singularities of its transform on the negative axis: Weideman and Trefethen's parabola.

    The references of this file: 64 nodes leave 1e-12, less than 1e-10 with rounding.
    """
    h = 3.0 / 16
    scale = np.pi * 16 / (12.0 * t)
    total: Any = 0.0
    for k in range(count // 4):
        u = (k + 0.5) * h
        z = scale * (1j * u + 1.0) ** 2
        dz = 2j * scale * (1j * u + 1.0)
        total = total + np.imag(np.exp(z * t) * transform(z) * dz) * h / np.pi
    return total


def along_cut(transform: Callable[[Array], Array], times: Array) -> Array:
    """The part of the inverse transform that comes from the cut along the negative axis."""
    log_r, step = np.linspace(-60.0, 12.0, 2000, retstep=True)
    r = np.exp(log_r)
    return -np.exp(-np.outer(times, r)) @ (transform(-r + 0j).imag * r) * step / np.pi


# -- order 1 ----------------------------------------------------------------------------------------------------------


def l_shape(intervals: int) -> tuple[Array, Callable[..., Any]]:
    """Grid points of an axis, and which cells of the square are in the L."""
    return np.linspace(0.0, 2.0, intervals + 1), lambda x, y: (x < 1.0) | (y < 1.0)


def l_matrix(x: Array) -> tuple[Any, Array]:
    """The five-point Laplacian at the points inside the L, and which they are."""
    h, n = x[1] - x[0], x.size
    inside = np.zeros((n, n), bool)
    a, b = np.meshgrid(x, x, indexing="ij")
    inside[1:-1, 1:-1] = ((a < 1.0 - h / 2) | (b < 1.0 - h / 2))[1:-1, 1:-1]
    second = sparse.diags([1.0, -2.0, 1.0], [-1, 0, 1], shape=(n, n)) / h**2
    whole = sparse.kron(second, sparse.eye(n)) + sparse.kron(sparse.eye(n), second)
    kept = np.flatnonzero(inside.reshape(-1))
    return whole.tocsc()[kept][:, kept], inside


def waves(x: Array) -> tuple[Array, Array]:
    """Eigenfunctions of the L, as matrices of values, and minus their eigenvalues on the grid."""
    h = x[1] - x[0]
    pairs = [(1, 1), (1, 2), (2, 3), (5, 4)]
    shapes = np.array([np.outer(np.sin(k * np.pi * x), np.sin(m * np.pi * x)) for k, m in pairs])
    one = [2.0 * (1.0 - np.cos(k * np.pi * h)) / h**2 for k in range(6)]
    return shapes, np.array([one[k] + one[m] for k, m in pairs])


@row(
    "heat_l_shape",
    "heat equation on an L-shape, 2,945 unknowns, 11 outputs, rtol 1e-6",
    alternative="solve_ivp, BDF with the sparse matrix as its Jacobian",
    aim="1.2 x",
)
def heat_l_shape() -> Pair:
    x, inside = l_shape(64)
    shapes, rates = waves(x)
    times = np.linspace(0.0, 0.1, 11)
    u0 = shapes.sum(axis=0)

    def ours() -> Any:
        region = Region((x, x), inside)
        found = hf.solve_fpde(None, (0.0, 0.1), u0, x=region, space=Diffusion(1.0), boundary=0.0, t_eval=times)
        return np.nan_to_num(found.u)

    def other() -> Any:
        matrix, which = l_matrix(x)
        found = solve_ivp(
            lambda t, u: matrix @ u, (0.0, 0.1), u0[which], method="BDF", jac=matrix, t_eval=times, rtol=1e-6, atol=1e-9
        )
        u = np.zeros((times.size, *u0.shape))
        u[:, which] = found.y.T
        return u

    which = l_matrix(x)[1]
    truth = np.einsum("tk,kij->tij", np.exp(-np.outer(times, rates)), shapes) * which
    return Pair(ours, other, lambda u: largest(u - truth))


def porous(m: int) -> Pair:
    """Barenblatt's solution of u_t = (u^m)_xx."""
    x = np.linspace(-6.0, 6.0, 257)
    h, beta = x[1] - x[0], 1.0 / (m + 1)

    def barenblatt(t: float) -> Array:
        inner = 1.0 - beta * (m - 1) / (2 * m) * (x / t**beta) ** 2
        return t**-beta * np.maximum(inner, 0.0) ** (1.0 / (m - 1))

    def ours() -> Any:
        space = Diffusion(lambda x, u: m * np.abs(u) ** (m - 1))
        found = hf.solve_fpde(
            None, (1.0, 2.0), barenblatt(1.0), x=x, space=space, boundary="neumann", rtol=1e-4, t_eval=[2.0]
        )
        return found.u[-1]

    def slope(t: float, u: Array) -> Array:
        flux = np.diff(np.abs(u) ** m) / h
        change = np.empty_like(u)
        change[1:-1] = np.diff(flux) / h
        change[0], change[-1] = 2.0 * flux[0] / h, -2.0 * flux[-1] / h
        return change

    def other() -> Any:
        found = solve_ivp(
            slope, (1.0, 2.0), barenblatt(1.0), method="LSODA", lband=1, uband=1, rtol=1e-4, atol=1e-9, t_eval=[2.0]
        )
        return found.y[:, -1]

    return Pair(ours, other, lambda u: largest(u - barenblatt(2.0)))


for exponent in (2, 4):
    row(
        f"porous_{exponent}",
        f"porous medium, m = {exponent}, 257 points, order 1, rtol 1e-4 (the error is that of the grid)",
        alternative="solve_ivp, LSODA with a banded Jacobian",
        aim="3 x",
    )(functools.partial(porous, exponent))


# -- linear equations, constant in time -------------------------------------------------------------------------------


def line_matrix(x: Array, k: Array, lower: float | None, upper: float | None) -> Array:
    """Finite volumes around points, with Robin's u' = number times u at the ends; None: the end is given as 0."""
    h, n = np.diff(x), x.size
    widths = np.zeros(n)
    widths[:-1] += h / 2
    widths[1:] += h / 2
    matrix = np.zeros((n, n))
    for i in range(n - 1):
        matrix[i : i + 2, i : i + 2] += k[i] / h[i] * np.array([[-1.0, 1.0], [1.0, -1.0]])
    matrix[0, 0] -= k[0] * (lower or 0.0)
    matrix[-1, -1] -= k[-1] * (upper or 0.0)
    part = slice(int(lower is None), n - int(upper is None))
    return (matrix / widths[:, None])[part, part]


def by_eigenvectors(matrix: Array, u0: Array, alpha: float, times: Array, widths: Array | None = None) -> Array:
    """``E_alpha(A t^alpha) u0`` of a matrix that is symmetric after a scaling with the widths of its cells."""
    root = np.ones(len(u0)) if widths is None else np.sqrt(widths)
    values, vectors = np.linalg.eigh(root[:, None] * matrix / root)
    factors = mittag_leffler(np.outer(times**alpha, values), alpha)
    return (factors * (vectors.T @ (root * u0))) @ vectors.T / root


def by_laplace(matrix: Array, u0: Array, alpha: Any, t: float) -> Array:
    """The same from its Laplace transform; also for orders that vary in space."""
    eye = np.eye(len(u0))
    return inverse_laplace(
        lambda s: np.linalg.solve(np.diag(s**alpha * eye.diagonal()) - matrix, s ** (alpha - 1.0) * u0), t
    )


def layers(x: Array) -> Array:
    return np.where(x < 0.5, 1.0, 0.1)


def steady(x: Array, boundary: Any, lower: float | None, upper: float | None, k: Callable[[Array], Array]) -> Pair:
    """Subdiffusion on a line with D(x)."""
    alpha, times, u0 = 0.6, np.linspace(0.01, 0.5, 50), np.cos(3.0 * x) * x * (1.0 - x)
    part = slice(int(lower is None), x.size - int(upper is None))
    widths = np.gradient(x) * np.where((np.arange(x.size) % (x.size - 1)) == 0, 0.5, 1.0)

    def ours() -> Any:
        found = hf.solve_fpde(
            None, (0.0, 0.5), u0, x=x, space=Diffusion(k), boundary=boundary, alpha=alpha, t_eval=times
        )
        return found.u

    def other() -> Any:
        u = np.zeros((times.size, x.size))
        matrix = line_matrix(x, k(0.5 * (x[1:] + x[:-1])), lower, upper)
        u[:, part] = by_eigenvectors(matrix, u0[part], alpha, times, widths[part])
        return u

    matrix = line_matrix(x, k(0.5 * (x[1:] + x[:-1])), lower, upper)
    truth = by_laplace(matrix, u0[part], alpha, 0.5)
    return Pair(ours, other, lambda u: largest(u[-1, part] - truth))


LINES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "layered": ("layered D(x), 65 points, Dirichlet", (np.linspace(0.0, 1.0, 65), "dirichlet", None, None, layers)),
    "robin": (
        "layered D(x), 65 points, Robin at both ends",
        (np.linspace(0.0, 1.0, 65), (Robin(2.0, 1.0, 0.0), Robin(1.0, 1.0, 0.0)), 2.0, 1.0, layers),
    ),
    "mixed": (
        "layered D(x), 65 points, Dirichlet and Neumann",
        (np.linspace(0.0, 1.0, 65), ("dirichlet", "neumann"), None, 0.0, layers),
    ),
    "uneven": (
        "D = 1 on 65 points that are not equally spaced, Neumann",
        (np.linspace(0.0, 1.0, 65) ** 1.5, "neumann", 0.0, 0.0, np.ones_like),
    ),
}
for each, (words, given) in LINES.items():
    row(
        f"steady_{each}",
        f"{words}, order 0.6, 50 outputs",
        alternative="one eigendecomposition, and hf.special.mittag_leffler",
        aim="2 x",
    )(functools.partial(steady, *given))


@row(
    "steady_periodic",
    "D = 1 + sin(2 pi x)/2 on 64 points of a period, order 0.6, 50 outputs",
    alternative="one eigendecomposition, and hf.special.mittag_leffler",
    aim="2 x",
)
def steady_periodic() -> Pair:
    x, alpha, times = np.arange(64) / 64, 0.6, np.linspace(0.01, 0.5, 50)
    u0 = np.cos(2.0 * np.pi * x) + np.sin(4.0 * np.pi * x)

    def diffusivity(x: Array) -> Array:
        return 1.0 + 0.5 * np.sin(2.0 * np.pi * x)

    def matrix() -> Array:
        k = diffusivity(x + 0.5 / 64) * 64**2
        return np.diag(-k - np.roll(k, 1)) + np.roll(np.diag(k), 1, axis=1) + np.roll(np.diag(k), 1, axis=1).T

    def ours() -> Any:
        space = Diffusion(diffusivity)
        return hf.solve_fpde(None, (0.0, 0.5), u0, x=x, space=space, boundary="periodic", alpha=alpha, t_eval=times).u

    wave = 2j * np.pi * np.fft.fftfreq(64, 1 / 64)
    wave[32] = 0.0

    def derivative(u: Array) -> Array:
        return np.fft.ifft(wave[:, None] * np.fft.fft(u, axis=0), axis=0).real

    spectral = derivative(diffusivity(x)[:, None] * derivative(np.eye(64)))
    truth = by_laplace(spectral, u0, alpha, 0.5)
    return Pair(ours, lambda: by_eigenvectors(matrix(), u0, alpha, times), lambda u: largest(u[-1] - truth))


def region(intervals: int) -> tuple[Callable[..., Any], Callable[[], Any], Callable[[Any], float]]:
    """Subdiffusion on the L: ours, by one eigendecomposition, and the error."""
    x, inside = l_shape(intervals)
    shapes, rates = waves(x)
    times, alpha, u0 = np.linspace(0.01, 0.1, 11), 0.6, shapes.sum(axis=0)
    matrix, which = l_matrix(x)

    def ours(**more: Any) -> Any:
        found = hf.solve_fpde(
            None, (0.0, 0.1), u0, x=Region((x, x), inside), space=Diffusion(1.0), boundary=0.0, alpha=alpha,
            t_eval=times, **more,
        )  # fmt: skip
        return np.nan_to_num(found.u)

    def other() -> Any:
        u = np.zeros((times.size, *u0.shape))
        u[:, which] = by_eigenvectors(matrix.toarray(), u0[which], alpha, times)
        return u

    factors = mittag_leffler(-np.outer(times**alpha, rates), alpha)
    truth = np.einsum("tk,kij->tij", factors, shapes) * which
    return ours, other, lambda u: largest(u - truth)


@row(
    "region_few",
    "subdiffusion on an L-shape, 705 unknowns, order 0.6, 11 outputs",
    alternative="one eigendecomposition, and hf.special.mittag_leffler",
    aim="2 x",
)
def region_few() -> Pair:
    ours, other, error = region(32)
    return Pair(ours, other, error)


@row(
    "region_many",
    "subdiffusion on an L-shape, 2,945 unknowns, order 0.6, 11 outputs",
    alternative="our own steps, method='adaptive'",
    aim="0.1 x",
)
def region_many() -> Pair:
    ours, _, error = region(64)
    return Pair(ours, lambda: ours(method="adaptive"), error)


@row(
    "order_of_place",
    "alpha(x) = 0.5 + 0.4 x, D = 1, 33 points, rtol 1e-6",
    alternative="none: in seconds",
    aim="15 s",
)
def order_of_place() -> Pair:
    x = np.linspace(0.0, 1.0, 33)
    u0 = np.sin(np.pi * x)

    def ours() -> Any:
        return hf.solve_fpde(
            None, (0.0, 1.0), u0, x=x, space=Diffusion(1.0), boundary=0.0, alpha=lambda x: 0.5 + 0.4 * x, t_eval=[1.0],
            rtol=1e-6, estimate=True,
        )  # fmt: skip

    matrix = line_matrix(x, np.ones(32), None, None)
    truth = by_laplace(matrix, u0[1:-1], 0.5 + 0.4 * x[1:-1], 1.0)
    return Pair(ours, None, lambda u: largest(u.u[-1, 1:-1] - truth), lambda u: u.error_estimate.time)


@row(
    "data_squared",
    "order 1.5 with Dirichlet data t^2 at one end, 65 points, rtol 1e-6",
    alternative="none: in seconds",
    aim="3 s",
)
def data_squared() -> Pair:
    x = np.linspace(0.0, 1.0, 65)

    def ours() -> Any:
        return hf.solve_fpde(
            None, (0.0, 1.0), 0.0 * x, x=x, space=Diffusion(1.0), boundary=(Dirichlet(lambda t: t**2), 0.0), alpha=1.5,
            du0=0.0 * x, t_eval=[1.0], rtol=1e-6, estimate=True,
        )  # fmt: skip

    matrix = line_matrix(x, np.ones(64), None, None)
    values, vectors = np.linalg.eigh(matrix)
    edge = vectors.T @ np.append(64.0**2, np.zeros(62))
    truth = vectors @ (2.0 * mittag_leffler(values, 1.5, 4.5) * edge)
    return Pair(ours, None, lambda u: largest(u.u[-1, 1:-1] - truth), lambda u: u.error_estimate.time)


# -- ordinary equations -----------------------------------------------------------------------------------------------


@row(
    "fast_source",
    "D^.6 y = -y + sin 200 t to t = 10, rtol 1e-6",
    alternative="our own fixed step of the same error",
    aim="2 x",
)
def fast_source() -> Pair:
    times = np.linspace(0.1, 10.0, 50)
    decay = along_cut(lambda s: 200.0 / ((s**2 + 4e4) * (s**0.6 + 1.0)), times)
    truth = np.imag(np.exp(200j * times) / ((200j) ** 0.6 + 1.0)) + decay

    def ours(**more: Any) -> Any:
        return hf.solve_fode(
            lambda t, y: -y + np.sin(200.0 * t), (0.0, 10.0), [0.0], 0.6, t_eval=times, atol=1e-8, **more
        )

    def other() -> Any:
        return ours(step=2e-5)

    return Pair(ours, other, lambda found: largest(found.y[0] - truth), lambda found: found.error_estimate)


@row(
    "five_terms",
    "Xue and Bai's equation of five terms to t = 1,000, rtol 1e-6",
    alternative="our own fixed step of .01",
    aim="2 x",
)
def five_terms() -> Pair:
    times = np.linspace(10.0, 1000.0, 100)

    def ours(**more: Any) -> Any:
        return hf.solve_fode(
            lambda t, y: 6.0 * np.cos(t) - 4.0 * y, (0.0, 1000.0), [1.0], 3.0, dy0=[[1.0], [-1.0]],
            terms=[(1.0, 2.5), (1.0, 2.0), (4.0, 1.0), (1.0, 0.5)], t_eval=times, **more,
        )  # fmt: skip

    truth = np.sin(times) + np.cos(times)
    return Pair(ours, lambda: ours(step=0.01), lambda a: largest(a.y[0] - truth), lambda a: a.error_estimate)


@row(
    "bagley_torvik",
    "y'' + D^1.5 y + 1e4 y = 0 from y = 1 to t = 5, rtol 1e-6",
    alternative="none: in seconds",
    aim="3 s",
)
def bagley_torvik() -> Pair:
    times = np.linspace(0.1, 5.0, 50)

    def ours() -> Any:
        return hf.solve_fode(
            lambda t, y: -1e4 * y, (0.0, 5.0), [1.0], 2.0, dy0=[[0.0]], terms=[(1.0, 1.5)], t_eval=times
        )

    def ratio(s: Any) -> Any:
        return (s + s**0.5) / (s**2 + s**1.5 + 1e4)

    pole = 100j
    for _ in range(50):
        pole -= (pole**2 + pole**1.5 + 1e4) / (2.0 * pole + 1.5 * pole**0.5)
    residue = (pole + pole**0.5) / (2.0 * pole + 1.5 * pole**0.5)
    truth = 2.0 * np.real(residue * np.exp(pole * times)) + along_cut(ratio, times)
    return Pair(ours, None, lambda found: largest(found.y[0] - truth), lambda found: found.error_estimate)


@row(
    "van_der_pol_one",
    "Van der Pol, mu = 100, at alpha = 1 to t = 200, rtol 1e-6, 20,001 outputs",
    alternative="solve_ivp, LSODA with rtol 1e-9 (with 1e-6 its error is that of a phase that is lost)",
    aim="2 x",
)
def van_der_pol() -> Pair:
    times = np.linspace(0.0, 200.0, 20001)

    def slope(t: float, y: Array) -> Array:
        return np.array([y[1], 100.0 * (1.0 - y[0] ** 2) * y[1] - y[0]])

    def ours() -> Any:
        return hf.solve_fode(slope, (0.0, 200.0), [2.0, 0.0], 1.0, t_eval=times)

    def other() -> Any:
        return solve_ivp(slope, (0.0, 200.0), [2.0, 0.0], method="LSODA", t_eval=times, rtol=1e-9, atol=1e-12)

    fine = solve_ivp(slope, (0.0, 200.0), [2.0, 0.0], method="Radau", t_eval=times, rtol=1e-12, atol=1e-12).y
    return Pair(
        ours, other, lambda found: largest(found.y[0] - fine[0]), lambda found: float(np.max(found.error_estimate))
    )
