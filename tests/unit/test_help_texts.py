"""Every command, argument and option has a help text, and the help fits a terminal."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer

from daco.commands.app import app

GROUP: Any = typer.main.get_command(app)
COMMANDS = {name: GROUP.get_command(None, name) for name in GROUP.list_commands(None)}


@pytest.mark.parametrize("name", COMMANDS)
def test_everything_has_a_help_text(name):
    command = COMMANDS[name]
    assert command.help
    assert [each.opts[0] for each in command.params if not each.help] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_fits_80_columns(name):
    parent = GROUP.context_class(GROUP, info_name="daco")
    command = COMMANDS[name]
    context = command.context_class(command, parent=parent, info_name=name, max_content_width=80)
    assert max(map(len, command.get_help(context).splitlines())) <= 80


@pytest.mark.parametrize("name", ["verify", "score", "watch", "fit", "update", "serve"])
def test_a_command_with_exit_codes_of_its_own_names_them(name):
    described = " ".join(COMMANDS[name].help.split())
    assert re.search(r"Exit codes: .*\b2 ", described)
