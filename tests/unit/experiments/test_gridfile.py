"""Grids by name and from files."""

from __future__ import annotations

import pytest

from daco.errors import ConfigError, DataError
from daco.experiments.inputs import read_grid
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


def test_a_list_with_comments_and_empty_lines(tmp_path):
    text = "# candidates\n\nraw-k1   # the baseline\n  conf-soft-m0-k1\n"
    assert names(read_grid(write(tmp_path, text))) == ["raw-k1", "conf-soft-m0-k1"]
    assert names(read_grid(str(write(tmp_path, text)))) == ["raw-k1", "conf-soft-m0-k1"]


def test_the_grid_of_a_run(tmp_path):
    text = "policy,config,dev_omega\nch0,raw-k1,57.0\nch0,ldn-diff-K1,56.0\n"
    assert names(read_grid(write(tmp_path, text, "grid.csv"))) == ["raw-k1", "ldn-diff-K1"]


def test_a_file_from_a_spreadsheet(tmp_path):
    text = b"\xef\xbb\xbfconfig\r\nraw-k1\r\nraw-k2\r\n"
    assert names(read_grid(write(tmp_path, text, "grid.csv"))) == ["raw-k1", "raw-k2"]


def test_a_wrong_name_is_found_by_its_line(tmp_path):
    path = write(tmp_path, "raw-k1\n\nconf-sof-m0-k1\n")
    with pytest.raises(ConfigError, match=r"line 3: .*Did you mean 'conf-soft-m0-k1'"):
        read_grid(path)


def test_a_name_twice_is_found_by_both_lines(tmp_path):
    with pytest.raises(ConfigError, match=r"line 3: 'raw-k1' is already on line 1"):
        read_grid(write(tmp_path, "raw-k1\nraw-k2\nraw-k1\n"))


def test_a_row_without_a_name(tmp_path):
    with pytest.raises(ConfigError, match=r"line 3"):
        read_grid(write(tmp_path, "machine,config\nfan,raw-k1\nfan\n", "grid.csv"))


@pytest.mark.parametrize("text", ["", "# nothing\n", "config\n"])
def test_an_empty_file(tmp_path, text):
    with pytest.raises(DataError, match="names no configuration"):
        read_grid(write(tmp_path, text))


def test_no_such_grid():
    with pytest.raises(DataError, match="neither one of 51, 45, 9, frontier nor a file"):
        read_grid("52")


def test_a_folder_and_a_file_that_is_no_text(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_grid(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        read_grid(write(tmp_path, b"\xff\xfe\x00PAR1"))
