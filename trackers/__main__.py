"""``python -m trackers``."""

import os
import sys

# `python -m` looks for modules in the current directory first, where anybody's file may be called like one of ours.
# What Python itself has imported by now it took from there; the command `trackers` doesn't look there at all.
try:
    _here = os.path.realpath(os.getcwd())
except FileNotFoundError:  # it was deleted: nobody's file is there
    _here = ""
if (
    _here
    and not getattr(sys.flags, "safe_path", False)
    and sys.path
    and os.path.realpath(sys.path[0] or os.curdir) == _here
    and os.path.realpath(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) != _here
):
    del sys.path[0]

from trackers.cli import main

main()
