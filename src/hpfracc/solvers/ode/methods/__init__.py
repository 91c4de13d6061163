"""The methods, one a file; :mod:`hpfracc.solvers.ode._method` finds them by itself."""
