"""Entry point of the ``daco`` command; `daco.commands.app` holds the commands."""

from __future__ import annotations

import errno
import signal
import sys

from daco.errors import DacoError

_DISK_FULL = "Free some space on the disk of the output or of temporary files and run it again."


def main() -> None:
    """Run the command line; a user's mistake ends with one message instead of a stack trace."""
    interrupts = []

    def interrupt(number: int, _: object) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        from daco.commands.app import app  # takes a moment, in which Ctrl-C may be pressed

        app()
    except DacoError as error:
        message = str(error)
    except OSError as error:
        location = f"{error.filename}: " if error.filename else ""
        hint = f" {_DISK_FULL}" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        message = f"{location}{error.strerror or error}.{hint}"
    except (Exception, KeyboardInterrupt):  # an interrupted import may raise any exception
        if not interrupts:
            raise
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)
    from rich.markup import escape

    from daco.commands.console import Output

    Output(stderr=True).print(f"[red]error:[/red] {escape(message)}")
    sys.exit(2)


if __name__ == "__main__":
    main()
