"""Fractional operators, one family per file. Each is lowered to the engine's primitives and knows no backend.

An operator is data; ``core/base.py`` makes a callable and a function of it. ``core/`` has what all operators share: how
a call is read, applied and reported. ``rules/`` has the methods, one per file, which are imported when they are used.
"""
