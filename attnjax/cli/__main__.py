"""`python -m attnjax.cli`, where the command is not on the PATH."""

import sys

from attnjax.cli.command import main

sys.exit(main())
