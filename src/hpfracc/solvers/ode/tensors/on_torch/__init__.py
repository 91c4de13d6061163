"""The stepping for PyTorch; imported only where a tensor is solved for."""
