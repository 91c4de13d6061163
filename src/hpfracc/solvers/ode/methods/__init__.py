"""The methods, one per file, registered in :mod:`hpfracc.solvers.ode.method`."""
