"""Training with attnjax: the learning check and runs on real text. See `python -m train --help`."""
