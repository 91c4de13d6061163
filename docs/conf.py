"""Sphinx configuration; ``make docs`` builds with warnings as errors."""

from __future__ import annotations

import sys
from pathlib import Path

import hpfracc

sys.path.insert(0, str(Path(__file__).parent))  # for the extensions of ours

from _pages import OPTIONS

project = "hpfracc"
author = "the hpfracc developers"
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
    "_site",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"hpfracc {release}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_js_files = ["copy.js"]
html_math_renderer = "mathml"  # needs no script from the network

myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath", "attrs_inline"]

# numpydoc docstrings only, options in groups, and signatures as they are written, on as many lines as they need.
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = [(name, "params_style") for name in OPTIONS]
python_maximum_signature_line_length = 88
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
smartquotes_action = "qe"  # options such as --json keep their dashes
