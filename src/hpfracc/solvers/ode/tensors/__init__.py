"""Fixed-step solves on tensors and JAX arrays: batched, on their own device, with derivatives."""
