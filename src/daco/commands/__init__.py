"""One module per command of ``daco``; heavy imports happen inside the commands."""
