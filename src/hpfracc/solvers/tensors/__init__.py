"""What solvers on tensors and traced arrays share: loops over steps, Newton's method, compiled programs."""
