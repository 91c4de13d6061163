"""What the package says about itself that follows from the home of the project: its README and its addresses."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class HomeHook(MetadataHookInterface):
    """Fill in ``readme`` and ``urls``."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Write what ``docs/_home.py`` derives from ``docs/home.toml``."""
        root = Path(self.root)
        spec = importlib.util.spec_from_file_location("_home", root / "docs" / "_home.py")
        if spec is None or spec.loader is None:
            raise ImportError("docs/_home.py cannot be read")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        home = module.read_home()
        text = (root / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": module.packaged_readme(text, home)}
        if addresses := module.urls(home):
            metadata["urls"] = addresses
