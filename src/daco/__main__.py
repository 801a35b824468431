"""``python -m daco`` is the command ``daco``."""

from daco.cli import main

main()
