"""Loops compiled with Numba; imported only where they are used."""
