"""``python -m fm2`` runs the command line."""

import sys

from fm2.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
