"""``python -m agentr1_train`` and ``deepspeed --module agentr1_train``."""

import sys

from agentr1_train.cli import main

sys.exit(main())
