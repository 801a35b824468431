"""Files appear complete or not at all, and errors name the file that caused them."""

from __future__ import annotations

import shutil

import pytest

from daco.errors import DataError
from daco.files.atomic import atomic_write


def test_an_unreadable_source_is_not_blamed_on_the_target(tmp_path):
    (tmp_path / "out").write_text("before")
    with pytest.raises(FileNotFoundError) as caught, atomic_write(tmp_path / "out") as temporary:
        shutil.copyfile(tmp_path / "missing.pt", temporary)
    assert caught.value.filename.endswith("missing.pt")
    assert (tmp_path / "out").read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_a_missing_folder_and_a_folder_in_the_way_are_named(tmp_path):
    with (
        pytest.raises(DataError, match=r"no/out: cannot be written .* Create the folder first"),
        atomic_write(tmp_path / "no" / "out"),
    ):
        pass
    with pytest.raises(DataError, match="Choose the name of a file"), atomic_write(tmp_path):
        pass
