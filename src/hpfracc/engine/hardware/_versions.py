"""Versions of the installed libraries, read from their packages' metadata: nothing is imported."""

from __future__ import annotations

import sys

__all__ = ["library_version", "library_versions"]

#: The packages that may bring a module, in the order in which they are looked for, where names differ.
_PACKAGES: dict[str, tuple[str, ...]] = {
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy"),
    "pynvml": ("nvidia-ml-py",),
}
#: What :func:`library_versions` reports.
_LIBRARIES = ("numpy", "scipy", "numba", "torch", "jax", "jaxlib", "cupy", "pynvml")


def library_version(module: str) -> str | None:
    """Version of the package that brings ``module``, or None where it is not installed."""
    from importlib import metadata  # some milliseconds, which importing hpfracc need not pay

    for package in _PACKAGES.get(module, (module,)):
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    # A library put on the path by hand has no metadata, but may be loaded already.
    version = getattr(sys.modules.get(module), "__version__", None)
    return version if isinstance(version, str) else None


def library_versions() -> dict[str, str | None]:
    """Version of every library a backend stands on; None where it is not installed."""
    return {module: library_version(module) for module in _LIBRARIES}
