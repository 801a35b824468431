"""Places on a real object store and in memory: used like paths, wrong in one sentence."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dcase_trees import labelled_test, make, make_machine, train
from object_store import ObjectStore, object_server

from daco.audio.decode import probe, read_audio
from daco.audio.formats import AudioLimits
from daco.data.manifest import write_manifest
from daco.data.sources import list_audio, read_clips
from daco.data.table import EmbeddingTable
from daco.errors import AudioError, DataError, InputError, MissingExtraError
from daco.files.atomic import atomic_write
from daco.files.remote import parse_location, require_local, statuses


@pytest.fixture(scope="module")
def server():
    with object_server() as found:
        yield found


@pytest.fixture
def store(server):
    return ObjectStore(*server)


@pytest.fixture(params=["s3", "memory"])
def somewhere(request, tmp_path):
    """An empty folder of each kind: built into pyarrow, and by fsspec."""
    if request.param == "s3":
        return parse_location(request.getfixturevalue("store").uri("some/where"))
    pytest.importorskip("fsspec")
    return parse_location(f"memory://{tmp_path.name}/some/where")


class TestText:
    @pytest.mark.parametrize(
        "text", ["clips", "C:\\clips", "C:/clips", "C://clips", "./s3:/plant", "a?b", "s3:plant"]
    )
    def test_what_is_no_uri_is_a_local_path(self, text):
        assert parse_location(text) == Path(text)

    def test_a_file_uri_is_local(self):
        assert parse_location("file:///data/a%20b.wav") == Path("/data/a b.wav")

    def test_a_question_mark_below_a_folder_is_a_part_of_the_name(self, store):
        store.put("clips/what?.wav", b"x")
        (name,), _ = list_audio(parse_location(store.uri("clips")))
        assert name == "what?.wav"
        assert (parse_location(store.uri("clips")) / name).read_bytes() == b"x"

    def test_neither_credentials_nor_options_are_shown(self):
        secret = parse_location("s3://KEY:SECRET@plant/clips?region=eu-west-1")
        assert "SECRET" not in f"{secret} {secret!r} {secret.parts}"
        assert str(secret) == "s3://plant/clips"
        assert secret.name == "clips"
        assert str(parse_location("abfs://plant@account.dfs.core.windows.net/x")).startswith(
            "abfs://plant@"
        )

    @pytest.mark.parametrize("secret", ["SEC/RET", "SEC?RET", "SEC RET", "SEC%RET", "SEC#RET"])
    def test_a_secret_with_a_character_that_ends_it_is_not_shown(self, secret):
        """Every other secret of Amazon's has a slash, which belongs there as %2F."""
        with pytest.raises(InputError) as error:
            parse_location(f"s3://KEY:{secret}@plant/clips").exists()
        assert "SEC" not in str(error.value)
        assert "RET" not in str(error.value)

    def test_no_manifest_shows_the_secret_of_a_row(self, tmp_path):
        for rows in ("a.wav\ns3://KEY:SECRET@plant/b.wav", "s3://a/b.wav\ns3://KEY:SECRET@b/c.wav"):
            (tmp_path / "list.csv").write_text(f"path\n{rows}\n")
            with pytest.raises(DataError, match=r"row 2, column 'path': 's3://") as error:
                read_clips(tmp_path / "list.csv")
            assert "SECRET" not in str(error.value)

    def test_a_bucket_is_named_like_a_folder(self):
        assert parse_location("s3://fan").name == "fan"
        assert parse_location("s3://fan").parent == parse_location("s3://fan")
        with pytest.raises(InputError, match="name a bucket, such as s3://plant/clips"):
            parse_location("s3:///clips")

    def test_it_never_passes_for_a_local_file(self):
        with pytest.raises(TypeError):
            Path(parse_location("s3://plant/a.wav"))
        with pytest.raises(InputError, match=r"A study can only be written to this computer"):
            require_local("s3://plant/run", "A study")


def write(path, content):
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


class TestFiles:
    def test_what_is_written_is_there(self, somewhere):
        file = somewhere / "a b.txt"
        assert not file.exists()
        write(file, b"one")
        assert (file.exists(), file.is_file(), file.is_dir()) == (True, True, False)
        assert (file.read_bytes(), file.stat().st_size) == (b"one", 3)
        with file.open("rb") as opened:
            opened.seek(1)
            assert opened.read() == b"ne"
        assert (somewhere.is_dir(), somewhere.is_file()) == (True, False)
        with pytest.raises(FileNotFoundError):
            (somewhere / "b.txt").read_bytes()

    def test_files_are_listed_with_their_sizes(self, somewhere):
        for name, content in {"a.wav": b"1", "x/b.wav": b"22", "x/y/c.txt": b"333"}.items():
            write(somewhere / name, content)
        sizes = {name: status.st_size for name, status in somewhere.listing().items()}
        assert sizes == {"a.wav": 1, "x/b.wav": 2, "x/y/c.txt": 3}
        assert [each.name for each in somewhere.glob("*.wav")] == ["a.wav"]
        assert list((somewhere / "nowhere").glob("*")) == []
        found = statuses(somewhere, ["x/b.wav", "x", "no.wav"])
        assert (found[0].st_size, *found[1:]) == (2, None, None)

    def test_a_file_appears_whole_or_not_at_all(self, somewhere):
        file = somewhere / "x" / "big.bin"
        content = np.random.default_rng(0).bytes(12_000_000)  # more than one part of an upload
        with atomic_write(file) as temporary:
            temporary.write_bytes(content)
            assert not file.exists()
        assert file.read_bytes() == content
        with contextlib.suppress(KeyboardInterrupt), atomic_write(file) as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt
        assert file.read_bytes() == content
        assert list(somewhere.listing()) == ["x/big.bin"]

    def test_a_recording_beyond_the_limit_is_not_fetched(self, somewhere):
        write(somewhere / "a.wav", b"abc")
        with pytest.raises(AudioError, match="3 bytes, more than the limit of 2"):
            probe(somewhere / "a.wav", AudioLimits(bytes=2))


class TestTables:
    def test_a_table_comes_back_and_has_the_bytes_of_a_local_one(self, somewhere, tmp_path):
        table = EmbeddingTable.from_arrays(np.eye(5), machine="fan", domain=list("aabbb"))
        table.write(tmp_path / "t.parquet")
        table.write(somewhere / "t.parquet")
        assert (somewhere / "t.parquet").read_bytes() == (tmp_path / "t.parquet").read_bytes()
        back = EmbeddingTable.read(somewhere / "t.parquet")
        assert np.array_equal(back.matrix(), np.eye(5))

    @pytest.mark.parametrize("name", ["t.parquet"])
    def test_what_is_no_table_is_told_as_of_a_local_file(self, somewhere, tmp_path, name):
        for where in (tmp_path / name, somewhere / name):
            with pytest.raises(DataError) as missing:
                EmbeddingTable.read(where)
            write(where, b"no table")
            with pytest.raises(DataError) as bad:
                EmbeddingTable.read(where)
            assert str(missing.value).startswith(f"{where}: cannot be read (")
            assert "No such file or directory" in str(missing.value)
            assert str(bad.value).startswith(f"{where}: not a readable ")


class TestClips:
    def same(self, store, tree, name, **options):
        """What is found in the store, which must be what is found here."""
        here = read_clips(tree, **options)
        there = read_clips(store.put_tree(tree, name), **options)
        assert there.clips == here.clips
        assert [each.replace(str(there.root), "") for each in there.oddities] == [
            each.replace(str(here.root), "") for each in here.oddities
        ]
        return there

    def test_a_challenge_data_set_with_attributes(self, store, tmp_path):
        tree = tmp_path / "dcase2023t2" / "dev_data" / "raw"
        for machine in ("fan", "bearing"):
            make_machine(tree, machine, test=labelled_test())
        lines = [f"fan/train/{name},speed,{i}" for i, name in enumerate(train())]
        header = "file_name,d1p,d1v\n"
        (tree / "fan" / "attributes_00.csv").write_text(header + "\n".join(lines))
        found = self.same(store, tmp_path / "dcase2023t2", "dcase2023t2")
        assert set(found.by_machine()) == {(2023, "fan"), (2023, "bearing")}
        assert found.select(machine="fan").clips[-1].attributes == {"speed": "4"}
        one = read_clips(store.uri("dcase2023t2/dev_data/raw/fan/train"))
        assert (one.machines, one.clips[0].year) == (("fan",), 2023)
        assert one.clips[0].attributes == {"speed": "0"}

    def test_plain_folders(self, store, tmp_path):
        tree = make(
            tmp_path / "press",
            *("normal/day/1.wav", "normal/night/2.wav", "anomaly/3.wav", "odd/4.wav"),
            *(".hidden/5.wav", "__MACOSX/6.wav", "notes.txt"),
        )
        assert len(self.same(store, tree, "press")) == 3

    def test_a_whole_bucket_is_a_machine(self, store):
        store.put("day/1.wav", b"x")
        (clip,) = read_clips(store.uri())
        assert (clip.machine, clip.domain) == (store.bucket, "day")

    def test_names_that_would_become_others_are_left_out(self, store):
        store.put("press/a.wav", b"x")
        store.put("press//b.wav", b"x")
        table = read_clips(store.uri("press"))
        assert [clip.path for clip in table] == ["a.wav"]

    @pytest.mark.parametrize("ending", [".csv", ".parquet"])
    def test_a_manifest_beside_its_recordings(self, store, tmp_path, ending):
        tree = make(tmp_path / "press", "day/1.wav", "night/2.wav")
        here = read_clips(tree)
        write_manifest(here, tree / f"list{ending}")
        there = read_clips(store.put_tree(tree, "press").replace("press?", f"press/list{ending}?"))
        assert there.clips == here.clips
        assert there.root == parse_location(store.uri("press"))
        write_manifest(there, parse_location(store.uri(f"lists/again{ending}")))
        again = read_clips(store.uri(f"lists/again{ending}"))
        assert [clip.path for clip in again] == ["../press/day/1.wav", "../press/night/2.wav"]
        assert [path.read_bytes() for path in again.paths()] == [b"x", b"x"]

    def test_a_manifest_here_of_recordings_there(self, store, tmp_path):
        tree = make(tmp_path / "press", "day/1.wav", "night/2.wav")
        there = read_clips(store.put_tree(tree, "press"))
        write_manifest(there, tmp_path / "list.csv")
        table = read_clips(tmp_path / "list.csv")
        assert table.root == parse_location(store.uri())
        assert [clip.path for clip in table] == ["press/day/1.wav", "press/night/2.wav"]
        assert table.machines == ("press",)
        with pytest.raises(InputError, match="cannot name the local recordings"):
            write_manifest(read_clips(tree), parse_location(store.uri("list.csv")))

    def test_a_manifest_names_its_wrong_rows(self, store, tmp_path):
        store.put("a.wav", b"x")
        store.put("list.csv", b"path\na.wav\nb.wav\n")
        with pytest.raises(DataError, match=r"1 file of s3://.* not found .* row 2 'b.wav'"):
            read_clips(store.uri("list.csv"))
        store.put("list.csv", b"path\na.wav\n../../b.wav\n")
        with pytest.raises(DataError, match=r"row 2, column 'path': .* leads out of the bucket"):
            read_clips(store.uri("list.csv"))
        store.put("list.csv", f"path\na.wav\n{store.uri('a.wav', bucket='other')}\n".encode())
        with pytest.raises(DataError, match=r"row 2, column 'path': .* is not in s3://plant"):
            read_clips(store.uri("list.csv"))
        (tmp_path / "list.csv").write_text("path\na.wav\ns3://plant/b.wav\n")
        with pytest.raises(DataError, match=r"row 2, .* Write two manifests"):
            read_clips(tmp_path / "list.csv")

    def test_a_recording_that_is_not_there_or_not_sound(self, store):
        with pytest.raises(AudioError, match=r"s3://.*/a.wav: cannot be opened \(No such file"):
            read_audio(store.uri("a.wav"))
        for name, content in {"a.txt": b"x", "b.wav": b"", "c.wav": b"RIFF"}.items():
            store.put(name, content)
        with pytest.raises(AudioError, match=r"the extension '.txt' is not one of"):
            probe(store.uri("a.txt"))
        with pytest.raises(AudioError, match=r"/folder: cannot be opened \(No such file"):
            probe(store.uri("folder"))
        with pytest.raises(AudioError, match="the file is empty"):
            probe(store.uri("b.wav"))
        with pytest.raises(AudioError, match="not readable as audio"):
            probe(store.uri("c.wav"))


class TestWhatGoesWrong:
    """One sentence with the remedy, and soon."""

    def test_no_such_bucket(self, store):
        with pytest.raises(DataError, match=r"s3://nowhere does not exist\."):
            read_clips(store.uri("clips", bucket="nowhere"))
        with pytest.raises(DataError, match=r"s3://nowhere: there is no such bucket\. Create it"):
            parse_location(store.uri(bucket="nowhere")).listing()

    def test_access_denied(self, store):
        store.put("clips/a.wav", b"x")
        store.require_credentials(True)
        try:
            with pytest.raises(DataError) as error:
                read_clips(store.uri("clips"))
            with (
                pytest.raises(DataError, match="so it cannot be written from here"),
                atomic_write(parse_location(store.uri("x"))) as temporary,
            ):
                temporary.write_bytes(b"x")
        finally:
            store.require_credentials(False)
        said = str(error.value)
        assert said.startswith(f"s3://{store.bucket}/clips: access denied, so it cannot be read")
        assert "credentials that allow it (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in said

    @pytest.mark.parametrize(
        ("uri", "kind", "said"),
        [
            ("nonsense://plant/x", InputError, r"is not a known file system\. pyarrow has s3"),
            ("s3://plant/x?endpont=1", InputError, r"Unexpected query .* Correct the address"),
            ("hf://datasets/plant", MissingExtraError, "plant needs another package: Install"),
            ("hdfs://127.0.0.1:9/x", DataError, r"cannot be (read|reached) \("),
        ],
    )
    def test_the_address_is_of_no_use(self, uri, kind, said):
        with pytest.raises(kind, match=said):
            parse_location(uri).exists()

    def test_the_extra_is_not_installed(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "fsspec", None)
        with pytest.raises(
            MissingExtraError, match=r'http:// needs the extra .*"daco-asd\[remote\]"'
        ):
            parse_location("http://plant/x")
        assert str(parse_location("s3://plant/x")) == "s3://plant/x"


def test_a_local_path_imports_nothing_of_the_extra():
    code = (
        "import sys, daco; from daco.files.remote import parse_location; parse_location('x');"
        "sys.exit(any(name in sys.modules for name in ('pyarrow', 'fsspec')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


_WITH_THREADS = """
import os, sys, threading, time
from pathlib import Path

folder = Path(sys.argv[1])
os.umask(0o077)
set_at_once = os.umask


def set_slowly(mask):  # so that whatever is created in between is noticed
    before = set_at_once(mask)
    time.sleep(0.01)
    return before


os.umask = set_slowly


def write(number):
    while not done.is_set():
        with atomic_write(folder / f"{number}") as temporary:
            temporary.write_bytes(b"result")


done, modes = threading.Event(), set()
threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
for _ in range(100):
    with open(folder / "private", "w") as file:
        modes.add(os.fstat(file.fileno()).st_mode & 0o777)
    os.unlink(folder / "private")
    time.sleep(0.001)
done.set()
for thread in threads:
    thread.join()
modes |= {path.stat().st_mode & 0o777 for path in folder.iterdir()}
print(sorted(map(oct, modes)))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no permissions of this kind")
def test_files_of_other_threads_keep_their_permissions(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _WITH_THREADS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "['0o600']"
