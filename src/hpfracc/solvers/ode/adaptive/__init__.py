"""The adaptive solver: history as a sum of exponentials, steps and degrees chosen by the error."""
