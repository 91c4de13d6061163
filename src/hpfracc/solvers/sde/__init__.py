"""Noise with memory, and equations driven by it; one process or method per file."""
