"""Ensembles on a GPU with Numba: a thread for each trajectory, its right-hand side inside one kernel."""
