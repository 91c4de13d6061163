"""Only keeps old import paths alive: operators live in :mod:`hpfracc.operators`."""
