"""Partial differential equations of fractional order in time and space, on boxes of one to three dimensions."""
