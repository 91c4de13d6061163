"""Kernels with the same code in several libraries: ``<primitive>.py`` creates them from a library's namespace.

``make_kernels(xp)`` returns the kernels by algorithm. A backend without its own file for a primitive uses them
directly; one that adds something (compilation, in-place products, sizes of blocks) calls ``make_kernels`` in its own
file.
"""
