"""Draws pictures of the README and the guides by scripts of the gallery: ``python docs/pictures/make_pictures.py``."""

from __future__ import annotations

from pathlib import Path

from hpfracc.cli.demo.scripts import find_scripts, run_script

NAMES = ["relaxation", "creep_fit", "spiral_waves", "maze", "levy_flight"]


def main() -> None:
    """Run the scripts, and write their pictures beside this file."""
    for script in find_scripts(NAMES):
        Path(__file__).with_name(f"{script.name}.png").write_bytes(run_script(script).picture)


if __name__ == "__main__":
    main()
