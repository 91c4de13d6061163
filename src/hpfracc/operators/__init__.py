"""Fractional operators, one a file; each *lowers* itself to the engine's primitives and knows no backend.

``_base`` says what an operator is and how it is called, ``rules/`` holds the methods on uniform grids, one a file.
"""
