"""Every command, argument and option has a help text, and the help fits a terminal."""

from __future__ import annotations

import re

import pytest
from command_line import run

from daco.commands.app import COMMANDS, load_command


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_everything_it_takes_is_described_in_80_columns(name):
    command = load_command(name)
    assert [each.opts[0] for each in command.params if not each.help] == []
    text = run(name, "--help").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert f"daco {name} [OPTIONS]".partition(" ")[2] in text
    assert command.help.splitlines()[0] in " ".join(text.split())


def test_the_list_of_commands_has_a_sentence_for_each():
    text = " ".join(run("--help").stdout.split())
    assert all(f"{name} {sentence}" in text for name, sentence in COMMANDS.items())
    assert re.search(r"daco 0\.\d", run("--version").stdout)


def test_a_mistyped_command_gets_a_suggestion():
    assert "'score'" in run("scoer", code=2).output
