"""The stepping compiled with Numba: read when a solve is long enough for it, for Numba takes long to load."""
