"""Locations on a real object store and in memory: used like paths, wrong in one sentence."""

from __future__ import annotations

import contextlib
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from dcase_trees import labelled_test, make, make_machine
from object_store import ObjectStore, environment, object_server, unreachable

from daco.audio.decode import probe, read_audio
from daco.audio.formats import AudioLimits
from daco.data.manifest import write_manifest
from daco.data.sources import list_audio, read_clips
from daco.data.table import EmbeddingTable
from daco.errors import AudioError, DataError, InputError, MissingExtraError
from daco.files.atomic import atomic_write
from daco.files.remote import (
    is_file,
    is_folder,
    list_files,
    parse_location,
    statuses,
)


@pytest.fixture(scope="module")
def server():
    with object_server() as found:
        yield found


@pytest.fixture
def store(server):
    return ObjectStore(*server)


@pytest.fixture(params=["s3", "memory"])
def somewhere(request, tmp_path):
    """An empty folder of a store with buckets, and of one without."""
    if request.param == "s3":
        return parse_location(request.getfixturevalue("store").uri("some/where"))
    pytest.importorskip("upath")
    return parse_location(f"memory://{tmp_path.name}/some/where")


class TestText:
    @pytest.mark.parametrize(
        "text", ["clips", "C:\\clips", "C:/clips", "C://clips", "./s3:/plant", "a?b", "s3:plant"]
    )
    def test_what_is_no_url_is_a_local_path(self, text):
        assert parse_location(text) == Path(text)
        assert parse_location("file:///data/a%20b.wav") == Path("/data/a b.wav")

    @pytest.mark.parametrize("name", ["what?.wav", "a#b.wav", "a b%20.wav", "x:y.wav", "ü.wav"])
    def test_strange_names_are_names(self, store, name):
        store.put(f"clips/{name}", b"x")
        assert list_audio(parse_location(store.uri("clips")))[0] == {name: 1}
        assert (parse_location(store.uri("clips")) / name).read_bytes() == b"x"
        assert parse_location(store.uri(f"clips/{name}")).read_bytes() == b"x"

    @pytest.mark.parametrize("secret", ["SECRET", "SEC/RET", "SEC?RET", "SEC RET", "SEC%RET"])
    def test_a_password_in_a_url_is_refused_and_not_shown(self, secret, tmp_path):
        url = f"s3://KEY:{secret}@plant/b.wav"
        with pytest.raises(InputError, match="environment") as error:
            parse_location(url)
        (tmp_path / "list.csv").write_text(f"path\na.wav\n{url}\n")
        with pytest.raises(DataError, match="row 2, column 'path'") as row:
            read_clips(tmp_path / "list.csv")
        for shown in (str(error.value), str(row.value)):
            assert "SEC" not in shown
            assert "RET" not in shown

    def test_dots_and_empty_parts_of_a_url_are_resolved(self):
        pytest.importorskip("upath")
        there = parse_location("s3://plant/clips//x/../fan/")
        assert str(there) == "s3://plant/clips/fan"
        assert pickle.loads(pickle.dumps(there)) == there

    def test_a_missing_package_is_named(self, monkeypatch):
        pytest.importorskip("upath")
        with pytest.raises(MissingExtraError, match="gdrive"):
            parse_location("gdrive://plant/x")
        monkeypatch.setitem(sys.modules, "upath", None)
        with pytest.raises(MissingExtraError, match=r"daco-asd\[remote\]"):
            parse_location("s3://plant/x")


def write(path, content):
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


class TestFiles:
    def test_files_are_listed_with_their_sizes_as_they_are_now(self, somewhere):
        for name, content in {"a.wav": b"1", "x/b.wav": b"22", "x/y/c.txt": b"333"}.items():
            assert not is_file(somewhere / name)
            write(somewhere / name, content)
            assert (is_file(somewhere / name), is_folder(somewhere / name)) == (True, False)
        assert (is_file(somewhere), is_folder(somewhere)) == (False, True)
        sizes = {name: status.st_size for name, status in list_files(somewhere).items()}
        assert sizes == {"a.wav": 1, "x/b.wav": 2, "x/y/c.txt": 3}
        assert min(status.st_mtime_ns for status in list_files(somewhere).values()) > 1e18
        found = statuses(somewhere, ["x/b.wav", "x", "no.wav"])
        assert (found[0].st_size, *found[1:]) == (2, None, None)
        write(somewhere / "x/b.wav", b"4444")
        assert statuses(somewhere, ["x/b.wav"])[0].st_size == 4
        assert statuses(somewhere, ["no/a.wav"]) == [None]

    def test_a_file_appears_whole_or_not_at_all(self, somewhere):
        file = somewhere / "x" / "big.bin"
        content = np.random.default_rng(0).bytes(12_000_000)
        with atomic_write(file) as temporary:
            temporary.write_bytes(content)
            assert not is_file(file)
        assert file.read_bytes() == content
        with contextlib.suppress(KeyboardInterrupt), atomic_write(file) as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt
        assert file.read_bytes() == content
        assert list(list_files(somewhere)) == ["x/big.bin"]

    def test_a_recording_beyond_the_limit_is_not_fetched(self, somewhere):
        write(somewhere / "a.wav", b"abc")
        with pytest.raises(AudioError, match="limit of 2"):
            probe(somewhere / "a.wav", AudioLimits(bytes=2))

    def test_a_table_has_the_bytes_of_a_local_one(self, somewhere, tmp_path):
        file = somewhere / "t.parquet"
        for problem in ("No such file", "not a readable"):
            with pytest.raises(DataError, match=problem) as error:
                EmbeddingTable.read(file)
            assert str(file) in str(error.value)
            write(file, b"no table")
        table = EmbeddingTable.from_arrays(np.eye(5), machine="fan", domain=list("aabbb"))
        for path in (tmp_path / "t.parquet", file):
            table.write(path)
        assert file.read_bytes() == (tmp_path / "t.parquet").read_bytes()
        assert np.array_equal(EmbeddingTable.read(file).matrix(), np.eye(5))


class TestClips:
    def same(self, store, tree, name):
        """What is found in the store, which must be what is found here."""
        here, there = read_clips(tree), read_clips(store.put_tree(tree, name))
        assert there.clips == here.clips
        assert [each.replace(str(there.root), "") for each in there.oddities] == [
            each.replace(str(here.root), "") for each in here.oddities
        ]
        return there

    def test_a_challenge_data_set(self, store, tmp_path):
        tree = tmp_path / "dcase2023t2" / "dev_data" / "raw"
        for machine in ("fan", "bearing"):
            make_machine(tree, machine, tail="_speed_0", test=labelled_test())
        found = self.same(store, tmp_path / "dcase2023t2", "dcase2023t2")
        assert set(found.by_machine()) == {(2023, "fan"), (2023, "bearing")}
        one = read_clips(store.uri("dcase2023t2/dev_data/raw/fan/train"))
        assert (one.machines, one.clips[0].attributes) == (("fan",), {"speed": "0"})

    def test_plain_folders(self, store, tmp_path):
        tree = make(
            tmp_path / "press",
            *("normal/day/1.wav", "normal/night/2.wav", "anomaly/3.wav", "odd/4.wav"),
            *(".hidden/5.wav", "__MACOSX/6.wav", "notes.txt"),
        )
        assert len(self.same(store, tree, "press")) == 3

    def test_a_whole_bucket_is_a_machine(self, store):
        store.put("day/1.wav", b"x")
        store.put("day/", b"")  # how consoles mark a folder
        store.put("day//2.wav", b"x")  # a path would lose the empty part
        (clip,) = read_clips(store.uri())
        assert (clip.machine, clip.domain) == (store.bucket, "day")

    @pytest.mark.parametrize("ending", [".csv", ".parquet"])
    def test_a_manifest_beside_its_recordings_and_elsewhere(self, store, tmp_path, ending):
        tree = make(tmp_path / "press", "day/1.wav", "night/2.wav")
        here = read_clips(tree)
        write_manifest(here, tree / f"list{ending}")
        store.put_tree(tree, "press")
        there = read_clips(store.uri(f"press/list{ending}"))
        assert there.clips == here.clips
        assert there.root == parse_location(store.uri("press"))
        for place in (store.uri(f"lists/again{ending}"), tmp_path / f"local{ending}"):
            write_manifest(there, place)
            again = read_clips(place)
            assert [clip.path for clip in again] == ["press/day/1.wav", "press/night/2.wav"]
            assert [path.read_bytes() for path in again.paths()] == [b"x", b"x"]
            assert again.machines == ("press",)
        with pytest.raises(InputError, match="local recordings"):
            write_manifest(read_clips(tree), store.uri("list.csv"))

    @pytest.mark.parametrize("row", ["b.wav", "../../b.wav", "s3://other/a.wav"])
    def test_a_manifest_names_its_wrong_rows(self, store, row):
        store.put("a.wav", b"x")
        store.put("list.csv", f"path\na.wav\n{row}\n".encode())
        with pytest.raises(DataError, match=r"row 2|s3://other"):
            read_clips(store.uri("list.csv"))

    def test_a_recording_that_is_not_there_or_not_sound(self, store):
        with pytest.raises(AudioError, match=r"s3://.*/a.wav: .*No such file"):
            read_audio(store.uri("a.wav"))
        for name, content in {"a.txt": b"x", "b.wav": b"", "c.wav": b"RIFF"}.items():
            store.put(name, content)
            with pytest.raises(AudioError, match=name):
                probe(store.uri(name))


class TestStores:
    """One sentence with the remedy, and soon."""

    def test_access_denied(self, store):
        store.put("clips/a.wav", b"x")
        store.require_credentials(True)
        try:
            with pytest.raises(DataError, match="AWS_ACCESS_KEY_ID") as error:
                read_clips(store.uri("clips"))
            with pytest.raises(DataError, match="cannot be written"):
                write(parse_location(store.uri("x")), b"x")
            with pytest.raises(DataError, match="cannot be read"):
                probe(store.uri("clips/a.wav"))
        finally:
            store.require_credentials(False)
        assert str(error.value).startswith(f"s3://{store.bucket}/clips: cannot be ")

    def test_no_bucket_and_no_server(self, store):
        with pytest.raises(DataError, match="s3://nowhere/clips does not exist"):
            read_clips(store.uri("clips", bucket="nowhere"))
        with environment(**unreachable()), pytest.raises(DataError, match="AWS_ENDPOINT_URL"):
            read_clips("s3://plant/clips")
