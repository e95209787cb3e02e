"""Where the parts of a checkout are."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
DOCS = ROOT / "docs"
PEERS = ROOT / ".venv-peers"
"""Environments of other programs, made by script/peers."""
