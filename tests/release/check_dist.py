"""``make dist``: check the wheel and the source archive as somebody else will use them.

``python tests/release/check_dist.py dist`` compares the files of both with the repository, then
installs the wheel without extras into a new environment in a temporary folder and runs
``daco demo`` there. ``--tag v1.2.3`` also compares the tag with the version and the changelog.
It ends with exit code 1 and one line for each thing that is wrong.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "daco"
COMPILED = {".pyc", ".nbi", ".nbc"}
BESIDE_THE_PACKAGE = {
    ".gitignore",
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "SECURITY.md",
    "pyproject.toml",
}
DEMO_FILES = ("dev.parquet", "study/run.json", "study/report.html")


def package_files() -> dict[str, bytes]:
    """The files of the package in the repository, as ``daco/...``."""
    return {
        path.relative_to(SOURCES.parent).as_posix(): path.read_bytes()
        for path in sorted(SOURCES.rglob("*"))
        if path.is_file() and path.suffix not in COMPILED
    }


def package_version() -> str:
    """The version that ``src/daco/version.py`` states."""
    text = (SOURCES / "version.py").read_text(encoding="utf-8")
    return re.search(r'__version__ = "([^"]+)"', text)[1]


def wheel_files(path: Path) -> dict[str, bytes]:
    """The files of a wheel by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sdist_files(path: Path) -> dict[str, bytes]:
    """The files of a source archive by name, without the folder that holds all of them."""
    with tarfile.open(path) as archive:
        members = [member for member in archive if member.isfile()]
        return {m.name.partition("/")[2]: archive.extractfile(m).read() for m in members}


def differences(what: str, files: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """One line for each file that is missing, not expected, or different."""
    return [
        *(f"{what} lacks {name}" for name in sorted(expected.keys() - files.keys())),
        *(f"{what} should not have {name}" for name in sorted(files.keys() - expected.keys())),
        *(
            f"{what} has another {name} than the repository"
            for name in sorted(files.keys() & expected.keys())
            if files[name] != expected[name]
        ),
    ]


def wheel_problems(path: Path) -> list[str]:
    """What is wrong with the files of a wheel."""
    info = f"daco_asd-{package_version()}.dist-info/"
    files = {n: data for n, data in wheel_files(path).items() if not n.startswith(info)}
    return differences("the wheel", files, package_files())


def sdist_problems(path: Path) -> list[str]:
    """What is wrong with the files of a source archive."""
    files = sdist_files(path)
    package = {n.removeprefix("src/"): data for n, data in files.items() if n.startswith("src/")}
    beside = {name for name in files if not name.startswith("src/")}
    return [
        *differences("the source archive", package, package_files()),
        *(f"the source archive lacks {name}" for name in sorted(BESIDE_THE_PACKAGE - beside)),
        *(
            f"the source archive should not have {name}"
            for name in sorted(beside - BESIDE_THE_PACKAGE)
        ),
    ]


def tag_problems(tag: str, version: str, changelog: str) -> list[str]:
    """What keeps a tag from being released: another version, or a changelog that is not ready."""
    problems = []
    if tag != f"v{version}":
        problems.append(f"the tag is {tag} and the version of the package {version}")
    unreleased, *releases = re.split(r"^## \[(?!Unreleased)", changelog, flags=re.MULTILINE)
    if not releases or not re.match(rf"{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n", releases[0]):
        problems.append(f"the first release in CHANGELOG.md is not '## [{version}] - YYYY-MM-DD'")
    if re.search(r"^- ", unreleased.partition("## [Unreleased]")[2], flags=re.MULTILINE):
        problems.append(f"CHANGELOG.md has entries under [Unreleased]: move them to [{version}]")
    return problems


def installation_problems(wheel: Path) -> list[str]:
    """What goes wrong where only the wheel is installed, away from the repository."""
    kept = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    with tempfile.TemporaryDirectory(prefix="daco-dist-") as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")

        def run(program: str, *arguments: str | Path) -> str:
            begin = time.monotonic()
            command = [str(programs / program), *map(str, arguments)]
            done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True)
            seconds = time.monotonic() - begin
            print(f"{seconds:6.1f} s  {program} {' '.join(command[1:])}", flush=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
            return done.stdout

        try:
            run("python", "-m", "pip", "install", "--quiet", wheel.resolve())
            where = run("python", "-c", "import daco; print(daco.__file__)").strip()
            packages = run("python", "-m", "pip", "list", "--format=freeze")
            version = run("daco", "--version")
            run("daco", "demo", "--out", "demo")
        except RuntimeError as error:
            return [str(error)]
        problems = [
            f"daco demo wrote no {f}" for f in DEMO_FILES if not (folder / "demo" / f).is_file()
        ]
        if not Path(where).is_relative_to(folder.resolve()):
            problems.append(f"daco is imported from {where}, not from the wheel")
        if package_version() not in version.split():
            problems.append(f"daco --version says {version.strip()!r}, not {package_version()}")
        if re.search("^torch==", packages, flags=re.MULTILINE):
            problems.append("the wheel installs torch")
        return problems


def main() -> int:
    """Check the files in a folder, install the wheel, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="holds one wheel and one source archive")
    parser.add_argument("--tag", help="the tag of the release, for example v1.2.3")
    options = parser.parse_args()
    name = f"daco_asd-{package_version()}"
    wheel, sdist = (options.folder / f"{name}{end}" for end in ("-py3-none-any.whl", ".tar.gz"))
    found = sorted(path.name for path in options.folder.glob("*"))
    if found != sorted([wheel.name, sdist.name]):
        problems = [f"{options.folder} should hold {wheel.name} and {sdist.name}, has {found}"]
    else:
        problems = [*wheel_problems(wheel), *sdist_problems(sdist), *installation_problems(wheel)]
    if options.tag:
        changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        problems += tag_problems(options.tag, package_version(), changelog)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{wheel} and {sdist} are complete, and the wheel works without the repository.")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
