"""The stepping for JAX; imported only where a JAX array is solved for."""
