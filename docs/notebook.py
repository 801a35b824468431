"""Runs the code of a page and compares what it prints with what the page says it prints.

A page is Markdown with fenced blocks, and reads as a notebook:

- ``python`` blocks run in order in one namespace; the value of a last expression is shown;
- ``sh`` blocks: lines that begin with ``daco`` run in the same folder, all others do not;
  one that ends with ``&`` goes on until the end of the page, and ``$PORT`` is a free port;
- an error of daco is output, too, as the command line and a notebook would show it;
- a ``text`` block right after one of them is its output, ``...`` standing for anything. A block
  that prints something and states nothing is an error;
- a line ``% not run: reason`` above a block leaves it out;
- pictures that a page shows from ``images/`` are written there by its own code;
- a page that reads ``daco-experiments`` finds the authors' artifacts there.

The tests run all pages. As a Sphinx extension this module also runs the pages below ``start/`` that
have changed when the manual is built, and warns where an output differs.

::

    python docs/notebook.py           # compare all pages
    python docs/notebook.py --write   # put the outputs and pictures into the pages
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import io
import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
PAGES = tuple(
    page.relative_to(DOCS).as_posix()
    for page in sorted(DOCS.rglob("*.md"))
    if "_build" not in page.parts
    and page != DOCS / "reference" / "commands.md"  # a test runs a smaller version
    and re.search(r"^```(python|sh)$", page.read_text(encoding="utf-8"), re.M)
)
WIDTH = 80
ARTIFACTS = DOCS.parent / "tests" / "published" / "daco-experiments.zip"
"""The authors' artifacts; the archive holds one folder with its own name."""

_FENCE = re.compile(r"^(?P<fence>```+)(?P<kind>[^`\n]*)$(?P<body>.*?)^(?P=fence)$", re.M | re.S)
_NOT_RUN = re.compile(r"^% not run: .+\n\Z", re.M)
_IMAGE = re.compile(r"\]\((?:\.\./)*images/([\w.-]+)\)")


@dataclass(frozen=True)
class Block:
    """Code, the output it states, and where in the page that output is (or would be)."""

    kind: str
    code: str
    line: int
    stated: str
    span: tuple[int, int]


@dataclass(frozen=True)
class Difference:
    """A block that printed something else than the page states."""

    block: Block
    printed: str

    def __str__(self) -> str:
        return (
            f"line {self.block.line}: the page states\n{self.block.stated or '(nothing)'}\n"
            f"and the code printed\n{self.printed or '(nothing)'}"
        )


def read_blocks(text: str) -> list[Block]:
    """The blocks of a page that run."""
    fences = list(_FENCE.finditer(text))
    blocks = []
    for at, fence in enumerate(fences):
        if fence["kind"] not in ("python", "sh") or _NOT_RUN.search(text[: fence.start()]):
            continue
        after = fences[at + 1] if at + 1 < len(fences) else None
        stated, span = "", (fence.end(), fence.end())
        if after and after["kind"] == "text" and not text[fence.end() : after.start()].strip():
            stated, span = after["body"].lstrip("\n"), (fence.end(), after.end())
        line = text.count("\n", 0, fence.start()) + 1
        blocks.append(Block(fence["kind"], fence["body"].lstrip("\n"), line, stated, span))
    return blocks


def run_blocks(blocks: list[Block]) -> Iterator[str]:
    """What each block prints, run in the current folder."""
    names: dict[str, Any] = {"__name__": "page"}
    with contextlib.ExitStack() as background, _free_port():
        for block in blocks:
            if block.kind == "python":
                printed = _run_python(block.code, names)
            else:
                printed = _run_sh(block.code, background)
            # Output has no trailing blanks: editors strip them from a page.
            text = "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n")
            yield text and text + "\n"


def differences(page: Path) -> list[Difference]:
    """Run a page in the current folder; where its outputs are not as stated."""
    blocks = read_blocks(page.read_text(encoding="utf-8"))
    return [
        Difference(block, printed)
        for block, printed in zip(blocks, run_blocks(blocks), strict=True)
        if not agrees(block.stated, printed)
    ]


def agrees(stated: str, printed: str) -> bool:
    """Whether an output is the stated one; ``...`` stands for anything.

    Processors round differently: scores differ by up to 0.7 % with and without AVX-512.
    A number with decimals may therefore differ by 2 % or by two of its last digit, a percentage
    by 1, and the widths of columns and lines follow from the digits.

    >>> agrees("0.466 of ... clips, 74%", "0.467  of 12 clips, 75%"), agrees("0.466", "0.479")
    (True, False)
    """
    parts = re.split(rf"(\.\.\.|{_NUMBER}|\d+(?=%))", _narrow(stated))
    pattern = "".join(
        ".*?" if part == "..." else rf"({_NUMBER}|\d+)" if at % 2 else re.escape(part)
        for at, part in enumerate(parts)
    )
    found = re.fullmatch(pattern, _narrow(printed), re.S)
    numbers = [part for part in parts[1::2] if part != "..."]
    return found is not None and all(map(_close, numbers, found.groups()))


_NUMBER = r"\d+\.\d+"


def _narrow(text: str) -> str:
    """The text without the widths of its columns and lines."""
    return re.sub(r"([─━])\1+", r"\1", re.sub(r"\s+", " ", text))


def _close(stated: str, printed: str) -> bool:
    decimals = len(stated.partition(".")[2])
    tolerance = max(2.5 * 10.0**-decimals, 0.02 * float(stated)) if decimals else 1
    return abs(float(stated) - float(printed)) <= tolerance


def unpack_artifacts(page: Path) -> None:
    """Put the authors' artifacts into the current folder if the page reads them."""
    blocks = read_blocks(page.read_text(encoding="utf-8"))
    if any(ARTIFACTS.stem in block.code for block in blocks):
        with zipfile.ZipFile(ARTIFACTS) as archive:
            archive.extractall()


def missing_package(page: Path) -> str | None:
    """A package that the page needs and daco does not, where it is not installed."""
    code = "\n".join(block.code for block in read_blocks(page.read_text(encoding="utf-8")))
    needed = {"pyod": "from pyod"}
    missing = (name for name, use in needed.items() if use in code and not _is_installed(name))
    return next(missing, None)


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def missing_pictures(page: Path) -> list[str]:
    """Pictures that the page shows and its code, run in the current folder, has not written."""
    shown = _IMAGE.findall(page.read_text(encoding="utf-8"))
    return [name for name in shown if not Path("images", name).is_file()]


def write_outputs(page: Path, found: list[Difference]) -> None:
    """Put what the code printed, and the pictures it drew, in the place of what was there."""
    text = page.read_text(encoding="utf-8")
    for difference in reversed(found):
        start, stop = difference.block.span
        output = f"\n\n```text\n{difference.printed}```" if difference.printed else ""
        text = text[:start] + output + text[stop:]
    page.write_text(text, encoding="utf-8")
    for name in _IMAGE.findall(text):
        (DOCS / "images").mkdir(exist_ok=True)
        shutil.copy(Path("images", name), DOCS / "images" / name)


def _run_python(code: str, names: dict[str, Any]) -> str:
    """Run a block as a notebook cell; warnings of daco are output, too."""
    from daco.errors import DacoError, DacoWarning

    tree = ast.parse(code)
    last = tree.body[-1] if tree.body else None
    shown = ast.Expression(last.value) if isinstance(last, ast.Expr) else None
    if shown is not None:
        del tree.body[-1]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("always", DacoWarning)
        warnings.showwarning = lambda message, kind, *_: print(_message(kind.__name__, message))
        try:
            exec(compile(tree, "<page>", "exec"), names)
            value = None if shown is None else eval(compile(shown, "<page>", "eval"), names)
            if value is not None:
                print(repr(value))
        except DacoError as error:
            print(_message(type(error).__name__, error))
    return printed.getvalue()


def _message(kind: str, message: object) -> str:
    return textwrap.fill(
        f"{kind}: {message}", WIDTH, break_long_words=False, break_on_hyphens=False
    )


def _run_sh(code: str, background: contextlib.ExitStack) -> str:
    from typer.testing import CliRunner

    from daco.commands.app import app
    from daco.errors import DacoError

    printed = []
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line.replace("$PORT", os.environ["PORT"]), comments=True)
        if not words or words[0] != "daco":
            continue
        if words[-1] == "&":
            background.enter_context(_going_on(words[1:-1]))
            continue
        plain = {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb"}
        try:
            result = CliRunner().invoke(app, words[1:], env=plain, catch_exceptions=False)
        except DacoError as error:
            printed.append(_message("error", error) + "\n")
            continue
        if result.exit_code != 0:
            raise RuntimeError(f"{line.strip()!r} ended with {result.exit_code}:\n{result.output}")
        printed.append(result.stdout)
    return "".join(printed)


@contextlib.contextmanager
def _free_port() -> Iterator[None]:
    """A port in the environment that nothing uses: the page's own number may be taken."""
    port = 0
    while not port:  # below those that the system gives to whoever asks for any port
        candidate = random.SystemRandom().randrange(10_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", candidate)):
            port = candidate
    before = os.environ.get("PORT")
    os.environ["PORT"] = str(port)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PORT"]
        else:
            os.environ["PORT"] = before


@contextlib.contextmanager
def _going_on(words: list[str]) -> Iterator[None]:
    """A command of daco that serves until it is stopped, once it has printed its address."""
    command = [sys.executable, "-m", "daco.cli", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        if not said.startswith("http"):
            raise RuntimeError(f"daco {shlex.join(words)} ended:\n{said}{process.stderr.read()}")
        # What it says later goes nowhere, but must not fill the pipe.
        drain = threading.Thread(target=process.stderr.read)
        drain.start()
        try:
            yield
        finally:
            process.terminate()
            drain.join()


@contextlib.contextmanager
def _new_folder(page: Path) -> Iterator[None]:
    """Work in a temporary folder that holds what the page reads."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        unpack_artifacts(page)
        yield


def setup(sphinx: Sphinx) -> dict[str, bool]:
    """Run the pages for newcomers when Sphinx reads them."""
    sphinx.connect("source-read", _compare_while_building)
    return {"parallel_read_safe": True}


def _compare_while_building(sphinx: Sphinx, docname: str, source: list[str]) -> None:
    from sphinx.util import logging

    if not docname.startswith("start/"):
        return
    page = Path(sphinx.env.doc2path(docname))
    with _new_folder(page):
        for difference in differences(page):
            logging.getLogger(__name__).warning(
                "%s", difference, location=(docname, difference.block.line)
            )


def main() -> None:
    """Compare the pages, or refresh them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", default=PAGES, help="such as start/researcher.md")
    parser.add_argument("--write", action="store_true", help="refresh the stated outputs")
    given = parser.parse_args()
    failed = False
    for name in given.pages:
        page = DOCS / name
        if missing := missing_package(page):
            print(f"{name}: left out, it needs {missing}", file=sys.stderr)
            continue
        with _new_folder(page):
            found = differences(page)
            if given.write:
                write_outputs(page, found)
                print(f"{name}: {len(found)} outputs written", file=sys.stderr)
            else:
                failed |= bool(found)
                for difference in found:
                    print(f"{name}, {difference}", file=sys.stderr)
    sys.exit(failed)


if __name__ == "__main__":
    main()
