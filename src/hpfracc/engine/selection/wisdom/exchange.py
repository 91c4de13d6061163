"""Reading what somebody else measured: an exported file, or another folder."""

from __future__ import annotations

import os
from pathlib import Path

from hpfracc._files import read_plain
from hpfracc.engine.selection.records import Entry
from hpfracc.engine.selection.wisdom.document import MOST_BYTES, Content, read_merged
from hpfracc.engine.selection.wisdom.folder import read_folder
from hpfracc.engine.selection.wisdom.location import Layout
from hpfracc.errors import WisdomError

__all__ = ["read_import"]

_REMEDY = "export it again with `hpfracc wisdom export FILE` where it was measured"


def read_import(path: Path) -> list[Entry]:
    """All records of an exported file or a wisdom folder, or :class:`WisdomError`: a part of one is not taken."""
    try:
        if os.path.isdir(path):
            snapshot = read_folder(Layout.of(path))
            files = [(source.path, source.content) for source in snapshot.sources]
            if not files:
                raise WisdomError(f"{path} holds no wisdom to import; {_REMEDY}")
        else:
            files = [(path, read_merged(read_plain(path, MOST_BYTES).data))]
    except OSError as error:
        raise WisdomError(f"{path} cannot be imported ({error.strerror or error}); {_REMEDY}") from error
    for name, content in files:
        _check(name, content)
    return [record for _, content in files for record in content.records]


def _check(path: Path, content: Content) -> None:
    if content.newer:
        raise WisdomError(f"{path} was written by a later hpfracc; upgrade hpfracc to import it")
    if content.fault is not None:
        raise WisdomError(f"{path} cannot be imported: {content.fault}; {_REMEDY}")
