"""Which sizes of a table are calibrated beforehand; the others are held out."""

from __future__ import annotations

import random

from .tables import Group, Table


class Knots:
    """Picks each group's knots: ``every-other``, ``all``, ``none``, ``half`` (a random one for each seed), or sizes.

    Raises
    ------
    ValueError
        If ``spec`` is none of these, or names a size that no group of the table has.
    """

    def __init__(self, table: Table, spec: str) -> None:
        self.spec = spec
        self._listed: set[int] | None = None
        if spec not in ("every-other", "all", "none", "half"):
            self._listed = _parse(spec)
            unknown = sorted(self._listed - set(table.sizes))
            if unknown:
                sizes = ", ".join(map(str, table.sizes))
                raise ValueError(f"knots: size {unknown[0]} is not in {table.name}; its sizes are {sizes}")

    def of(self, group: Group, seed: int = 0) -> set[int]:
        """The sizes at which the arms of ``group`` are calibrated."""
        sizes = group.sizes
        if self._listed is not None:
            return self._listed & set(sizes)
        if self.spec == "half":
            return set(random.Random(f"half/{seed}/{group.name}").sample(sizes, (len(sizes) + 1) // 2))
        return set({"every-other": sizes[::2], "all": sizes, "none": []}[self.spec])


def _parse(spec: str) -> set[int]:
    try:
        return {int(text) for text in spec.split(",")}
    except ValueError:
        raise ValueError(
            f"knots={spec!r} is neither a list of sizes nor every-other, all, none or half; write it as 16,256,4096"
        ) from None
