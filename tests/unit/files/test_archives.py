"""Archives that want to write where they should not."""

from __future__ import annotations

import io
import shutil
import stat
import struct
import zipfile
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daco.errors import DataError
from daco.files import archives
from daco.files.archives import safe_path, unpack


def zip_bytes(members, compression=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def make(tmp_path):
    def write(*members, **options):
        path = tmp_path / "in" / "a.zip"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zip_bytes(members, **options))
        return path

    return write


def tree(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_members_are_unpacked_as_the_archive_has_them(make, tmp_path):
    archive = make(
        ("ToyCar/", ""),
        ("ToyCar/attributes_00.csv", b"file_name"),
        ("./ToyCar/train/section_00_source_train_normal_0000_ac_0.03.wav", b"RIFF" * 1000),
        ("__MACOSX/ToyCar/._attributes_00.csv", b"litter"),
        ("ToyCar/.DS_Store", b"litter"),
    )
    seen = []
    files = unpack(archive, tmp_path / "out", progress=lambda have, all_: seen.append((have, all_)))
    assert tree(tmp_path / "out") == {
        "ToyCar/attributes_00.csv": b"file_name",
        "ToyCar/train/section_00_source_train_normal_0000_ac_0.03.wav": b"RIFF" * 1000,
    }
    assert len(files) == 2
    assert files[PurePosixPath("ToyCar/attributes_00.csv")] == 9
    assert seen[-1] == (4009, 4009)
    assert archive.exists()


BAD_NAMES = [
    *("../evil", "a/../../evil", "a/..", "..", "/etc/passwd", "//host/share", ".", "x" * 256),
    *("C:/evil", "C:evil", "a/C:/evil", "..\\evil", "a\\b", "\\\\host\\share", "a:stream"),
    *("a\nb", "a\x7f", "CON", "a/nul.wav", "trailing.", "trailing /b"),
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_leads_elsewhere_is_refused_and_nothing_is_written(make, tmp_path, name):
    archive = make(("ToyCar/good.wav", b"good"), (name, b"evil"))
    with pytest.raises(DataError, match="not unpacked: the member"):
        unpack(archive, tmp_path / "out")
    assert tree(tmp_path / "out") == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_a_name_with_a_nul_is_not_cut_and_taken(make, tmp_path):
    archive = make(("good.wav", b"x"))
    archive.write_bytes(archive.read_bytes().replace(b"good.wav", b"good\0wav"))
    with pytest.raises(DataError, match="no printable name"):
        unpack(archive, tmp_path / "out")


_pieces = st.sampled_from(
    ["..", ".", "", "a", "C:", "\\", "~", "$HOME", "%2e%2e", "con", " ", "é", "․․", "...", "\0"]
) | st.text(max_size=6)
_names = st.lists(_pieces, min_size=1, max_size=6).map("/".join) | st.text(max_size=20)


@given(_names)
@example("a/./../..")
@example("....//....//etc")
@example("․․/․․/etc")
def test_a_name_is_refused_or_stays_inside_on_every_system(name):
    try:
        path = safe_path(name)
    except DataError:
        return
    assert path.parts
    assert not path.is_absolute()
    assert ".." not in path.parts
    windows = PureWindowsPath(str(path))
    assert windows.parts == path.parts
    assert not windows.drive
    assert not windows.root
    root = PurePosixPath("/data/out")
    assert (root / path).is_relative_to(root)


@given(st.lists(_names, min_size=1, max_size=5))
def test_unpacking_any_names_writes_only_below_the_target(tmp_path_factory, names):
    folder = tmp_path_factory.mktemp("zip")
    archive, target = folder / "a.zip", folder / "deep" / "out"
    infos = []
    for name in names:
        info = zipfile.ZipInfo("x")
        info.filename = name.replace("\0", "")  # zipfile writes whatever stands here
        infos.append(info)
    try:
        archive.write_bytes(zip_bytes([(info, b"data") for info in infos]))
    except (UserWarning, ValueError, struct.error, UnicodeEncodeError):
        return  # zipfile itself does not write these names
    try:
        files = unpack(archive, target)
    except DataError:
        assert tree(target) == {}
    else:
        assert set(tree(target)) == {str(path) for path in files}
    outside = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert all(path in ("a.zip", "deep") or path.startswith("deep/out") for path in outside)
    shutil.rmtree(folder)


def refused(archive, target, message):
    with pytest.raises(DataError, match=message):
        unpack(archive, target)
    assert tree(target) == {}


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_are_refused(make, tmp_path, kind):
    info = zipfile.ZipInfo("ToyCar")
    info.create_system = 3
    info.external_attr = (kind | 0o777) << 16
    archive = make((info, "/etc"), ("ToyCar/passwd", b"evil"))
    refused(archive, tmp_path / "out", "a link or a device")


def test_an_encrypted_member_is_refused(make, tmp_path):
    archive = make(("a.wav", b"secret"))
    content = bytearray(archive.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + offset] |= 1
    archive.write_bytes(content)
    refused(archive, tmp_path / "out", r"'a.wav' is encrypted")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        *((["a.wav", "A.WAV"], "occurs twice"), (["a/b", "./a//b"], "occurs twice")),
        (["caf\u00e9", "cafe\u0301"], "occurs twice"),
        *((["a", "a/b"], "both a file and a folder"), (["a/b", "A"], "both a file and a folder")),
    ],
)
def test_two_members_for_one_file_are_refused(make, tmp_path, names, message):
    refused(make(*((name, b"x") for name in names)), tmp_path / "out", message)


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("MAX_BYTES", 1_500_000, "would unpack to 2000000 bytes, more than 1500000"),
        ("RATIO_FROM", 1_000_000, "like a zip bomb"),
        ("MAX_MEMBERS", 1, "2 members, more than 1"),
    ],
)
def test_a_bomb_is_refused_by_what_it_declares(make, tmp_path, monkeypatch, limit, value, message):
    archive = make(("a.wav", b"\0" * 1_000_000), ("b.wav", b"\0" * 1_000_000))
    monkeypatch.setattr(archives, limit, value)
    refused(archive, tmp_path / "out", message)


@pytest.mark.parametrize("declared", [10, 2_000_000])
def test_a_bomb_that_declares_another_size_is_found_out(make, tmp_path, declared):
    archive = make(("a.wav", b"\0" * 1_000_000))
    content = bytearray(archive.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<L", content, content.index(signature) + offset, declared)
    archive.write_bytes(content)
    refused(archive, tmp_path / "out", "not unpacked")


def test_a_damaged_archive_is_refused(make, tmp_path):
    archive = make(("a.wav", bytes(range(256)) * 50), compression=zipfile.ZIP_STORED)
    whole = archive.read_bytes()
    for broken in (whole[:-30], b"", b"not a zip", whole.replace(b"\x10\x11", b"\x11\x10", 1)):
        archive.write_bytes(broken)
        refused(archive, tmp_path / "out", "damaged")


def test_an_archive_that_does_not_fit_on_the_disk_is_not_begun(make, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 100})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    refused(make(("a.wav", b"x" * 101)), tmp_path / "out", "free")


def test_other_content_is_only_replaced_when_allowed(make, tmp_path):
    (tmp_path / "out" / "fan").mkdir(parents=True)
    (tmp_path / "out" / "fan" / "b.wav").write_bytes(b"mine")
    archive = make(("fan/a.wav", b"a"), ("fan/b.wav", b"b"))
    with pytest.raises(DataError, match=r"b\.wav has other content"):
        unpack(archive, tmp_path / "out")
    assert tree(tmp_path / "out") == {"fan/b.wav": b"mine"}
    unpack(archive, tmp_path / "out", overwrite=True)
    assert tree(tmp_path / "out") == {"fan/a.wav": b"a", "fan/b.wav": b"b"}


@pytest.mark.parametrize(("there", "member"), [("fan", "fan/a.wav"), ("fan/a.wav/x", "fan/a.wav")])
def test_a_folder_in_the_way_of_a_file_or_the_other_way_round_is_named(
    make, tmp_path, there, member
):
    path = tmp_path / "out" / there
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine")
    with pytest.raises(DataError, match=r"is a folder|in the way"):
        unpack(make((member, b"a")), tmp_path / "out", overwrite=True)
    assert tree(tmp_path / "out") == {there: b"mine"}


def test_what_a_kill_left_behind_is_cleared_away(make, tmp_path):
    left = tmp_path / "out" / ".a.zip.unpacking" / "fan"
    left.mkdir(parents=True)
    (left / "half.wav").write_bytes(b"ha")
    unpack(make(("fan/a.wav", b"a")), tmp_path / "out")
    assert tree(tmp_path / "out") == {"fan/a.wav": b"a"}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["fan"]


def test_a_kill_in_the_middle_leaves_nothing_visible(make, tmp_path):
    def kill(have, total):
        if have > 1:
            raise KeyboardInterrupt

    archive = make(("fan/a.wav", b"a"), ("fan/b.wav", b"b"))
    with pytest.raises(KeyboardInterrupt):
        unpack(archive, tmp_path / "out", progress=kill)
    assert list((tmp_path / "out").iterdir()) == []
    assert Path(archive).exists()
