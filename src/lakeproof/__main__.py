"""``python -m lakeproof``."""

from lakeproof.cli import main

main()
