"""Sphinx extension: formulas as MathML, which browsers display without a script, so that pages work offline.

The converter is docutils' own. LaTeX that it does not support is a warning, and so an error in ``make docs``.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_log = logging.getLogger(__name__)

#: Commands that the converter lacks, and equivalent ones; and fractions of two digits, which it reads as one number.
_REPLACED = (
    (re.compile(r"\\([td]?frac)\s*(\d)\s*(\d)"), r"\\\1{\2}{\3}"),
    (re.compile(r"\\(bigg?|Bigg?)\s*([(\[])"), r"\\\1l\2"),
    (re.compile(r"\\(bigg?|Bigg?)\s*([)\]])"), r"\\\1r\2"),
    (re.compile(r"\\dots(?![A-Za-z])"), r"\\ldots"),
    (re.compile(r"\\texttt(?![A-Za-z])"), r"\\text"),
)
#: Brackets of ceilings and floors, which browsers would stretch to the height of the whole formula.
_FENCE = re.compile(r"<mo>(?=[⌈⌉⌊⌋])")


def _converted(node: nodes.Element, *, block: bool) -> str:
    """The formula of a node as MathML; its source if it cannot be converted."""
    source = text = node.astext()
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    try:
        return _FENCE.sub(r'<mo stretchy="false">', tex2mathml(text, as_block=block))
    except MathError as error:
        _log.warning("formula cannot be converted to MathML (%s): %s", error, source, location=node)
        return f"<code>{html.escape(source)}</code>"


def _visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(f'<span class="math notranslate">{_converted(node, block=False)}</span>')
    raise nodes.SkipNode


def _visit_block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math notranslate">{_converted(node, block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; ``html_math_renderer = "mathml"`` selects it."""
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
