"""Every help text of every command is a plain sentence that fits a terminal."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer

from daco.commands.app import app

GROUP: Any = typer.main.get_command(app)
COMMANDS = dict(GROUP.commands)

VERBS = frozenset(
    re.findall(
        r"\w+",
        "Adapt Add Allow Answer Assign Attach Calibrate Check Choose Compare Compute Connect "
        "Count Cut Decide Declare Delete Describe Download Draw Embed End Evaluate Exclude Exit "
        "Fetch Find Fit Freeze Give Go Group Guard Hear Install Join Keep Label List Listen "
        "Look Make Measure Name Open Play Preregister Print Raise Read Recompute Record Refuse "
        "Remove Replace Reset Run Score Send Serve Set Show Sign Start Stop Submit Take Train "
        "Turn Use Wait Watch Write",
    )
)
"""Verbs in the imperative with which a help text may begin."""

BANNED = re.compile(
    r"\bso many\b|\bthose (that|of|which)\b|\bwhat (is|was|it)\b|\b(says?|told|tells|heard|hears)\b"
    r"|\bone \.\.\. the other\b|;.*;|\bDefault:|\bno ranker\b|\brests? on\b",
    re.IGNORECASE,
)
"""Phrases that the manual and the help avoid."""


def texts() -> list[tuple[str, str]]:
    """The name and help of each command, argument and option."""
    found = []
    for name, command in COMMANDS.items():
        found.append((name, command.get_short_help_str(200)))
        found += [
            (f"{name} {each.opts[0]}", each.help) for each in command.params if each.name != "help"
        ]
    return found


@pytest.mark.parametrize(("name", "text"), texts(), ids=lambda value: value[:40])
def test_each_help_text_is_a_sentence_in_the_imperative(name, text):
    assert text, f"{name} has no help"
    assert text.endswith("."), text
    assert text.split()[0] in VERBS, text
    assert not BANNED.search(text), text


@pytest.mark.parametrize("name", COMMANDS)
def test_each_description_consists_of_sentences(name):
    description = " ".join(COMMANDS[name].help.split())
    first, *_ = description.partition(". ")
    assert first.split()[0] in VERBS, first
    assert description.endswith("."), description
    assert not BANNED.search(description), BANNED.search(description)
    starts = re.findall(r"(?<=[.!?] )(\S+)", description)
    assert all(word[0].isupper() or word.startswith(("daco", "-")) for word in starts), starts


@pytest.mark.parametrize("name", ["verify", "score", "watch", "fit", "update", "serve"])
def test_a_command_with_exit_codes_of_its_own_names_them(name):
    described = " ".join(COMMANDS[name].help.split())
    assert re.search(r"Exit codes: .*\b2 ", described)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_fits_80_columns(name):
    parent = GROUP.context_class(GROUP, info_name="daco")
    command = COMMANDS[name]
    context = command.context_class(command, parent=parent, info_name=name, max_content_width=80)
    assert max(map(len, command.get_help(context).splitlines())) <= 80


def test_a_fragment_would_be_noticed():
    for text in ("Folder of recordings.", "use a folder.", "Directory for weights"):
        assert text.split()[0] not in VERBS or not text.endswith(".")
    assert BANNED.search("Which vectors. Default: the first.")
