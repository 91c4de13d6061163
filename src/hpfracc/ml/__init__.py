"""Machine learning on fractional calculus, and the import paths that users' code already relies on.

Importing this package imports no array library.
"""
