"""MachineCalibration: every arm of an operation is timed on this machine, at a few sizes.

The times become knots of the arms' cost curves, in this process and in the wisdom that later processes start from.
Other sizes are learned from calls.
"""
