"""The limits of the child process are those of Linux; elsewhere there is nothing to collect."""

import sys

collect_ignore_glob = [] if sys.platform == "linux" else ["*.py"]
