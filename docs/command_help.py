"""The directive ``{commands}``: what ``--help`` prints for every command, each in a section."""

from __future__ import annotations

from typing import Any

import typer
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from daco.commands.app import COMMANDS, app, load_command


def help_texts() -> dict[str, str]:
    """The help of every command, 80 columns wide and without boxes, by name."""
    group: Any = typer.main.get_command(app)
    parent = group.context_class(group, info_name="daco")
    texts = {}
    for name in sorted(COMMANDS):
        command = load_command(name)
        context = command.context_class(
            command, parent=parent, info_name=name, max_content_width=80
        )
        texts[name] = str(command.get_help(context)).strip()
    return texts


class Commands(Directive):
    """A section for every command."""

    def run(self) -> list[nodes.Node]:
        """The sections, in alphabetical order."""
        sections: list[nodes.Node] = []
        for name, text in help_texts().items():
            title = f"daco {name}"
            section = nodes.section(ids=[nodes.make_id(title)], names=[title])
            section += nodes.title(text=title)
            section += nodes.literal_block(text, text, language="text")
            sections.append(section)
        return sections


def setup(sphinx: Sphinx) -> dict[str, bool]:
    """Make the directive known."""
    sphinx.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
