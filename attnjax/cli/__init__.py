"""The console command `attnjax`: one file for each subcommand, what they share in arguments.py.

argparse, because the command comes with the core install and adds no dependency to it.
"""

from attnjax.cli.command import main as main
