"""Methods for samples, one family per file: weights, order of accuracy, and where it holds."""
