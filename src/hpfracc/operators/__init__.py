"""Fractional operators, one a file; each *lowers* itself to the engine's primitives and knows no backend.

``core/`` holds what all operators share: how a call is read, applied and reported. ``rules/`` holds the methods, one a
file.
"""
