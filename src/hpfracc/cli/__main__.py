"""``python -m hpfracc.cli`` is ``hpfracc``."""

from __future__ import annotations

import sys

from hpfracc.cli import main

sys.exit(main())
