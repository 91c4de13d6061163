"""Stochastic equations of fractional order and the noise that drives them."""
