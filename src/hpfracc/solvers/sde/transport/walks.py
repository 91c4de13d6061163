"""Walks on which analyses of tracks are tried: scaled Brownian motion, Levy walks, transient diffusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc import _reading
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.fractional_brownian import fbm
from hpfracc.solvers.sde.noise.process import Noise, TimeGrid
from hpfracc.solvers.sde.noise.source import RandomSource
from hpfracc.solvers.sde.transport.laws import Draw, GaussianJumps, ParetoWaiting
from hpfracc.solvers.sde.transport.random_walk import ContinuousTimeRandomWalk

#: Streams of durations, and of what happens in them; segments drawn together.
_DURATIONS, _MOVES, _BLOCK = 1 << 57, 1 << 58, 64


@dataclass(frozen=True)
class _Walk(Noise):
    """A walk with an exponent in one or more dimensions."""

    alpha: float
    dimensions: int = 1
    _limits: ClassVar[dict[str, float]] = {}

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", _reading.number("alpha", self.alpha, **self._limits))  # type: ignore[arg-type]
        object.__setattr__(self, "dimensions", _reading.whole("dimensions", self.dimensions, least=1))

    @property
    def _components(self) -> tuple[int, ...]:
        return (self.dimensions,) if self.dimensions > 1 else ()

    def _brownian(self, source: RandomSource, clock: np.ndarray) -> np.ndarray:
        """Brownian motion of variance 1 at the times of increasing clocks (paths, 1, n)."""
        steps = np.diff(clock, axis=-1, prepend=0.0)
        count, _, n = clock.shape
        normals = source.numbers(0, count, self.dimensions * n, stream=_MOVES).reshape(count, self.dimensions, n)
        return np.asarray(np.cumsum(np.sqrt(steps) * normals, axis=-1))

    def _along(
        self, source: RandomSource, times: np.ndarray, count: int, law: ParetoWaiting, rates_of: Any
    ) -> np.ndarray:
        """Integrals (paths, c, n) of ``rates_of(number, durations)``, constant in segments of random durations."""
        turns, sums = [np.zeros((count, 1))], list[np.ndarray]()
        while turns[-1][:, -1].min() <= times[-1]:
            durations = law._draw(Draw(source, np.arange(count), _BLOCK, _DURATIONS + len(sums)))
            rates = rates_of(len(sums), durations)
            durations = np.minimum(durations, 2.0 * times[-1] + 1.0)  # the sums would lose digits
            sums.append(rates * durations[..., np.newaxis])
            turns.append(turns[-1][:, -1:] + np.cumsum(durations, axis=1))
        x, y = np.concatenate(turns, axis=1), np.cumsum(np.concatenate(sums, axis=1), axis=1)
        y = np.concatenate([np.zeros_like(y[:, :1]), y], axis=1)
        parts = range(y.shape[2])
        return np.array([[np.interp(times, x[k], y[k, :, c]) for c in parts] for k in range(count)])

    def _sample(self, source: RandomSource, grid: TimeGrid, count: int) -> Any:
        host, numbers = source.on_host(), self.dimensions * max(grid.times.size, 8 * _BLOCK)
        return source.array(host.in_chunks(count, numbers, lambda part, rows: self._paths(part, grid.times, rows)))

    def _paths(self, source: RandomSource, times: np.ndarray, count: int) -> np.ndarray:
        raise NotImplementedError


@final
@dataclass(frozen=True)
class ScaledBrownian(_Walk):
    r"""Brownian motion at the time :math:`t^\alpha`: its diffusivity grows or falls with time.

    Each component has the variance :math:`t^\alpha`; the increments are independent.

    Parameters
    ----------
    alpha : float
        Exponent of the mean squared displacement, positive.
    dimensions : int
        Number of components; paths have shape ``(*size, d, n)`` above 1.

    References
    ----------
    1. J.-H. Jeon, A. V. Chechkin, R. Metzler, "Scaled Brownian motion: a paradoxical process with a time dependent
       diffusivity", Phys. Chem. Chem. Phys. 16, 2014.
    """

    _limits: ClassVar[dict[str, float]] = {"above": 0.0}

    def _paths(self, source: RandomSource, times: np.ndarray, count: int) -> np.ndarray:
        return self._brownian(source, np.tile(times**self.alpha, (count, 1, 1)))

    def covariance(self, s: Any, t: Any) -> np.ndarray:
        """``min(s, t)**alpha``, of each component."""
        return np.asarray(np.minimum(np.asarray(s, float), np.asarray(t, float)) ** self.alpha)


@final
@dataclass(frozen=True)
class LevyWalk(_Walk):
    r"""Flights of speed 1 in random directions, whose durations have the Pareto law with the index :math:`3-\alpha`.

    Parameters
    ----------
    alpha : float
        Exponent of the mean squared displacement at late times, between 1 and 2.
    dimensions : int
        Number of components; paths have shape ``(*size, d, n)`` above 1.

    References
    ----------
    1. V. Zaburdaev, S. Denisov, J. Klafter, "Levy walks", Rev. Mod. Phys. 87, 2015.
    """

    _limits: ClassVar[dict[str, float]] = {"above": 1.0, "below": 2.0}

    def _paths(self, source: RandomSource, times: np.ndarray, count: int) -> np.ndarray:
        def velocities(number: int, _: np.ndarray) -> np.ndarray:
            ways = Draw(source, np.arange(count), _BLOCK, _MOVES + number).normals((self.dimensions,))
            return np.asarray(ways / np.linalg.norm(ways, axis=-1, keepdims=True))

        return self._along(source, times, count, ParetoWaiting(3.0 - self.alpha), velocities)


@final
@dataclass(frozen=True)
class TransientDiffusion(_Walk):
    r"""Annealed transient time motion: a diffusivity D holds for the time 1/D, then another one is drawn.

    With :math:`P(D < d) = d^\alpha` for :math:`d \le 1` the mean squared displacement grows like :math:`t^\alpha` at
    late times.

    Parameters
    ----------
    alpha : float
        Its exponent, between 0 and 1.
    dimensions : int
        Number of components; paths have shape ``(*size, d, n)`` above 1.

    References
    ----------
    1. P. Massignan et al., "Nonergodic subdiffusion from Brownian motion in an inhomogeneous medium", Phys. Rev. Lett.
       112, 2014.
    """

    _limits: ClassVar[dict[str, float]] = {"above": 0.0, "below": 1.0}

    def _paths(self, source: RandomSource, times: np.ndarray, count: int) -> np.ndarray:
        clock = self._along(source, times, count, ParetoWaiting(self.alpha), lambda _, d: 2.0 / d[..., np.newaxis])
        return self._brownian(source, clock)


#: Models by name: their lowest and highest exponents.
_RANGES = {"ATTM": (0.05, 0.95), "CTRW": (0.05, 1.0), "FBM": (0.05, 1.95), "LW": (1.05, 1.95), "SBM": (0.05, 2.0)}


def labelled_tracks(
    size: int,
    n: int,
    *,
    models: Sequence[str] = tuple(_RANGES),
    dimensions: int = 1,
    noise: float = 0.0,
    rng: Any = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tracks of known models and exponents, as trackers and classifiers are tried on [1].

    Parameters
    ----------
    size, n : int
        Number of tracks and of their positions, at the times 0, 1, ...
    models : sequence of str
        Drawn with equal probability: ``"ATTM"`` (:class:`TransientDiffusion`), ``"CTRW"``
        (:class:`ContinuousTimeRandomWalk` with Pareto's waiting times), ``"FBM"``, ``"LW"`` (:class:`LevyWalk`),
        ``"SBM"`` (:class:`ScaledBrownian`).
    dimensions : int
        Number of components.
    noise : float
        Standard deviation of a localisation error, in units of that of the steps of a track.
    rng : int or numpy.random.Generator, optional
        Seed.

    Returns
    -------
    tracks : ndarray, shape (size, dimensions, n)
        With steps of standard deviation 1 before the noise; a walk that never jumps stays at 0.
    models : ndarray of str, shape (size,)
        The model of each.
    alpha : ndarray, shape (size,)
        Its exponent, a multiple of 0.05.

    References
    ----------
    1. G. Munoz-Gil et al., "Objective comparison of methods to decode anomalous diffusion", Nat. Commun. 12, 2021.

    Examples
    --------
    >>> from hpfracc import transport
    >>> tracks, models, alpha = transport.labelled_tracks(10, 50, dimensions=2, noise=0.1, rng=1)
    >>> tracks.shape, models.shape, alpha.shape
    ((10, 2, 50), (10,), (10,))
    """
    random, times = _reading.generator(rng), np.arange(float(_reading.count("n", n, least=2)))
    names = [_reading.choice("model", each, tuple(_RANGES)) for each in _reading.listed("models", models, "names")]
    d, noise = _reading.whole("dimensions", dimensions, least=1), _reading.number("noise", noise, least=0.0)
    if not names:
        raise InvalidInputError(f"models is empty; name some of {', '.join(_RANGES)}")
    labels = random.choice(names, size=_reading.count("size", size))
    _reading.require_room(f"labelled_tracks of dimensions={d:,}", float(d) * times.size * labels.size)
    ranges = np.round(20 * np.array([_RANGES[each] for each in labels]).reshape(-1, 2)).astype(int)
    alpha = 0.05 * random.integers(ranges[:, 0], ranges[:, 1] + 1)
    tracks = np.empty((labels.size, d, times.size))
    for track, name, power in zip(tracks, labels, alpha, strict=True):
        seed = int(random.integers(2**62))
        if name == "FBM":
            track[:] = fbm(times.size - 1, 0.5 * power, T=times[-1], size=d, rng=seed)
        elif name == "CTRW":
            walk = ContinuousTimeRandomWalk(ParetoWaiting(power), GaussianJumps(), start=[0.0] * d)
            track[:] = walk.sample(times, rng=seed)
        else:
            kind = {"ATTM": TransientDiffusion, "LW": LevyWalk, "SBM": ScaledBrownian}[name]
            track[:] = kind(power, d).sample(times, rng=seed)
        track /= np.diff(track).std() or 1.0
    return tracks + noise * random.normal(size=tracks.shape), labels, alpha
