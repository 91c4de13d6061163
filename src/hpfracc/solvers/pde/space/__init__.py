"""Discretisations in space, one per file, and the choice among them."""
