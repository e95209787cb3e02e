"""What several benchmarks share, or what one would be too long with; none is a program."""

import sys
from pathlib import Path

# Programs are started by their path, and find what lies beside them; tools/ is one folder higher.
sys.path.append(str(Path(__file__).resolve().parents[2]))
