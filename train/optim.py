"""The optimiser: AdamW with clipping, and a learning rate that is documented at its ends."""

import jax.numpy as jnp
import optax


def schedule(peak: float, warmup: int, last: int, lowest: float = 0.0) -> optax.Schedule:
    """Linear warm-up, then half a cosine.

    lr(0) = peak / (warmup + 1) > 0, lr(warmup) = peak, lr(last) = lowest, and constant from there.
    The cosine is the one of SGDR (Loshchilov and Hutter, 2017).

    Args:
        peak: the highest learning rate, reached at step `warmup`.
        warmup: number of steps below the peak.
        last: the step at which the rate is down to `lowest`; for a run of n steps, n - 1.
        lowest: the rate at the end.

    Raises:
        ValueError: if the ends are out of order.

    Example:
        >>> [round(float(schedule(1.0, 4, 10, 0.1)(s)), 2) for s in (0, 1, 4, 10, 11)]
        [0.2, 0.4, 1.0, 0.1, 0.1]
    """
    if not 0 <= warmup < last:
        raise ValueError(f"warmup={warmup} and last={last}: the warm-up needs 0 <= warmup < last; "
                         "use fewer warm-up steps or train longer")
    if not 0 <= lowest <= peak or peak == 0:
        raise ValueError(f"peak={peak} and lowest={lowest}: the rates need 0 <= lowest <= peak and peak > 0")

    def rate(step):
        rising = (step + 1) / (warmup + 1)
        gone = jnp.clip((step - warmup) / (last - warmup), 0.0, 1.0)
        falling = lowest + (peak - lowest) * 0.5 * (1 + jnp.cos(jnp.pi * gone))
        return jnp.where(step < warmup, peak * rising, falling)

    return rate


def adamw(rate: optax.Schedule, weight_decay: float = 0.01, b2: float = 0.98, clip: float = 1.0):
    """AdamW (Loshchilov and Hutter, 2019) behind a clip of the global gradient norm."""
    return optax.chain(optax.clip_by_global_norm(clip), optax.adamw(rate, b2=b2, weight_decay=weight_decay))
