"""Equations with known solutions: for tests, documentation, comparisons, and as models."""
