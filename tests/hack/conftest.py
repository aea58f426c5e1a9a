"""The library of the scripts is no part of the distribution: it is found beside them."""

import sys

import rig

sys.path.insert(0, str(rig.HACK / "lib"))
