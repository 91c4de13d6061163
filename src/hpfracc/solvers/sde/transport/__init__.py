"""Anomalous transport: random walks in continuous time, first passage, mean squared displacement."""
