"""Calibration: every arm of an operation is timed on this machine, within a time limit.

The times become knots of the arms' cost curves, in this process and in the wisdom that later processes start from.
"""
