"""Fractional memory: weights on any mesh, kernels as sums of exponentials and their states, sums over past blocks."""
