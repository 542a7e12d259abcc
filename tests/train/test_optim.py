import numpy as np
import pytest

from train.optim import schedule


def test_t01_the_ends_of_the_schedule():
    rate = schedule(1.0, warmup=4, last=10, lowest=0.1)
    rates = np.array([float(rate(step)) for step in range(12)])
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[10] == rates[11] == pytest.approx(0.1)
    assert np.abs(np.diff(rates)).max() <= 0.25


def test_no_warmup_starts_at_the_peak():
    assert float(schedule(1.0, 0, 5)(0)) == 1.0


def test_ends_out_of_order_are_errors():
    with pytest.raises(ValueError, match="warmup=10 and last=10.*fewer warm-up steps or train longer"):
        schedule(1.0, 10, 10)
    with pytest.raises(ValueError, match="peak=0.1 and lowest=0.2"):
        schedule(0.1, 1, 10, 0.2)
