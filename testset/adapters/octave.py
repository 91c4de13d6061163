"""GNU Octave alone: fractional integrals by quadrature. It has no fractional derivatives and no solver of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import numpy as np

from testset.data import Answer, NotExpressible, Problem


def solve(problem: Problem, tolerance: float) -> Answer:
    """The answer with this relative tolerance: the singularity of the kernel is removed by a change of variable."""
    if shutil.which("octave") is None:
        raise ImportError("the program octave is not on the path")
    if problem.given.get("operator") != "riemann_liouville_integral":
        raise NotExpressible("no fractional derivatives, equations or processes")
    text = re.sub(
        r"(?<!\.)(\*\*|\*|/)", lambda found: {"**": ".^", "*": ".*", "/": "./"}[found[0]], problem.given["function"]
    )
    values = {**problem.parameters, "tolerance": tolerance}
    names = "; ".join(f"{name} = {value!r}" for name, value in values.items())
    # s = x - u^(1/alpha) turns (x - s)^(alpha-1) ds into du / alpha.
    lines = [
        f"{names}; f = @(t) {text} + 0*t; x = {json.dumps(problem.at[:, 0].tolist())};",
        "for k = 1:numel(x)",
        "  y = quadgk(@(u) f(x(k) - u.^(1/alpha)), 0, x(k)^alpha, 'RelTol', tolerance, 'AbsTol', 0) / gamma(1+alpha);",
        "  printf('%.17g\\n', y);",
        "end",
    ]
    command = ["octave", "--no-gui", "--norc", "--quiet", "--eval", "\n".join(lines)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return Answer(np.array([[float(line) for line in found.stdout.split()]]))
