"""Methods in time; one a file. Each takes any :class:`~hpfracc.solvers.pde.space.base.Semidiscretisation`."""
