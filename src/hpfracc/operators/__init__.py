"""Fractional operators, one per file. Each is *lowered* to the engine's primitives and does not depend on a backend.

``core/`` has what all operators share: how a call is read, applied and reported. ``rules/`` has the methods, one per
file.
"""
