"""For PyTorch: buffers of modules, and gradients that are taken once. Imported only for tensors."""
