"""Packages of others as pip would leave them in a folder: a module and its metadata."""

from __future__ import annotations

from textwrap import dedent


def write_package(folder, code, *points, module="plugin", name="some-plugin", version="1.0"):
    """Write a package whose entry points are lines such as ``daco.backbones:net = plugin:Net``."""
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(dedent(code), encoding="utf-8")
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n", encoding="utf-8")
    groups: dict[str, list[str]] = {}
    for point in points:
        group, _, line = point.partition(":")
        groups.setdefault(group, []).append(line)
    text = "\n".join(f"[{group}]\n" + "\n".join(lines) for group, lines in groups.items())
    (metadata / "entry_points.txt").write_text(text + "\n", encoding="utf-8")
    return folder
