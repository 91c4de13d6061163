"""Samples against a law: deviations counted in standard errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["covariance_errors", "mean_error"]


def covariance_errors(paths: np.ndarray, expected: np.ndarray, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """By how many standard errors ``E x_i x_j`` of Gaussian paths of mean 0 is off, for each pair of points."""
    count = paths.shape[0]
    found = np.array([np.mean(paths[:, i] * paths[:, j]) for i, j in pairs])
    wanted = np.array([expected[i, j] for i, j in pairs])
    spread = np.array([expected[i, i] * expected[j, j] + expected[i, j] ** 2 for i, j in pairs])
    return np.asarray((found - wanted) / np.sqrt(spread / count))


def mean_error(values: np.ndarray, expected: float) -> float:
    """By how many standard errors the mean of independent values is off."""
    return float((values.mean() - expected) / (values.std() / np.sqrt(values.size)))
