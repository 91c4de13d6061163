"""What is learned, kept: on disk, between processes, through crashes, without a lock.

A folder holds one *journal* per process (append-only lines of JSON), *generations* (immutable merged files, each under
a name of its own) and ``wisdom.json``, a copy of the newest generation for people and other machines to take.

Why nothing is lost when processes merge at once: a generation is only ever removed by a process that has read it and
has since written, under a name never used before, a newer one that contains it; a journal only by a process that has
seen all of it in a generation, after its writer has ended. So from every file removed a chain of ever newer files leads
to one that is still there and contains it. ``wisdom.json`` may be overwritten by a slower process with less: it is
never what a removal relies on, and the next merge completes it.
"""

from __future__ import annotations

from hpfracc.engine.selection.wisdom.location import continuing, reset_warnings, resolve_path
from hpfracc.engine.selection.wisdom.store import Wisdom

__all__ = ["Wisdom", "continuing", "reset_warnings", "resolve_path"]
