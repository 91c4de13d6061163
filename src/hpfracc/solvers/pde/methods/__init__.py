"""Methods in time, one per file. Each takes any :class:`~hpfracc.solvers.pde.space.base.Semidiscretisation`."""
