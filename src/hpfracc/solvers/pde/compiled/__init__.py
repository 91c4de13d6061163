"""Loops that are compiled with Numba; imported only where they are used."""
