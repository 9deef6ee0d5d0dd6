"""What `trainwright bench … --submit` hands to a scheduler: the same as `python -m trainwright.bench`, as a script."""

from __future__ import annotations

import sys

from trainwright.bench.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
