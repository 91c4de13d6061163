"""``python -m hpfracc`` is ``hpfracc``."""

from __future__ import annotations

import sys

from hpfracc.cli import main

if __name__ == "__main__":
    sys.exit(main())
