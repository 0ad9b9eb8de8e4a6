"""Python runs this at its start where this folder is on its path: it and its children are perturbed."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
if "NOISE" in os.environ:
    import noise

    noise.start(int(os.environ["NOISE"]))
else:
    import machine

    machine.start()
del sys.path[0]
