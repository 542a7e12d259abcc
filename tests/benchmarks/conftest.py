"""The benchmark is a folder of plain modules that run as a script: its tests import them as the script does."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "benchmarks"))
