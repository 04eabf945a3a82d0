"""Code shared by the programs in ``scripts/``: errors as one line, exit codes, output files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from trackers.cli.common import drop_output, harmless_streams, printable, said
from trackers.errors import NotFound, TrackersError


def run(name: str, program: Callable[[Sequence[str]], int]) -> None:
    """Run a program with the command line's arguments and exit with its code.

    Bad input is one line on stderr: exit code 1 for what isn't found, 2 for wrong usage; argparse's own is 2.
    """
    harmless_streams()
    try:
        code = program(sys.argv[1:])
        sys.stdout.flush()
    except NotFound as error:
        print(f"{name}: {printable(str(error), 4096)}", file=sys.stderr)
        code = 1
    except TrackersError as error:
        print(f"{name}: {printable(str(error), 4096)}", file=sys.stderr)
        code = 2
    except BrokenPipeError:
        sys.stderr.close()
        code = 141
    except OSError as error:
        print(f"{name}: {printable(said(error), 4096)}", file=sys.stderr)
        drop_output()
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
