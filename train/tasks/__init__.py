"""Small learning tasks, each a pure function of a random key.

A task states what can be learned about a pattern: its batches, which predictions are scored, and under
which label. `base` says what a task is; the other files hold one kind each.
"""

from train.tasks.base import Batch, Task
from train.tasks.copying import Backcopy, Repeat, SelectiveCopy
from train.tasks.lookup import Mqar, Recall
from train.tasks.position import Delay, Reach
from train.tasks.state import FlipFlop
from train.tasks.text import Text

__all__ = ["Backcopy", "Batch", "Delay", "FlipFlop", "Mqar", "Reach", "Recall", "Repeat", "SelectiveCopy",
           "Task", "Text"]
