"""Python runs this at its start where this folder is on its path: it and its children compute with noise."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import noise

del sys.path[0]
noise.start(int(os.environ["NOISE"]))
