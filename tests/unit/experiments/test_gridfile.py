"""Grids by name and from files."""

from __future__ import annotations

import pytest

from daco.errors import ConfigError, DataError
from daco.experiments.grids import read_grid
from daco.method.config import blind_pool, paper_grid


def names(grid):
    return [config.name for config in grid]


def write(tmp_path, text, name="grid.txt"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_grids_by_name():
    assert read_grid("51") == paper_grid(51)
    assert read_grid("45") == paper_grid(45)
    assert read_grid("9") == blind_pool()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# candidates\n\nraw-k1   # the baseline\n  raw-k2\n", ["raw-k1", "raw-k2"]),
        (b"\xef\xbb\xbfraw-k1\r\nraw-k2\r\n", ["raw-k1", "raw-k2"]),
    ],
)
def test_names_in_a_file(tmp_path, text, found):
    path = write(tmp_path, text)
    assert names(read_grid(path)) == names(read_grid(str(path))) == found


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("raw-k1\n\nconf-sof-m0-k1\n", ConfigError, r"grid.txt: .*Did you mean 'conf-soft-m0-k1'"),
        ("raw-k1\nraw-k2\nraw-k1\n", ConfigError, "grid.txt: The grid names 'raw-k1' twice"),
        ("# nothing\n", ConfigError, "grid is empty"),
        (b"\xff\xfe\x00PAR1", DataError, "cannot be read"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path, text, kind, message):
    with pytest.raises(kind, match=message):
        read_grid(write(tmp_path, text))


def test_what_is_neither_a_name_nor_a_file(tmp_path):
    with pytest.raises(DataError, match="Give one of 51, 45, 9, names"):
        read_grid("52")
    with pytest.raises(ConfigError, match="Unknown configuration 'rwa-k1'"):
        read_grid("raw-k1,rwa-k1")
    with pytest.raises(DataError, match="cannot be read"):
        read_grid(tmp_path)
