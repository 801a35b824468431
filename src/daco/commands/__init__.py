"""The command line: one thin file per command.

A command parses its options, calls a function of a lower room and prints the result. Read `app`
first, which lists the commands; `options` declares the options that several commands share, and
`console` prints text, tables and progress bars.
"""
