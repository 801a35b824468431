"""The files that describe the repository agree with each other and with the package."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from itertools import chain

import pytest
import yaml
from release.check_dist import ROOT, package_version

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read_yaml(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_the_citation_has_what_the_format_requires():
    citation = read_yaml("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert citation["authors"] == PROJECT["authors"]
    assert (citation["version"], citation["license"]) == (package_version(), PROJECT["license"])


def imported_packages():
    """The packages of others that modules of daco import when they run."""
    for path in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield str(node.module).partition(".")[0]


def test_what_is_imported_is_declared():
    extras = PROJECT["optional-dependencies"]
    used = [extras[name] for name in extras.keys() - {"test", "docs", "lint"}]
    names = [re.match(r"[\w-]+", each)[0] for each in chain(PROJECT["dependencies"], *used)]
    declared = {name.lower().replace("_", "-") for name in names}
    owners = packages_distributions()
    for package in set(imported_packages()) - sys.stdlib_module_names - {"daco"}:
        owner = {name.lower().replace("_", "-") for name in owners.get(package, [package])}
        assert owner & declared, package


def test_supported_pythons_are_those_that_are_tested():
    workflow = read_yaml(".github/workflows/ci.yml")
    tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    listed = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert listed == tested
    assert PROJECT["requires-python"] == f">={tested[0]}"


def test_every_requirement_is_pinned():
    def normal(name):
        return re.sub(r"[-_.]+", "-", name).lower()

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {normal(line.partition("==")[0]) for line in lines if "==" in line}
    required = [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())]
    named = {normal(re.match(r"[\w.-]+", requirement)[0]) for requirement in required}
    assert named - {PROJECT["name"]} <= pinned


@pytest.mark.parametrize("name", ["ci", "explore", "release"])
def test_actions_of_others_are_pinned_by_hash(name):
    steps = chain(
        *(
            job.get("steps", [])
            for job in read_yaml(f".github/workflows/{name}.yml")["jobs"].values()
        )
    )
    used = [step["uses"] for step in steps if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each) for each in used)


def test_a_release_is_published_only_after_tests_and_checks():
    workflow = read_yaml(".github/workflows/release.yml")
    jobs = workflow["jobs"]
    assert jobs["test"] == {"uses": "./.github/workflows/ci.yml"}
    assert set(jobs["publish"]["needs"]) == {"test", "build"}
    assert any(step.get("run", "").startswith("make dist TAG=") for step in jobs["build"]["steps"])
    granted = {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})}
    assert granted == {"publish"}
