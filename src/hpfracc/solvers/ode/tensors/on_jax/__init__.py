"""Stepping for JAX. Imported only for problems in JAX arrays."""
