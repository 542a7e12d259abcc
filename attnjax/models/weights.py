"""The weights of a decoder by name, one entry per layer, whether or not its layers are stacked."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from attnjax.models.config import Config
from attnjax.models.decoder import Decoder, Period
from attnjax.models.messages import CANDIDATES, nearest, shown
from attnjax.nn.block import Block


class Named(Mapping[str, Any]):
    """Something for every weight by name, without a list of all: all layers have the same.

    Args:
        outside: name -> what there is for a weight outside the layers.
        layer: the same for those of one layer, whose names come after `prefix`, the layer's number and a dot.
        num_layers: how many there are.
    """

    def __init__(self, outside: Mapping[str, Any], layer: Mapping[str, Any], num_layers: int, prefix: str = "layers."):
        self.outside, self.layer, self.num_layers, self.prefix = outside, layer, num_layers, prefix
        self._name = re.compile(re.escape(prefix) + r"(0|[1-9]\d{0,8})\.(.+)")

    def __getitem__(self, name: str) -> Any:
        if name in self.outside:
            return self.outside[name]
        found = self._name.fullmatch(name)
        if found is None or int(found[1]) >= self.num_layers:
            raise KeyError(name)
        return self.layer[found[2]]

    def __iter__(self) -> Iterator[str]:
        yield from self.outside
        for i in range(self.num_layers):
            yield from (f"{self.prefix}{i}.{name}" for name in self.layer)

    def __len__(self) -> int:
        return len(self.outside) + self.num_layers * len(self.layer)


@functools.lru_cache(maxsize=16)
def _of_one_layer(config: Config) -> dict[str, jax.ShapeDtypeStruct]:
    return by_layer(shapes_only(lambda: Decoder(config, rngs=nnx.Rngs(0))))


def expected(config: Config) -> Named:
    """Name -> shape and dtype of every weight of a decoder of this config; one layer is built, none is allocated."""
    one = _of_one_layer(_one_layer(config))
    start = "layers.0."
    inside = {name.removeprefix(start): weight for name, weight in one.items() if name.startswith(start)}
    outside = {name: weight for name, weight in one.items() if not name.startswith(start)}
    return Named(outside, inside, config.num_layers)


def _one_layer(config: Config) -> Config:
    """The same with one layer, unstacked. Patterns and rotations have no weights."""
    return dataclasses.replace(
        config, num_layers=1, scan=False, layout="G", legend={"G": "causal()"}, theta=None, rope_scaling=None
    )


def skeleton(config: Config) -> Decoder:
    """The decoder with shapes and dtypes in place of numbers; nothing is drawn or allocated.

    One layer is built and copied: in others only pattern and rotation differ. Accepts patterns that see the future:
    whether they may was decided where the model was built.
    """
    model = shapes_only(lambda: Decoder(_one_layer(config), rngs=nnx.Rngs(0)))
    graph, state = nnx.split(model.rest[0])
    whole = config.num_periods * len(config.layout)

    def block(letter: str, *lead: int) -> Block:
        stacked = jax.tree.map(lambda weight: jax.ShapeDtypeStruct((*lead, *weight.shape), weight.dtype), state)
        copy = nnx.merge(graph, stacked)
        copy.attention.pattern, copy.attention.rope = config.legend[letter], config.rope(letter)
        return copy

    model.config = config
    model.rest = nnx.List([block(letter) for letter in config.letters[whole:]])
    if whole:
        model.periods = nnx.data(Period([block(letter, config.num_periods) for letter in config.layout]))
    return model


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


def check_fit(found: Mapping[str, Any], wanted: Mapping[str, Any], where: str, of: str = "model") -> None:
    """Raises a ValueError that names a weight that is missing, unknown or of another shape or dtype.

    What is found gives the names; the work is in proportion to their number, whatever is wanted.
    """
    for name in found:
        if name not in wanted:
            missing = itertools.islice(wanted, len(found) + CANDIDATES)
            near = [other for other in missing if other not in found] or wanted
            raise ValueError(f"{where}: weight {shown(name)} is not part of this {of}{nearest(name, near)}")
    if len(found) < len(wanted):
        first = next(name for name in wanted if name not in found)
        missing = len(wanted) - len(found)
        raise ValueError(f"{where}: weight {first!r} is missing ({missing} of {len(wanted)} are)")
    for name, want in wanted.items():
        shape, dtype = tuple(found[name].shape), found[name].dtype
        if shape != want.shape:
            raise ValueError(f"{where}: weight {name!r} has shape {shown(shape)}, the config asks for {want.shape}")
        if want.dtype is not None and want.dtype != dtype:
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
