"""``python -m collector``."""

from collector.cli import main

main()
