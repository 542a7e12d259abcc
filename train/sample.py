"""Text from a model, byte by byte, with one full pass per byte."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from train.limits import number
from train.loop import Learner


def sample(
    learner: Learner, params, prompt: bytes, count: int, length: int, key: PRNGKeyArray, temperature: float = 0.8
) -> bytes:
    """Continues a prompt. Once `length` bytes stand in the window the oldest one leaves at every step.

    Args:
        learner: the model's structure.
        params: its parameters.
        prompt: at least one byte; the last `length` are read.
        count: bytes to write.
        length: bytes that the model reads at once, as in training.
        key: of the draws.
        temperature: divides the logits; 0 takes the likeliest byte each time.

    Returns:
        The new bytes, without the prompt.

    Raises:
        ValueError: if the prompt is empty, or the temperature is not a number from 0 up.
    """
    check_prompt(prompt, temperature)
    seen = jnp.frombuffer(prompt[-length:], jnp.uint8).astype(jnp.int32)
    window = jnp.zeros(length, jnp.int32).at[: len(seen)].set(seen)
    out = _continue(learner, params, window, len(seen), jax.random.split(key, count), temperature)
    return bytes(out.tolist())


def check_prompt(prompt: bytes, temperature: float) -> None:
    """Raises ValueError for what `sample` refuses."""
    if not prompt:
        raise ValueError("the prompt is empty; give at least one byte, for example b'\\n'")
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature={temperature} must be a number from 0 up; 0 takes the likeliest byte each time")
    number("temperature", temperature)


@functools.partial(jax.jit, static_argnums=0)
def _continue(learner: Learner, params, window: Int[Array, " T"], filled, keys, temperature) -> Int[Array, " n"]:
    model = learner.model(params)

    def one(state, key):
        window, filled = state
        logits = model(window[None])[0, filled - 1]
        # Less the highest one: near temperature 0 the others become -inf, and no two of them inf. At 0 the draw is not
        # looked at.
        drawn = jax.random.categorical(key, (logits - logits.max()) / jnp.where(temperature > 0, temperature, 1.0))
        byte = jnp.where(temperature > 0, drawn, jnp.argmax(logits)).astype(jnp.int32)
        full = filled == window.shape[0]
        window = jnp.where(full, jnp.roll(window, -1), window)
        window = window.at[jnp.where(full, filled - 1, filled)].set(byte)
        return (window, jnp.where(full, filled, filled + 1)), byte

    return jax.lax.scan(one, (window, jnp.asarray(filled)), keys)[1]
