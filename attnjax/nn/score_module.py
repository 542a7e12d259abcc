"""A module as score_fn: its parameters are score_params, so that they learn and equal modules share one program."""

import dataclasses
from typing import Any

from flax import nnx


@dataclasses.dataclass(frozen=True)
class ModuleRule:
    """score_fn of a module taken apart; score_params are its state. Compared by the structure of the module."""

    graph: Any  # what `nnx.split` gives

    def __call__(self, s: Any, q_pos: Any, k_pos: Any, head: Any, state: Any) -> Any:
        """What the module makes of the scores."""
        return nnx.merge(self.graph, state)(s, q_pos, k_pos, head, None)
