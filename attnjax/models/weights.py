"""The weights of a decoder by name, one entry per layer, whether or not its layers are stacked."""

import difflib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from attnjax.models.config import Config
from attnjax.models.decoder import Decoder


def skeleton(config: Config) -> Decoder:
    """The decoder with shapes and dtypes in place of numbers; nothing is drawn or allocated.

    Accepts patterns that see the future: whether they may was decided where the model was built.
    """
    return shapes_only(lambda: Decoder(config, rngs=nnx.Rngs(0), allow_future=True))


def shapes_only(make: Callable[[], Any]) -> Any:
    """The module that `make` makes, with shapes and dtypes in place of numbers."""
    with jax.enable_x64(True):  # else float64 weights would count as float32
        return nnx.eval_shape(make)


def by_layer(model: Decoder) -> dict[str, Any]:
    """Every weight by name, such as `layers.3.attention.query.kernel`; of a skeleton, shapes and dtypes."""
    found = {}
    for path, variable in nnx.to_flat_state(nnx.state(model)):
        value = variable.get_value()
        names, stacked = _names(path, model.config), path[0] == "periods"
        if isinstance(value, jax.ShapeDtypeStruct):
            shape = value.shape[1:] if stacked else value.shape
            found |= dict.fromkeys(names, jax.ShapeDtypeStruct(shape, value.dtype))
        else:
            array = np.asarray(value)
            found |= dict(zip(names, array if stacked else array[None], strict=True))
    return found


def filled(model: Decoder, weights: Mapping[str, Any]) -> Decoder:
    """The skeleton with these weights in its dtypes; names and shapes must fit it.

    Raises:
        ValueError: if a finite number is infinite in the skeleton's dtype.
    """
    return fill(model, weights, lambda path: _names(path, model.config))


def fill(module: Any, weights: Mapping[str, Any], names: Callable[[tuple[Any, ...]], list[str]]) -> Any:
    """`filled` for any module; `names(path)` are those of a variable's layers, each of which is looked up once."""
    graph, state = nnx.split(module)
    flat = []
    for path, variable in nnx.to_flat_state(state):
        dtype = variable.get_value().dtype
        layers = [_cast(name, weights[name], dtype) for name in names(path)]
        value = np.stack(layers) if path[0] == "periods" else layers[0]
        # A copy: jnp.asarray may share memory that NumPy owns, which donation would then hand out.
        flat.append((path, variable.replace(jnp.array(value))))
    return nnx.merge(graph, nnx.from_flat_state(flat))


def _cast(name: str, array: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(over="ignore"):  # the check below names the weight
        cast = array.astype(dtype, copy=False)
    if cast is not array and (np.isinf(cast) & np.isfinite(array)).any():
        raise ValueError(f"weight {name!r} holds numbers too large for {dtype}; choose another param_dtype")
    return cast


def check_sizes(fields: Mapping[str, Any], weights: int, room: int, unit: str, where: str) -> None:
    """Refuses to describe a model larger than the weights at hand, which alone could take for ever.

    Raises:
        ValueError: if these sizes of a Config need more weights, or one larger than `room`.
    """
    if fields["num_layers"] > weights:
        raise ValueError(f"num_layers={fields['num_layers']}, but {where} holds {weights} weights")
    heads = fields["num_heads"] * (fields["head_dim"] or 1)
    widest = max(1, fields["vocab_size"], heads, fields["d_ff"] or 1)
    if widest * fields["d_model"] > room:
        raise ValueError(
            f"d_model={fields['d_model']} and a width of {widest} make a weight larger than all {room} {unit} in "
            f"{where}"
        )


def check_fit(found: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    """Raises a ValueError that names a weight that is missing, unknown or of another shape or dtype."""
    missing = [name for name in wanted if name not in found]
    for name in found:
        if name not in wanted:
            near = difflib.get_close_matches(name, missing or wanted, 1, 0)
            raise ValueError(f"{where}: weight {name!r} is not part of this model; did you mean {near[0]!r}?")
    if missing:
        raise ValueError(f"{where}: weight {missing[0]!r} is missing ({len(missing)} of {len(wanted)} are)")
    for name, want in wanted.items():
        shape, dtype = tuple(found[name].shape), found[name].dtype
        if shape != want.shape:
            raise ValueError(f"{where}: weight {name!r} has shape {shape}, the config asks for {want.shape}")
        if dtype != want.dtype:
            raise ValueError(f"{where}: weight {name!r} is {dtype}, the config asks for {want.dtype}")


def _names(path: tuple[Any, ...], config: Config) -> list[str]:
    """The name of each layer's share of the variable at this path of a decoder's state."""
    size, periods = len(config.layout), config.num_periods
    if path[0] == "periods":  # periods.blocks.<place in the layout>.<...>
        layers, rest = [period * size + path[2] for period in range(periods)], path[3:]
    elif path[0] == "rest":  # rest.<which>.<...>
        layers, rest = [periods * size + path[1]], path[2:]
    else:
        return [".".join(map(str, path))]
    return [".".join(("layers", str(layer), *map(str, rest))) for layer in layers]
