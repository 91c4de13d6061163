"""Draws the pictures of docs/how-to/lattices.md: ``python docs/pictures/make_lattice.py``."""

from __future__ import annotations

from pathlib import Path

from hpfracc.cli.demo.chapters import lattice

HERE = Path(__file__).parent


def main() -> None:
    """A maze with its distance map, and a Lévy flight beside a plain walk."""
    maze, flights = lattice._drawn_maze(), lattice._flights()
    assert isinstance(maze.data, bytes)
    assert isinstance(flights.data, str)
    (HERE / "maze.png").write_bytes(maze.data)
    (HERE / "levy-flight.svg").write_text(flights.data.replace("currentColor", "#888") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
