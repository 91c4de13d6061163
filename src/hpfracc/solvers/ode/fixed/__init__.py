"""Solves with a fixed step on a uniform grid."""
