"""Kernels that are the same text in several libraries: ``<primitive>.py`` makes them from a library's namespace.

``make_kernels(xp)`` gives the kernels by algorithm. A backend without a file of its own for a primitive takes them as
they are; one that adds something (a compilation, in-place products) calls ``make_kernels`` in its own file.
"""
