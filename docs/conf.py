"""Sphinx configuration; ``make docs`` builds with warnings as errors."""

from __future__ import annotations

import sys
from pathlib import Path

import hpfracc

sys.path.insert(0, str(Path(__file__).parent))  # for the extensions of ours

project = "hpfracc"
author = "the hpfracc authors"
copyright = author
version = release = hpfracc.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "_gallery",
    "_outputs",
    "_generate",
    "_mathml",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"hpfracc {release}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_js_files = ["copy.js"]
html_math_renderer = "mathml"  # needs no script from the network

myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]

# numpydoc docstrings only, and signatures as they are written.
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
# Words such as "shape" in the types of parameters are attributes of several classes: no link is made or meant.
suppress_warnings = ["ref.python"]
