"""Differential equations of fractional order; one method a file."""
