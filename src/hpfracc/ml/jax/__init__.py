"""Layers, equations and optimisers for JAX."""
