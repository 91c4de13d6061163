"""Ordinary differential equations of fractional order."""
