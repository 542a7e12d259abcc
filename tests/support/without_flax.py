"""Run in a fresh process: with flax out of reach attnjax imports, counts and attends."""

import sys


class NoFlax:
    """A finder that stands before all others and refuses flax."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "flax":
            raise ImportError(f"{name} is blocked in this process")


def main():
    """Equal scores over keys that carry unit vectors: each output row shows which keys were seen."""
    sys.meta_path.insert(0, NoFlax())
    import jax.numpy as jnp
    import numpy as np

    import attnjax as aj

    pattern = aj.Window(2) | aj.Sink(1)
    mask = pattern.mask(5)
    zeros, units = jnp.zeros((1, 5, 1, 4)), jnp.eye(5)[None, :, None, :]
    out = aj.attend(zeros, zeros, units, pattern)
    assert np.abs(np.asarray(out[0, :, 0]) - mask / mask.sum(-1, keepdims=True)).max() < 1e-6, out
    assert mask.sum() == pattern.count(5) == 12, mask
    assert not [name for name in sys.modules if name.partition(".")[0] == "flax"]
    print(f"attnjax {aj.__version__} attends without flax ({aj.__file__})")


main()
