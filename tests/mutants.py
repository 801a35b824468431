"""``make mutants``: change one node of a module at a time and see whether a test fails.

``python tests/mutants.py method/bank`` prints the mutants of one module that survive. Of each
module, 50 are drawn with a fixed seed. The tests run in a forked process that has loaded all
packages but daco. Messages, annotations and arguments that repeat a default stay as they are. A
mutant that uses 60 s of CPU time, as an endless loop does, counts as killed.
"""

from __future__ import annotations

import ast
import os
import random
import resource
import sys
import tempfile
from importlib.abc import MetaPathFinder
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path

import hypothesis
import numba
import pandas  # noqa: F401
import pytest
import scipy.stats  # noqa: F401
import sklearn.ensemble  # noqa: F401

ROOT = Path(__file__).parents[1]
OTHERS = ("detector/decision", "evaluation/metrics", "monitoring/alarms")
PAPER = ("tests/property/test_engine_against_paper.py",)
PAPER += ("tests/conformance/test_paper_against_golden.py",)
MOST = 50
PYTEST = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
PYTEST += ["-W", "ignore::pytest.PytestConfigWarning"]  # options of plug-ins that are not loaded

OTHER = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Div, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = {"min": "max", "any": "all", "argmin": "argmax", "minimum": "maximum", "floor": "ceil"}
NAMES |= {name: other for other, name in NAMES.items()}
SKIPPED = ("strict", "cache", "nogil", "sort axis", "partition axis", "take_along_axis axis")


def changes(node):
    """Yield functions that change a node in place, or return what replaces it."""
    if isinstance(node, ast.Compare):
        other = OTHER[type(node.ops[0])]
        yield lambda: node.ops.__setitem__(0, other())
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        if other := OTHER.get(type(node.op)):
            yield lambda: setattr(node, "op", other())
    elif isinstance(node, ast.UnaryOp):
        yield lambda: node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield lambda: ast.Constant(value)
    elif isinstance(node, ast.Call):
        for index, keyword in enumerate(node.keywords):
            skipped = is_skipped(node, keyword)
            yield None if skipped else lambda index=index: node.keywords.pop(index) and None
    elif isinstance(node, ast.Name | ast.Attribute):
        field = "id" if isinstance(node, ast.Name) else "attr"
        if other := NAMES.get(getattr(node, field)):
            yield lambda: setattr(node, field, other)
    elif isinstance(node, ast.Return) and node.value is not None:
        yield lambda: setattr(node, "value", None)
    elif isinstance(node, ast.If | ast.IfExp):
        yield lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))


def is_skipped(call, keyword):
    return f"{ast.unparse(call.func)} {keyword.arg}".endswith(SKIPPED)


def sites(parent, skip=False):
    """Yield (node, how to replace it, change) of all mutants in order; no change if skipped."""
    for field, value in ast.iter_fields(parent):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for index, node in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr | ast.Raise):
                continue
            many = isinstance(value, list)
            put = (value.__setitem__, index) if many else (setattr, parent, field)
            for change in changes(node):
                yield node, put, None if skip else change
            inner = isinstance(node, ast.keyword) and is_skipped(parent, node)
            yield from sites(node, skip or inner)


def mutate(source, number):
    """Return the syntax tree of a mutant, or None, and what was changed in which line."""
    tree = ast.parse(source)
    node, (put, *where), change = list(sites(tree))[number]
    if change is None:
        return None, ""
    before = ast.unparse(node)
    if (replacement := change()) is not None:
        put(*where, replacement)
    text = f"{node.lineno}: {before}  ->  {ast.unparse(replacement or node)}"
    return ast.fix_missing_locations(tree), text


class Mutant(MetaPathFinder, SourceFileLoader):
    """Imports one module from a changed syntax tree."""

    def find_spec(self, fullname, path=None, target=None):
        return spec_from_loader(fullname, self) if fullname == self.name else None

    def get_code(self, fullname):
        return compile(self.tree, self.path, "exec")


def tests_of(module):
    """Return the tests of a module: its own, then others of the method and those of the paper."""
    room, name = module.split("/")
    own = f"tests/unit/{room}/test_{name}.py"
    if room != "method":
        return [own]
    others = sorted(map(str, Path("tests/unit/method").glob("test_*.py")))
    return [*sorted(others, key=own.__ne__), *PAPER]


def is_killed(module, tree):
    """Run the tests of a module in a forked process; return whether one failed."""
    if child := os.fork():
        return os.waitpid(child, 0)[1] != 0
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    if module == "method/_loops":  # machine code of the original is on disk
        numba.config.CACHE_DIR = tempfile.mkdtemp()
    mutant = Mutant(f"daco.{module.replace('/', '.')}", str(ROOT / f"src/daco/{module}.py"))
    mutant.tree = tree
    sys.meta_path.insert(0, mutant)
    os._exit(int(pytest.main([*PYTEST, *tests_of(module)])))


def main(modules):
    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    searched = [phase for phase in hypothesis.Phase if phase.name != "shrink"]
    hypothesis.settings.register_profile("quick", phases=searched)
    hypothesis.settings.load_profile("quick")  # the suite's settings are derived from it
    method = [f"method/{path.stem}" for path in sorted(Path("src/daco/method").glob("[!_]*.py"))]
    for module in modules or ["method/_loops", *method, *OTHERS]:
        source = Path(f"src/daco/{module}.py").read_text()
        if is_killed(module, ast.parse(source)):
            sys.exit(f"The tests of {module} fail. Run: pytest {' '.join(tests_of(module))}")
        numbers, killed = range(len(list(sites(ast.parse(source))))), []
        for number in random.Random(0).sample(numbers, len(numbers))[:MOST]:
            tree, change = mutate(source, number)
            if tree is not None:
                killed.append(is_killed(module, tree))
                if not killed[-1]:
                    print(f"{module}.py:{change}", flush=True)
        print(f"{module}: {sum(killed)} of {len(killed)} mutants killed", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
