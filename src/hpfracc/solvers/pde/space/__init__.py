"""Discretisations in space, one a file, and the choice among them."""
