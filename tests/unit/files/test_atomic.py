"""Files appear complete or not at all, and errors name the file that caused them."""

from __future__ import annotations

import os
import shutil
import sys

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


@pytest.mark.parametrize(("name", "reason"), [("no/out", "No such"), (".", "directory")])
def test_a_place_that_cannot_be_written_is_named(tmp_path, name, reason):
    match = rf"{tmp_path}.*written \(.*{reason}.*folder exists"
    with pytest.raises(DataError, match=match), atomic_write(tmp_path / name):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no permissions of this kind")
def test_a_file_gets_the_permissions_of_new_files(tmp_path, monkeypatch):
    before = os.umask(0o027)
    try:
        (tmp_path / "plain").touch()
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", None)  # setting it would change files of other threads
            with atomic_write(tmp_path / "out") as temporary:
                temporary.write_text("x")
    finally:
        os.umask(before)
    modes = {(tmp_path / name).stat().st_mode for name in ("plain", "out")}
    assert len(modes) == 1
