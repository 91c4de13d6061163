"""The memory of a fractional derivative in time: weights of difference formulas, and history sums."""
