"""Kernels with the same code in several libraries: ``make_kernels(library)`` in ``<primitive>.py`` creates them.

``library`` is the backend's object of ``library.py``: its namespace, and what differs beyond names (compilation,
in-place products, sizes of blocks). A backend without its own file for a primitive uses the kernels directly; one that
adds an algorithm calls ``make_kernels`` in its own file.
"""
