"""Sphinx extension: the contents beside a page, and no links from the words of types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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


def _collapse(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """The contents show what is near the page: all names of the reference would be as long as a page."""
    whole: Callable[..., str] | None = context.get("toctree")
    if whole is not None:
        context["toctree"] = lambda **options: whole(**{**options, "collapse": True})


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    app.connect("html-page-context", _collapse, priority=400)  # before the theme writes the contents
    app.add_post_transform(_Unlink)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
