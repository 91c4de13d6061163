"""The memory of a fractional derivative in time: weights of difference formulas, and sums over the past."""
