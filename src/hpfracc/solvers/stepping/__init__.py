"""Steps of differential equations: the equation of a step, adaptive steps, and the walk over an interval."""
