"""The rotation that a published config asks for, in all the spellings that there have been.

Since 2025: `rope_parameters`, with rope_theta inside, for all layers or one for each type of layer. Before:
`rope_theta` beside `rope_scaling`, whose rope_type was once called type.
"""

from collections.abc import Mapping
from typing import Any

from attnjax.models.messages import cut, shown
from attnjax.rope_scaling import Scaling, read_scaling

# These rules count from the length that the model was trained for first, which may be said outside.
FROM_LENGTH = ("yarn", "llama3", "dynamic")


def read_rope(f: Mapping[str, Any], theta: float, default: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The fields theta and rope_scaling of a Config whose layers all rotate alike.

    `theta` and `default` stand for rope_theta and rope_parameters where the config has none.
    """
    name, rules = _rules(f)
    if rules is None:
        rules = {} if default is None else default
    base, scaling = _rule(rules, name, f, _base(f, "rope_theta", theta, rules))
    return dict(theta=base, rope_scaling=scaling)


def read_rope_by_type(f: Mapping[str, Any], thetas: Mapping[str, float], types: Mapping[str, str]) -> dict[str, Any]:
    """The same where each type of layer has a rotation of its own; `types` names that of each letter.

    In the older spelling rope_theta and rope_scaling are those of the full layers, rope_local_base_freq is the base of
    the sliding ones (Gemma 3).
    """
    name, rules = _rules(f)
    if rules is not None and not isinstance(rules, Mapping):
        raise ValueError(f"{name}={shown(rules)} must be an object")
    if name == "rope_scaling":
        rules = {"full_attention": rules}
    for kind in rules or {}:
        if kind not in thetas:
            raise ValueError(f"{name} must have an object for each of {', '.join(thetas)}; it has {shown(kind)}")
    bases, scalings = {}, {}
    for letter, kind in types.items():
        rule = (rules or {}).get(kind)
        field = "rope_theta" if kind == "full_attention" else "rope_local_base_freq"
        rule = {} if rule is None else rule
        base = _base(f, field, thetas[kind], rule)
        bases[letter], scalings[letter] = _rule(rule, f"{name}[{kind!r}]", f, base)
    scaled = {letter: scaling for letter, scaling in scalings.items() if scaling is not None}
    return dict(theta=bases, rope_scaling=scaled or None)


def _rules(f: Mapping[str, Any]) -> tuple[str, Any]:
    """Which field says it, and what."""
    new, old = f.get("rope_parameters"), f.get("rope_scaling")
    if new is not None and old is not None and new != old:
        raise ValueError(f"rope_parameters={shown(new)} and rope_scaling={shown(old)} exclude each other")
    return ("rope_scaling", old) if old is not None else ("rope_parameters", new)


def _base(f: Mapping[str, Any], field: str, default: float, rule: Any) -> float:
    outside, inside = f.get(field), rule.get("rope_theta") if isinstance(rule, Mapping) else None
    if outside is not None and inside is not None and outside != inside:
        raise ValueError(f"{field}={shown(outside)} and rope_theta={shown(inside)} beside each other")
    found = [base for base in (inside, outside, default) if base is not None][0]
    if type(found) not in (int, float) or not found > 0:
        raise ValueError(f"rope_theta={shown(found)} must be a number above 0")
    return float(found)


def _rule(rule: Any, name: str, f: Mapping[str, Any], base: float) -> tuple[float, Scaling | None]:
    if not isinstance(rule, Mapping):
        raise ValueError(f"{name}={shown(rule)} must be an object")
    given = {key: value for key, value in rule.items() if value is not None and key != "rope_theta"}
    older, newer = given.pop("type", None), given.pop("rope_type", None)
    if older is not None and newer is not None and older != newer:
        raise ValueError(f"{name}: rope_type={shown(newer)} and type={shown(older)} beside each other")
    kind = next((one for one in (newer, older) if one is not None), "default")
    by_type = [key for key, value in given.items() if isinstance(value, Mapping)]
    if by_type:
        raise ValueError(f"{name} has an object for {shown(by_type[0])}: in this family all layers rotate alike")
    if kind == "default" and (unused := sorted(given.keys() - {"partial_rotary_factor"})):
        raise ValueError(f"{name}: rope_type 'default' stretches nothing, so it has no use for {shown(unused[0])}")
    share = given.pop("partial_rotary_factor", 1.0)
    if isinstance(share, bool) or share != 1.0:
        raise ValueError(f"{name}: partial_rotary_factor={shown(share)} is not supported, only 1.0: whole heads turn")
    length = f["max_position_embeddings"]
    if kind in FROM_LENGTH and given.setdefault("original_max_position_embeddings", length) != length:
        if kind == "dynamic":  # Hugging Face counts from max_position_embeddings, whatever stands here
            said = shown(given["original_max_position_embeddings"])
            raise ValueError(
                f"{name}: original_max_position_embeddings={said} of rope_type 'dynamic' is not supported unless it is "
                f"max_position_embeddings={length!r}"
            )
    try:
        return base, read_scaling({"rope_type": kind, **given})
    except (TypeError, ValueError, OverflowError) as fault:
        raise ValueError(f"{name}: {cut(fault)}") from None
