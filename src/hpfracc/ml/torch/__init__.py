"""Layers, equations and optimisers for PyTorch."""
