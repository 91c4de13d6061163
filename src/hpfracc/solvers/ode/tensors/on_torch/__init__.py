"""Stepping for PyTorch. Imported only for problems in tensors."""
