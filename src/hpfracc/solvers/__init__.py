"""Differential equations of fractional order; one method per file."""
