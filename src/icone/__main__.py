"""`python -m icone` is `icone`."""

import sys

from icone.cli import main

sys.exit(main())
