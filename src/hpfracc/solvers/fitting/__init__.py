"""Parameters, orders and initial values of fractional equations from data."""
