"""Where wisdom lies, what the files there are called, and warnings about them."""

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
    """Warn of ``what`` at ``where``, unless that was done before."""
    if (what, where) not in _given:
        _given.add((what, where))
        warnings.warn(message, WisdomWarning, stacklevel=4)


@contextlib.contextmanager
def continuing(where: object, consequence: str) -> Iterator[None]:
    """Let the caller's own work go on whatever goes wrong with wisdom in the block; a warning names it.

    The files are read strictly, so nothing known ends up here. But they are written by other processes, other versions
    and other machines, and a computation must not fail because of what was kept of earlier ones.
    """
    try:
        yield
    except Warning:  # whoever makes warnings errors wants them as errors
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        warn_once(
            "unexpected", str(where), f"wisdom at {where} could not be used ({reason}): {consequence}; please report it"
        )


def reset_warnings() -> None:
    """Let warnings that were given be given again."""
    _given.clear()


FileKind = Literal["merged", "generation", "journal", "leftover", "damaged"]

_STEM = "wisdom"


def resolve_path(setting: str | None) -> Path | None:
    """Where the setting ``wisdom`` (or ``HPFRACC_WISDOM``) says that wisdom is kept.

    Parameters
    ----------
    setting : str or None
        ``"off"``; a folder; a ``.json`` file, which then is the merged file, the others lying beside it; None for the
        user's cache folder.

    Returns
    -------
    Path or None
        An absolute path; None for off, and where there is no home to keep a cache in.
    """
    if setting is None or not setting.strip():
        return _default()
    if setting.strip().lower() == "off":
        return None
    text = os.path.expanduser(setting.strip())
    if text.startswith("~"):
        raise ConfigurationError(f"wisdom={setting!r}: whose home that is cannot be told; write the whole path")
    try:
        valid = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise ConfigurationError(f"wisdom={setting!r} holds characters that no path can have; name another folder")
    return Path(text).absolute()


def _default() -> Path | None:
    from platformdirs import user_cache_path  # some 20 ms, which only the default needs

    try:
        path = user_cache_path("hpfracc") / _STEM
    except RuntimeError:  # how later versions say that there is no home
        path = Path("~")
    if str(path).startswith("~"):
        words = "this account has no home folder, so what hpfracc learns is not kept; set HPFRACC_WISDOM to a folder "
        warn_once("homeless", "", f"{words}that can be written, or to 'off'")
        return None
    return path.absolute()


@dataclass(frozen=True, slots=True)
class WisdomLayout:
    """Names of the files in one place.

    Attributes
    ----------
    folder : Path
        Where they all are.
    stem : str
        Name of the merged file without ``.json``; several may share a folder.
    """

    folder: Path
    stem: str = _STEM

    @classmethod
    def of(cls, path: Path) -> WisdomLayout:
        """The layout at a path from :func:`resolve_path`."""
        if path.suffix == ".json" and not os.path.isdir(path):  # unlike Path.is_dir, raises nothing
            return cls(path.parent, path.stem)
        return cls(path)

    @property
    def merged(self) -> Path:
        """The merged file that people see."""
        return self.folder / f"{self.stem}.json"

    def new_generation(self) -> Path:
        """A name for a merged file that nobody ever used."""
        return self.folder / f"{self.stem}-{_random()}.json"

    def new_journal(self) -> Path:
        """A name for a journal that nobody ever used."""
        return self.folder / f"{self._journal_prefix}{host_name()}-{os.getpid()}-{_random()}.jsonl"

    def aside(self, path: Path) -> Path:
        """Where a damaged file is put."""
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        return path.with_name(f"{path.name}.damaged-{moment}-{_random()[:4]}")

    def kind_of(self, name: str) -> FileKind | None:
        """What a file of this folder is, by its name; None if it is none of ours."""
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
        """Whether a journal was written on a machine of this name."""
        return journal.name.startswith(f"{self._journal_prefix}{host_name()}-")

    @property
    def _journal_prefix(self) -> str:
        return "journal-" if self.stem == _STEM else f"{self.stem}.journal-"


def host_name() -> str:
    """The machine's name, fit for a file's name."""
    name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return re.sub(r"[^A-Za-z0-9_.]+", "_", name)[:64] or "host"


def _random() -> str:
    return os.urandom(8).hex()
