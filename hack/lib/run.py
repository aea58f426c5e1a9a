"""Starts the command named by the first argument; the scripts in hack/ call this."""

import sys

from gpugrant_hack import commands

if __name__ == "__main__":
    sys.exit(commands.main(sys.argv[1:]))
