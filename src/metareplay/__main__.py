"""``python -m metareplay`` is the command ``metareplay``."""

from metareplay.cli.main import main

main()
