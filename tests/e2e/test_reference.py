"""The reference describes every public name and module, and the manual uses its glossary."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter

import pytest
from pages import DOCS
from shared_data import ROOT

import daco
from daco.commands import app

PAGES = sorted((DOCS / "reference" / "api").glob("*.md"))


@pytest.mark.parametrize("name", sorted(set(daco.__all__) - {"__version__"}))
def test_a_public_name_is_documented_with_an_example(name):
    described = getattr(daco, name)
    if inspect.ismodule(described):
        described = described.load
    text = inspect.getdoc(described)
    assert text is not None
    assert re.match(r"[A-Z`].*\.$", text.splitlines()[0])
    assert ">>> " in text.split("Examples\n--------\n")[1]


def test_every_module_is_documented_once_or_internal():
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    named = Counter(re.findall(r"automodule:: (daco\.[\w.]+)", "\n".join(texts)))
    for text in texts:
        _, _, internal = text.partition("## Internal modules")
        named.update(re.findall(r"`(daco\.[\w.]+)`", internal.partition("\n## ")[0]))
    source = ROOT / "src"
    modules = {
        ".".join(path.relative_to(source).with_suffix("").parts)
        for path in (source / "daco").rglob("*.py")
        if not path.name.startswith("_")
    }
    commands = {name for name in modules if name.startswith(("daco.commands.", "daco.cli"))}
    packages = {"daco.backbones", "daco.monitoring.store"}
    assert named == Counter((modules - commands) | packages)


def interface():
    """The functions and classes that the pages of the interface document, as (module, name)."""
    for page in PAGES:
        module = ""
        text = page.read_text(encoding="utf-8")
        for kind, name in re.findall(r"^\.\. auto(\w+):: ([\w.]+)$", text, re.M):
            if kind == "module":
                module = name
            else:
                yield module, name


def described(module, name):
    """What is documented at a name: itself, and the methods of a class."""
    found = getattr(importlib.import_module(module), name)
    yield found
    if inspect.isclass(found):
        for method, value in vars(found).items():
            if not method.startswith("_") and callable(getattr(value, "__func__", value)):
                yield getattr(found, method)


def listed_in(text, section):
    """The names that a section of a docstring lists."""
    found = re.search(rf"^{section}\n-+\n(.*?)(?:\n\n\S|\Z)", text, re.M | re.S)
    rows = re.findall(r"^([*\w][\w, *]*?)(?: :.*)?$", found[1], re.M) if found else []
    return {row.strip(" *") for names in rows for row in names.split(",")}


@pytest.mark.parametrize(("module", "name"), [*interface()])
def test_the_documented_parameters_are_those_of_the_function(module, name):
    functions = [*described(module, name)]
    attributes = listed_in(inspect.getdoc(functions[0]) or "", "Attributes")
    for function in functions:
        text = inspect.getdoc(function) or ""
        if listed := listed_in(text, "Parameters"):
            known = set(inspect.signature(function).parameters) - {"self"}
            assert listed <= known, function
            # What a class documents as an attribute needs no second description.
            assert known - listed <= attributes, function


def test_every_command_is_in_a_table_of_its_page():
    page = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`daco .+`) \|", page, re.M)
    listed = [name for row in rows for name in re.findall(r"daco ([\w-]+)", row)]
    assert sorted(listed) == sorted(app.COMMANDS)
