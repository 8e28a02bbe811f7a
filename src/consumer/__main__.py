"""``python -m consumer``."""

from consumer.cli import main

main()
