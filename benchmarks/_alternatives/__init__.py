"""The rows of ``alternatives.py``: each problem by this library, and as a competent user of SciPy would write it."""
