"""The adaptive solver: memory as a sum of exponentials, steps and orders chosen by the error."""
