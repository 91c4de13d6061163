"""Several inputs and outputs, state spaces, and systems of other libraries."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal

from hpfracc import control
from hpfracc.errors import InvalidInputError, ShapeError

s = control.s
G = np.array([[1 / (s + 1), 2 / (s**0.5 + 1)], [0, 1 / (s + 2)], [s / (s + 1) / (s + 2), 1]], dtype=object)
K = np.array([[1 / s**0.5, 0.3, 1], [1, control.delay(0.1), 2 / (s + 1)]], dtype=object)
POINTS = np.array([1j, 0.3 + 2j, 5.0])


def at(systems, points=POINTS):
    """Matrices of values, one for each point."""
    return np.array([[control.transfer_function(each)(points) for each in row] for row in systems]).transpose(2, 0, 1)


def test_connections_of_matrices():
    loop = control.feedback(G, K)
    np.testing.assert_allclose(at(loop), np.linalg.solve(np.eye(3) + at(G) @ at(K), at(G)), rtol=1e-12)
    positive = control.feedback(G[:2], 0.3, sign=1.0)
    np.testing.assert_allclose(at(positive), np.linalg.solve(np.eye(2) - 0.3 * at(G[:2]), at(G[:2])), rtol=1e-12)
    np.testing.assert_allclose(at(control.series(G, K)), at(K) @ at(G), rtol=1e-12)
    np.testing.assert_allclose(at(control.parallel(G, G, 0.0 * G)), 2.0 * at(G), rtol=1e-12)
    # Nested lists are matrices too.
    np.testing.assert_allclose(at(control.parallel(G.tolist(), G.tolist())), 2.0 * at(G), rtol=1e-12)
    with pytest.raises(ShapeError, match="inputs, outputs"):
        control.feedback(G, G)
    with pytest.raises(ShapeError, match="inputs, outputs"):
        control.feedback(G)


def test_a_loop_of_a_shared_denominator_has_no_poles_too_many():
    """1/(s - 1) in a row twice is closed once: the loop is stable, and its poles are those of the determinant."""
    plant = [[1 / (s - 1), 2 / ((s - 1) * (s + 3))], [0, 1 / (s + 1)]]
    loop = control.feedback(plant, 3.0)
    assert control.is_stable(loop)
    assert np.all(control.poles(loop).real < -0.5)
    unstable = control.is_stable(control.feedback(plant, 0.5))
    assert not unstable and "entry" in unstable.reason


def test_factors_that_denominators_share_in_part_count_once():
    """(s - 1)(s + 2) beside (s - 1)(s + 3): one unstable pole, which the loop moves; integrators and powers too."""
    plant = [[(s + 4) / ((s - 1) * (s + 2)), 2 / ((s - 1) * (s + 3))], [1 / (s + 5), 1 / (s + 1)]]
    loop = control.feedback(plant, 3.0)
    np.testing.assert_allclose(at(loop), np.linalg.solve(np.eye(2) + 3.0 * at(plant), at(plant)), rtol=1e-12)
    assert control.is_stable(loop) and control.poles(loop).size == 5
    both = [[1 / (s * (s + 2)), 1 / (s * (s + 3))], [0, 1 / (s + 1)]]
    assert control.is_stable(control.feedback(both, [[1.0, 0.0], [0.0, 1.0]]))
    half = [[1 / ((s**0.5 - 1) * (s**0.5 + 2)), 1 / ((s**0.5 - 1) * (s**0.5 + 3))], [0, 1 / (s + 1)]]
    gain = [[4.0, 0.0], [0.0, 1.0]]
    loop = control.feedback(half, gain)
    expected = np.linalg.solve(np.eye(2) + at(half) @ gain, at(half))
    np.testing.assert_allclose(at(loop), expected, rtol=1e-11)
    assert control.is_stable(loop)


def test_small_coefficients_are_no_rounding():
    """1e-13 s^2 + s + 1 is not divisible by s + 1: at high frequencies the two differ."""
    plant = [[1 / (1e-13 * s**2 + s + 1), 1 / (s + 1)]]
    loop = control.feedback(plant, [[1.0], [1.0]])
    points = np.array([1e13j, 1e14j])
    exact = at(plant, points) / (1.0 + at(plant, points).sum(axis=(1, 2), keepdims=True))
    np.testing.assert_allclose(at(loop, points), exact, rtol=1e-10)


def test_norms_and_poles_of_matrices():
    """Frobenius' sum of squares, and each pole once."""
    small = [[1 / (s + 1), 0], [2 / (s + 2), 1 / (s + 1)]]
    assert control.h2_norm(small) ** 2 == pytest.approx(0.5 + 4 / 4 + 0.5, rel=1e-9)
    np.testing.assert_allclose(control.poles(small), [-1.0, -2.0], atol=1e-12)
    assert control.is_stable(small) and not control.is_stable([[1 / (s + 1), 1 / s]])
    with pytest.raises(InvalidInputError, match="not stable"):
        control.h2_norm([[1 / (s - 1), 0]])


def test_responses_of_a_matrix_to_inputs_of_its_own():
    t = np.linspace(0.0, 5.0, 101)
    u = np.stack([np.sin(t), np.cos(t)])
    found = control.lsim(G, u, t)
    one = [sum(control.lsim(G[i, j], u[j], t).y for j in range(2)) for i in range(3)]
    np.testing.assert_allclose(found.y, one, atol=1e-12)
    assert control.lsim(G, np.stack([u, u]), t).y.shape == (2, 3, 101)
    assert control.lsim(G, u[0], t).y.shape == (3, 2, 101)
    with pytest.raises(ShapeError, match="a row for each input"):
        control.lsim(G, np.stack([t, t, t]), t)


def test_state_space_of_matrices():
    space = control.StateSpace.realisation(G)
    assert space.order == pytest.approx(0.5)
    values = [space.C @ np.linalg.solve(z**0.5 * np.eye(len(space.A)) - space.A, space.B) + space.D for z in POINTS]
    np.testing.assert_allclose(values, at(G), rtol=1e-12)
    np.testing.assert_allclose(at(space.to_transfer_function()), at(G), rtol=1e-10)
    high = (1 / (s**3 + 2)).to_state_space()
    assert high.order == 1.5 and np.allclose(high.to_transfer_function()(POINTS), 1 / (POINTS**3 + 2))
    assert (
        control.transfer_function(control.StateSpace(np.zeros((0, 0)), np.zeros((0, 1)), np.zeros((1, 0)), [[2]])) == 2
    )


def test_systems_of_other_libraries():
    found = control.transfer_function(signal.lti([1.0], [1.0, 2.0]))
    assert found == 1 / (s + 2)
    assert control.transfer_function(signal.ZerosPolesGain([-1], [-2, -3], 2.0)) == 2 * (s + 1) / ((s + 2) * (s + 3))
    assert np.allclose(control.bode(signal.lti([[-1.0]], [[1.0]], [[2.0]], [[0.0]]), [1.0]).response, 2 / (1j + 1))
    with pytest.raises(InvalidInputError, match="discrete"):
        control.bode(signal.dlti([1], [1, 1]), [1.0])
    other = pytest.importorskip("control")
    plant = np.array([[1 / (s + 1), 2], [0, (s + 3) / (s**2 + 1)]], dtype=object)
    theirs = control.to_control(plant)
    np.testing.assert_allclose(theirs(2j), at(plant, np.array([2j]))[0], rtol=1e-12)
    np.testing.assert_allclose(at(control.transfer_function(theirs)), at(plant), rtol=1e-12)
    space = other.ss([[-1, 0], [0, -2]], np.eye(2), np.eye(2), np.zeros((2, 2)))
    np.testing.assert_allclose(control.transfer_function(space)[1, 1](1.0), 1 / 3)
    with pytest.raises(InvalidInputError, match="discrete"):
        control.transfer_function(other.tf([1], [1, 1], 0.1))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: control.StateSpace.realisation([1 / s]),
        lambda: control.StateSpace.realisation([[1 / (s + 1), control.delay(1.0)]]),
        lambda: control.StateSpace.realisation([[1 / (s + 1), 1 / (s**2**0.5 + 1)]]),
        lambda: control.StateSpace([[np.nan]], [[1]], [[1]], [[0]]),
        lambda: control.to_control([1 / s]),
        lambda: control.to_control([[1 / s**0.5]]),
        lambda: control.series([[1, 2], [3]], 1),
    ],
)
def test_bad_input(wrong):
    with pytest.raises((InvalidInputError, ShapeError)):
        wrong()
