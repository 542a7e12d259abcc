"""Error budgets from the data: three times what an honest low-precision computation of the same thing loses."""

import jax.numpy as jnp
import numpy as np


def budget(honest, exact, dtype, size=None):
    """Largest error allowed: 3 * (error of the honest computation + one rounding of the largest value). Sums in another
    order, as another processor takes them, were seen to lose 2.1 times as much.

    `size` replaces the largest value where results are differences of larger terms (gradients that cancel).
    """
    honest, exact = np.asarray(honest, np.float64), np.asarray(exact, np.float64)
    eps = float(jnp.finfo(dtype).eps)  # jnp's knows bfloat16
    finite = np.isfinite(exact)
    if not finite.any():
        return 0.0
    return 3 * (np.abs(honest[finite] - exact[finite]).max() + eps * (np.abs(exact[finite]).max() if size is None else size))


def assert_within(got, exact, limit, what=""):
    """got equals exact up to `limit`, infinities exactly."""
    got, exact = np.asarray(got, np.float64), np.asarray(exact, np.float64)
    assert got.shape == exact.shape, f"{what}: shape {got.shape}, expected {exact.shape}"
    finite = np.isfinite(exact)
    assert np.array_equal(got[~finite], exact[~finite]), f"{what}: infinities differ"
    error = np.abs(got[finite] - exact[finite]).max(initial=0.0)
    assert error <= limit, f"{what}: error {error:.3g} over its budget {limit:.3g}"
