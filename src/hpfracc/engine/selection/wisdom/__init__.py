"""Wisdom: measured times kept on disk, shared by processes without a lock, and safe through crashes.

A folder has one *journal* per process (append-only lines of JSON), *generations* (immutable merged files, each with
a unique name), and ``wisdom.json``, a copy of the newest generation for reading and for other machines.

Concurrent merges lose nothing. A process removes a generation only after it has read it and has written a newer one
that contains it, under a name never used before. It removes a journal only after its writer has ended and all of it is
in a generation. So each removed file is contained in a newer one, and by induction in one that still exists.
``wisdom.json`` may be overwritten by a slower process with less; no removal relies on it, and the next merge completes
it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hpfracc.errors import ConfigurationError, WisdomWarning

__all__ = ["FileKind", "WisdomLayout", "continuing", "host_name", "reset_warnings", "resolve_path", "warn_once"]

_given: set[tuple[str, str]] = set()


def warn_once(what: str, where: str, message: str) -> None:
    """Warn about ``what`` at ``where`` once per process."""
    if (what, where) not in _given:
        _given.add((what, where))
        warnings.warn(message, WisdomWarning, stacklevel=4)


@contextlib.contextmanager
def continuing(where: object, consequence: str) -> Iterator[None]:
    """Turn any error in the block into a warning, so that the caller's computation continues.

    The files are read strictly, so no known fault gets here. But they are written by other processes, versions and
    machines, and a computation must not fail because of them.
    """
    try:
        yield
    except Warning:  # the user turned warnings into errors
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        warn_once(
            "unexpected", str(where), f"wisdom at {where} could not be used ({reason}): {consequence}; please report it"
        )


def reset_warnings() -> None:
    """Allow all warnings to be given again."""
    _given.clear()


FileKind = Literal["merged", "generation", "journal", "leftover", "damaged"]

_STEM = "wisdom"


def resolve_path(setting: str | None) -> Path | None:
    """The path of the setting ``wisdom`` (or ``HPFRACC_WISDOM``).

    Parameters
    ----------
    setting : str or None
        ``"off"``; a folder; a ``.json`` file, which is then the merged file, with the others in its folder; None for
        the user's cache folder.

    Returns
    -------
    Path or None
        An absolute path; None for ``"off"``, and for an account without a home folder.
    """
    if setting is None or not setting.strip():
        return _default()
    if setting.strip().lower() == "off":
        return None
    text = os.path.expanduser(setting.strip())
    if text.startswith("~"):
        raise ConfigurationError(f"wisdom={setting!r}: the home folder is unknown; write the full path")
    try:
        valid = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise ConfigurationError(f"wisdom={setting!r} has characters that are invalid in a path; name another folder")
    return Path(text).absolute()


def _default() -> Path | None:
    from platformdirs import user_cache_path  # takes 20 ms, and only the default needs it

    try:
        path = user_cache_path("hpfracc") / _STEM
    except RuntimeError:  # later versions signal a missing home folder in this way
        path = Path("~")
    if str(path).startswith("~"):
        words = "this account has no home folder, so what hpfracc learns is not stored; set HPFRACC_WISDOM to a folder "
        warn_once("homeless", "", f"{words}that can be written, or to 'off'")
        return None
    return path.absolute()


@dataclass(frozen=True, slots=True)
class WisdomLayout:
    """The names of the files in a wisdom folder.

    Attributes
    ----------
    folder : Path
        The folder.
    stem : str
        Name of the merged file without ``.json``; several stems may share a folder.
    """

    folder: Path
    stem: str = _STEM

    @classmethod
    def of(cls, path: Path) -> WisdomLayout:
        """The layout for a path from :func:`resolve_path`."""
        if path.suffix == ".json" and not os.path.isdir(path):  # unlike Path.is_dir, does not raise
            return cls(path.parent, path.stem)
        return cls(path)

    @property
    def merged(self) -> Path:
        """The merged file."""
        return self.folder / f"{self.stem}.json"

    def new_generation(self) -> Path:
        """A new, unique name for a merged file."""
        return self.folder / f"{self.stem}-{_random()}.json"

    def new_journal(self) -> Path:
        """A new, unique name for a journal."""
        return self.folder / f"{self._journal_prefix}{host_name()}-{os.getpid()}-{_random()}.jsonl"

    def aside(self, path: Path) -> Path:
        """The new name of a damaged file."""
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        return path.with_name(f"{path.name}.damaged-{moment}-{_random()[:4]}")

    def kind_of(self, name: str) -> FileKind | None:
        """The kind of a file, by its name; None if it is not a wisdom file."""
        stem, prefix = re.escape(self.stem), re.escape(self._journal_prefix)
        patterns: dict[FileKind, str] = {
            "merged": rf"{stem}\.json",
            "generation": rf"{stem}-[0-9a-f]{{16}}\.json",
            "journal": rf"{prefix}[^-]+-\d+-[0-9a-f]{{16}}\.jsonl",
            "leftover": rf"\.{stem}(-[0-9a-f]{{16}})?\.json\.[0-9a-f]{{16}}\.tmp",
            "damaged": rf"({stem}(-[0-9a-f]{{16}})?\.json|{prefix}[^-]+-\d+-[0-9a-f]{{16}}\.jsonl)\.damaged-.+",
        }
        return next((kind for kind, pattern in patterns.items() if re.fullmatch(pattern, name)), None)

    def is_from_here(self, journal: Path) -> bool:
        """Whether a journal was written on this machine, by its name."""
        return journal.name.startswith(f"{self._journal_prefix}{host_name()}-")

    @property
    def _journal_prefix(self) -> str:
        return "journal-" if self.stem == _STEM else f"{self.stem}.journal-"


def host_name() -> str:
    """The machine's name, as part of a file name."""
    name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return re.sub(r"[^A-Za-z0-9_.]+", "_", name)[:64] or "host"


def _random() -> str:
    return os.urandom(8).hex()
