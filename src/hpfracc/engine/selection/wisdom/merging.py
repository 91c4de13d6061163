"""One file out of many, without a lock and without a moment at which anything is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from hpfracc._files import write_whole
from hpfracc.engine.selection.records import Entry
from hpfracc.engine.selection.wisdom.document import encode_merged
from hpfracc.engine.selection.wisdom.folder import Snapshot, Source, remove_leftovers, set_aside
from hpfracc.engine.selection.wisdom.journal import remove_if_abandoned
from hpfracc.engine.selection.wisdom.location import Layout

__all__ = ["merge_into_one"]


def merge_into_one(layout: Layout, records: Sequence[Entry], snapshot: Snapshot) -> list[str]:
    """Write ``records``, which hold all that ``snapshot`` does, and remove what that makes superfluous.

    The order is what makes it safe, see the package's docstring: the new generation is on disk before anything goes,
    generations go only if a new one was written, journals only if nobody can add to them any more.

    Returns
    -------
    list of str
        What was found damaged, in words.

    Raises
    ------
    OSError
        If the folder cannot be written; nothing was removed then that is not in a file that stays.
    """
    if not snapshot.sources:
        return []
    data = encode_merged(records)
    generations = [source for source in snapshot.of_kind("generation") if not source.content.newer]
    superseded = [source.data for source in generations] != [data]
    if superseded:
        write_whole(layout.new_generation(), [data])
    notes = [_put_away(source, layout) for source in snapshot.damaged]
    for source in generations if superseded else []:
        if source.content.fault is None:
            with contextlib.suppress(OSError):
                source.path.unlink()
    if not any(source.content.newer or source.data == data for source in snapshot.of_kind("merged")):
        write_whole(layout.merged, [data])
    for source in snapshot.of_kind("journal"):
        if not source.content.newer and source.content.fault is None:
            remove_if_abandoned(source.path, len(source.data), layout)
    remove_leftovers(layout)
    return notes


def _put_away(source: Source, layout: Layout) -> str:
    if source.kind == "journal" and source.is_plain:  # its writer may still live
        aside: Path | None = layout.aside(source.path)
        if not remove_if_abandoned(source.path, source.status.st_size, layout, aside):
            aside = None
    else:
        aside = set_aside(source, layout)
    where = f"set aside as {aside.name}" if aside is not None else "left where it is"
    return (
        f"{source.path} is damaged ({source.content.fault}) and was {where}; {len(source.content.records)} records "
        "could still be read from it, the others come from what lies beside it or are measured again"
    )
