"""One file for each library: ``solve(problem, tolerance)`` returns an ``Answer`` or raises ``NotExpressible``."""
