"""One full pass of one attention layer with the sizes of Llama 2 7B, step by step, on 32 tokens.

    python examples/llama_layer.py

Each step is a public function on plain arrays; at the end the layer of the library must give the same. The weights
are random: 67 million numbers, 270 MB.
"""

import jax
import jax.numpy as jnp
from flax import nnx

import attnjax as aj
from attnjax import models, nn


def make_layer(config: models.Config) -> nn.Attention:
    """The attention of one layer of the model, with random weights."""
    letter = config.layout[0]
    return nn.Attention(
        config.d_model,
        config.num_heads,
        config.num_kv_heads,
        pattern=config.legend[letter],
        rope=config.rope(letter),
        rngs=nnx.Rngs(0),
    )


def full_pass(layer: nn.Attention, x: jax.Array) -> dict[str, jax.Array]:
    """What the steps give, in their order, for x [n, d_model]."""
    n, N, K, H = x.shape[0], layer.num_heads, layer.num_kv_heads, layer.head_dim
    steps = {"1. in": x}

    # 2. Project: each head multiplies by its own W_Q, W_K, W_V (side by side in one matrix); q and k turn by position.
    q = (x @ layer.query.kernel[...]).reshape(n, N, H)
    k = (x @ layer.key.kernel[...]).reshape(n, K, H)
    v = (x @ layer.value.kernel[...]).reshape(n, K, H)
    q, k = (aj.rope(side, jnp.arange(n), theta=layer.rope.theta) for side in (q, k))
    steps |= {"2. q": q, "2. k": k, "2. v": v}

    # 3. Score: every query against every key, divided by sqrt(H).
    steps["3. scores"] = s = aj.scores(q, k)

    # 4. Mask and softmax: the future gets weight 0, each row of weights adds up to 1.
    seen = aj.visible(layer.pattern, n)
    steps["4. weights"] = w = aj.weights(s, seen)

    # 5. Blend: the weighted average of the values.
    steps["5. blend"] = o = aj.blend(w, v)

    # 6. Combine: glue the heads together and multiply by W_O. 7. Out: as many vectors as came in, of the same size.
    steps["6. glued"] = glued = o.reshape(n, N * H)
    steps["7. out"] = glued @ layer.out.kernel[...]
    return steps


def main() -> None:
    config = models.config("llama2_7b")
    layer = make_layer(config)
    x = jax.random.normal(jax.random.key(1), (32, config.d_model))
    with jax.default_matmul_precision("highest"):
        steps = full_pass(layer, x)
        whole = layer(x)
    for name, array in steps.items():
        print(f"{name:12} {' x '.join(map(str, array.shape))}")
    difference = float(jnp.abs(steps["7. out"] - whole).max())
    print(f"nn.Attention gives the same: largest difference {difference:.1e} of {float(jnp.abs(whole).max()):.2f}")


if __name__ == "__main__":
    main()
