"""Make the links of README.md absolute: a package index shows the text without the repository.

``python tests/release/index_readme.py https://github.com/OWNER/NAME v1.2.3`` changes README.md
before a release is built from it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
_RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def relative_links(text: str) -> list[str]:
    """The targets of links and pictures that exist only in the repository."""
    return [target for _, _, target in _RELATIVE.findall(text)]


def with_absolute_links(text: str, repository: str, tag: str) -> str:
    """The text with links and pictures as they are in the repository at a tag."""

    def absolute(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        kind = "raw" if picture else "blob"
        return f"{picture}[{label}]({repository}/{kind}/{tag}/{target})"

    return _RELATIVE.sub(absolute, text)


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    README.write_text(with_absolute_links(text, *sys.argv[1:]), encoding="utf-8")
