"""Write ``tests/architecture/data/api-VERSION.json``: public names and signatures of the version checked out.

Run from the root of a checkout of that version, with the root of this one in ``PYTHONPATH`` behind it::

    PYTHONPATH=$PWD/src:THIS python -m benchmarks.make_api_record THIS/tests/architecture/data
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import hpfracc
from tests.helpers import public_api


def main() -> None:
    """Write the record."""
    assert Path(hpfracc.__file__).is_relative_to(Path.cwd()), hpfracc.__file__
    names = {path: public_api.describe(value) for path, value in sorted(public_api.public_objects().items())}
    results = {path: public_api.describe(value) for path, value in public_api.returned_objects().items()}
    record = {"version": hpfracc.__version__, "names": names, "results": results, "calls": {}}
    path = Path(sys.argv[1]) / f"api-{hpfracc.__version__}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
