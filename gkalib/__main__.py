"""``python -m gkalib COMMAND``."""

import sys

from gkalib.cli import main

sys.exit(main())
