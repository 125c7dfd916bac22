"""The examples in docstrings show what they promise; `tests/test_docstrings.py` runs all of them."""

import docstrings
import pytest

import plastax_diagnostics as diagnostics


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Samples", "abs(operator.mv(jnp.zeros((3, 2)))).max() == 0"),
        ("StepBudget", "abs(budget.threshold - 0.011512) < 1e-6"),
        ("plasticity_report", "report.budget == budget"),
        ("fast_slow_projectors", "abs(fast - np.diag([1.0, 0.0])).max() < 1e-12"),
        ("residual_measure", "abs(measure.fast_fraction(budget).value - 2 / 3) < 1e-5"),
        ("curvature_residual", "abs(operator.mv(jnp.ones((3, 2)))).max() == 0"),
        ("task_loss", "abs(loss(jnp.zeros((3, 2)), data) - jnp.log(2.0)) < 1e-6"),
        ("apply_model", "model(params, jnp.ones((4, 3))).shape == (4, 2)"),
        ("exact_gram", "diagnostics.exact_gram(operator).count_above(0.1) == 6"),
        ("dense", "abs(diagnostics.dense(operator) - 2 / 3 * jnp.eye(3)).max() < 1e-6"),
        ("lanczos", "abs(nodes - jnp.array([0.0, 1.0, 3.0])).max() < 1e-5 and abs(weights[1] - 0.5) < 1e-5"),
        ("exact_spectrum", "diagnostics.exact_spectrum(operator).epsilon_rank(0.1).value == 6.0"),
        ("unit_scalars", "jax.jit(unit_scalars)(features)['dense1/dead'] == 0.5"),
        ("spectrum", "found.epsilon_rank(1e-3).value <= 3.0"),
    ],
)
def test_example(name, expected):
    example = docstrings.example_of(getattr(diagnostics, name))
    assert eval(expected, docstrings.run(example, name))
