"""The methods, one a file; :mod:`hpfracc.solvers.ode.method` finds them by itself."""
