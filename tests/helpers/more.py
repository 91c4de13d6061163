"""Which tests ``make test-more`` runs in place of ``make test``: stress, and what other tests show in another way.

``make test`` keeps what a user would want to know, in minutes. Beginnings of names, below ``tests/``.
"""

from __future__ import annotations

import pytest

MORE = (
    "architecture/test_import_time.py",
    "benchmarks/",
    "cli/test_demo.py::test_the_page_fits_the_window",
    "cli/test_hostile.py",
    "conformance/",  # every kernel against its reference: operators are compared between backends
    "control/test_fopid.py::test_compiled",
    "control/test_fopid.py::test_the_objective",
    "control/test_fopid.py::test_tuning",
    "control/test_identification.py::test_an_offset",
    "control/test_identification.py::test_delays_are",
    "control/test_published.py::test_monje",
    "control/test_transfer.py::test_tuning",
    "distributed/test_attacks.py",
    "distributed/test_devices.py",
    "distributed/test_faults.py",
    "distributed/test_history.py",
    "distributed/test_learning.py",
    "distributed/test_shards.py",
    "distributed/test_sweeps.py::test_pictures",
    "docs/test_code_blocks.py::test_every_block_runs",
    "docs/test_gallery.py",
    "docs/test_generate.py",
    "docs/test_outputs.py",
    "engine/",
    "examples/",
    "history/",
    "lattice/test_adversarial.py",
    "ml/",
    "operators/core/test_base.py::test_every_backend",
    "operators/core/test_caches_while_tracing.py",
    "operators/core/test_order_tables",
    "operators/core/test_recorded_steps.py",
    "operators/core/test_reporting.py",
    "operators/test_error_estimates.py",
    "operators/test_further_definitions.py",
    "operators/test_gradients.py",
    "operators/test_kernels.py",
    "operators/test_rules.py::test_non_finite",
    "operators/test_sequences.py",
    "operators/test_single_precision_jax.py",
    "operators/test_smooth_derivative.py",
    "operators/test_space_gradients.py",
    "profiling/test_browser.py",
    "profiling/test_comparison.py",
    "solvers/ode/adaptive/test_crawling.py",
    "solvers/ode/compiled/",
    "solvers/ode/fixed/test_setup.py",
    "solvers/ode/fixed/test_weights.py",
    "solvers/ode/methods/test_agreement.py::test_numpy_and_numba",
    "solvers/ode/methods/test_meshes.py",
    "solvers/ode/methods/test_new_method.py",
    "solvers/ode/test_functions_as_given.py",
    "solvers/ode/test_interrupts.py",
    "solvers/ode/test_little_memory.py",
    "solvers/ode/test_preferences.py",
    "solvers/ode/tensors/",
    "solvers/ode/test_stability.py",
    "solvers/pde/",
    "solvers/sde/",
    "solvers/fitting/test_fit_fpde.py",
    "solvers/tensors/",
    "special/test_mittag_leffler.py::test_agrees_with_mpmath_in_jax",
    "special/test_mittag_leffler.py::test_factors",
    "special/test_mittag_leffler.py::test_gradients",
    "special/test_mittag_leffler.py::test_negative_beta",
    "special/test_mittag_leffler_parameters.py",
    "test_across_processes.py",
    "test_choices.py",
    "test_torch_transforms.py",
    "test_wrong_values.py",
    "test_xp.py",
)
#: Of these, ``make test`` keeps a few that show that it works.
KEPT = (
    *(
        f"docs/test_code_blocks.py::test_every_block_runs[{page}"
        for page in ("README", "docs/index", "docs/tutorials/")
    ),
    *(
        f"engine/execution/test_{file}.py"
        for file in ("bad_input", "explain", "fallback", "own_operations", "precedence")
    ),
    *(
        f"examples/test_gallery.py::test_the_script_is_right[{name}]"
        for name in ("relaxation", "subdiffusion", "fbm", "half_derivative", "fopid", "rheology")
    ),
    "ml/test_differencer.py",
    "ml/test_faces.py",
    "ml/test_layers.py::test_existing_code",
    "ml/test_layers.py::test_the_order",
    "ml/test_neural_fode.py::test_the_gradient_tends",
    "ml/test_optimizers.py::test_order_one_is_adam",
    "operators/test_gradients.py::test_a_learnable_order_is_learnt",
    "operators/test_kernels.py::test_fundamental_theorem",
    "operators/test_smooth_derivative.py::test_bad_input",
    "operators/test_smooth_derivative.py::test_the_noise_is_found",
    *(
        f"solvers/pde/test_{file}.py"
        for file in ("delays", "explain", "fronts_and_walls", "modes", "plot", "reading", "solve", "steady", "values")
    ),
    *(f"solvers/sde/noise/test_{file}.py" for file in ("fractional_brownian", "fractional_ou")),
    "solvers/sde/rough/test_bergomi.py::test_price_at_one_year",
    "solvers/sde/rough/test_black.py",
    "solvers/sde/rough/test_heston.py::test_known_prices",
    "solvers/sde/test_breakpoints.py",
    "solvers/sde/test_solve.py",
    "solvers/sde/transport/test_passage.py",
)


class More:
    """Marks them ``more`` while tests are collected."""

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        name = item.nodeid.removeprefix("tests/")
        if name.startswith(MORE) and not name.startswith(KEPT):
            item.add_marker(pytest.mark.more)
