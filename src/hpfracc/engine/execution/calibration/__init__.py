"""Calibration: every arm of an operation is timed on this machine, within a time limit.

The times become knots of the arms' cost curves, in this process and in the wisdom that later processes start from.
"""

from __future__ import annotations

from hpfracc.engine.execution.calibration.report import CalibrationReport, Crossover, Skipped
from hpfracc.engine.execution.calibration.runner import Step, calibrate
from hpfracc.engine.execution.calibration.series import DEFAULT_OPERATIONS, Series
from hpfracc.engine.execution.calibration.stopwatch import TimeBox
from hpfracc.engine.execution.calibration.trial import ArmTrial, Timing, make_operands, typical_operands

__all__ = [
    "DEFAULT_OPERATIONS",
    "ArmTrial",
    "CalibrationReport",
    "Crossover",
    "Series",
    "Skipped",
    "Step",
    "TimeBox",
    "Timing",
    "calibrate",
    "make_operands",
    "typical_operands",
]
