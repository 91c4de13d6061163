"""Methods for samples, one per file: weights, order of accuracy, and where it holds."""
