"""The wheel and the source archive hold the package, all of it, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tarfile

import pytest
from release.check_dist import (
    ROOT,
    package_files,
    sdist_problems,
    tag_problems,
    wheel_files,
    wheel_problems,
)
from release.index_readme import relative_links, with_absolute_links


def build(folder, out):
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", out]
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def test_wheel_and_source_archive_hold_the_package_and_nothing_else(built):
    assert wheel_problems(built[0]) == []
    assert sdist_problems(built[1]) == []


def test_the_source_archive_builds_the_same_wheel(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    wheel, _ = build(folder, tmp_path / "dist")
    assert wheel_files(wheel) == wheel_files(built[0])


def test_a_wheel_without_one_of_its_files_is_noticed(built, tmp_path):
    from zipfile import ZipFile

    lost = "daco/experiments/templates/report.html"
    assert lost in package_files()
    wheel = tmp_path / built[0].name
    with ZipFile(wheel, "w") as archive:
        for name, data in wheel_files(built[0]).items():
            if name != lost:
                archive.writestr(name, data)
        archive.writestr("tests/test_distribution.py", "")
    assert wheel_problems(wheel) == [
        f"the wheel lacks {lost}",
        "the wheel should not have tests/test_distribution.py",
    ]


def test_links_of_a_released_readme_are_absolute():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = relative_links(text)
    assert [link for link in links if not (ROOT / link.partition("#")[0]).is_file()] == []
    released = with_absolute_links(text, "https://github.com/a/b", "v1.2.3")
    assert relative_links(released) == []
    assert "(https://github.com/a/b/raw/v1.2.3/docs/images/report.png)" in released
    assert "(https://github.com/a/b/blob/v1.2.3/CONTRIBUTING.md)" in released
    assert len(released.splitlines()) == len(text.splitlines())


READY = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-12-01\n\n### Added\n\n- A thing.\n"


@pytest.mark.parametrize(
    ("tag", "version", "changelog", "problem"),
    [
        ("v1.2.4", "1.2.3", READY, "the tag is v1.2.4"),
        ("v1.2", "1.2", READY, "the first release"),
        ("v1.2.3", "1.2.3", READY.replace("- 2026-12-01", ""), "the first release"),
        (
            "v1.2.3",
            "1.2.3",
            READY.replace("## [1.2.3]", "- Other.\n\n## [1.2.3]"),
            "CHANGELOG.md has",
        ),
    ],
)
def test_a_tag_that_fits_neither_is_refused(tag, version, changelog, problem):
    (found,) = tag_problems(tag, version, changelog)
    assert found.startswith(problem)
    assert tag_problems("v1.2.3", "1.2.3", READY) == []
