"""Methods for samples on a uniform grid, one a file: weights, order of accuracy, and where it holds."""
