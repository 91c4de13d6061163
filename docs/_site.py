"""Sphinx extension: the contents beside a page, links of names in the text, and none from the words of types."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["setup"]


class _Unlink(SphinxPostTransform):
    """Words of types that are no class, or more than one, are no links.

    Sphinx would link "shape" to any attribute of that name.
    """

    default_priority = 5  # before references are resolved

    def run(self, **_options: Any) -> None:
        domain = self.env.domains["py"]
        for node in list(self.document.findall(addnodes.pending_xref)):
            if node.get("refdomain") != "py" or not node.hasattr("refspecific"):
                continue
            name, kind = node["reftarget"], node["reftype"]
            found = domain.find_obj(self.env, node.get("py:module"), node.get("py:class"), name, kind, 1)
            if len(found) != 1 or not found[0][0].rpartition(".")[2][:1].isupper():
                node.replace_self(node.children)


class _LinkNames(SphinxPostTransform):
    """Names of functions and classes in the text of a guide lead to their pages.

    A single word must be an operator: ``beta`` and ``step`` are arguments, too.
    """

    default_priority = 6

    def run(self, **_options: Any) -> None:
        from hpfracc.operators.core.registry import all_operators

        here, words = self.env.docname, {kind.function_name for kind in all_operators()}
        if here.count("/") > 1:  # the page of a name
            return
        for node in list(self.document.findall(nodes.literal)):
            text = node.astext().removesuffix("()")
            name = re.sub(r"^(hf|hpfracc)\.", "", text)
            found = self.env.domains["py"].objects.get(f"hpfracc.{name}")
            if found is None or isinstance(node.parent, nodes.reference | nodes.title | addnodes.pending_xref):
                continue
            if name != text or name in words or re.search(r"[A-Z_.]", name):
                link = nodes.reference(
                    "", "", internal=True, refuri=self.app.builder.get_relative_uri(here, found.docname)
                )
                node.replace_self(link)
                link += node


def _collapse(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """The contents show what is near the page: all names of the reference would be as long as a page."""
    whole: Callable[..., str] | None = context.get("toctree")
    if whole is not None:
        context["toctree"] = lambda **options: whole(**{**options, "collapse": True})


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    app.connect("html-page-context", _collapse, priority=400)  # before the theme writes the contents
    app.add_post_transform(_Unlink)
    app.add_post_transform(_LinkNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
