"""The modules of this folder are found beside their tests; the real server is used where it is built already."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
