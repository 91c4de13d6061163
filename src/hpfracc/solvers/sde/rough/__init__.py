"""Rough volatility models."""
