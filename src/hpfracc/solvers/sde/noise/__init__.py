"""Random processes with memory, sampled exactly if possible.

Each process has ``sample(t, size, rng)``; Gaussian ones have ``covariance(s, t)`` and ``refine(path, t)``. The numbers
of a path depend only on the seed and the number of the path.
"""
