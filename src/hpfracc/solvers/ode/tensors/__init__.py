"""Solves on tensors and JAX arrays: batched, on the device of the arrays, with derivatives."""
