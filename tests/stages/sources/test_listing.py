"""Expanding paths: folders, globs, archives, strays, names, and what is said when nothing is there."""

import io
import tarfile
import zipfile
from pathlib import Path

import fsspec
import pytest

from stages.errors import UserError
from stages.sources.listing import list_files

ROW = b'{"text": "a"}\n'


def put(root: Path, *names: str, data: bytes = ROW) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.fixture
def names(tmp_path, parse):
    def run(**read):
        listing = list_files(parse({"format": "jsonl"} | read), tmp_path, tmp_path / "cache", "demo")
        return [file.name for file in listing.files], listing

    return run


def test_a_folder_skips_strays_and_counts_them(tmp_path, names):
    put(tmp_path, "d/b.jsonl", "d/a.jsonl.gz", "d/sub/c.ndjson.zst")
    strays = "d/_SUCCESS", "d/.hidden.jsonl", "d/x.jsonl.crc", "d/notes.txt", "d/_temporary/t.jsonl", "d/.git/y.jsonl"
    put(tmp_path, *strays)
    found, listing = names(path="d")
    assert found == ["a.jsonl.gz", "b.jsonl", "sub/c.ndjson.zst"]
    assert listing.strays == tuple(sorted(name[2:] for name in strays))


def test_globs_lists_and_exclude(tmp_path, names):
    put(tmp_path, "a/x.jsonl", "a/deep/y.txt", "b/x.jsonl", "b/_SUCCESS", "b/skip/z.jsonl")
    assert names(path="a/**/*.txt")[0] == ["deep/y.txt"]
    assert names(path=["b/*.jsonl", "a/*.jsonl"])[0] == ["a/x.jsonl", "b/x.jsonl"]
    found, listing = names(path="**", exclude=["skip", "a/**"])
    assert (found, listing.strays) == (["b/x.jsonl"], ("b/_SUCCESS",))
    assert listing.excluded == ("a/deep/y.txt", "a/x.jsonl", "b/skip/z.jsonl")
    assert names(path=["a/x.jsonl", "a"])[0] == ["x.jsonl"]


def test_one_file_is_taken_whatever_its_name(tmp_path, names):
    put(tmp_path, "d/.data", "d/odd[1].bin")
    assert names(path="d/.data")[0] == [".data"]
    assert names(path="d/odd[1].bin")[0] == ["odd[1].bin"]
    assert names(path=str(tmp_path / "d" / ".data"))[0] == [".data"]


def test_symbolic_links_to_files_are_followed(tmp_path, names):
    put(tmp_path, "blobs/1")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x.jsonl").symlink_to(tmp_path / "blobs" / "1")
    found, listing = names(path="d")
    assert (found, listing.files[0].bytes) == (["x.jsonl"], len(ROW))
    assert names(path="d/*.jsonl")[0] == ["x.jsonl"]
    for target in ("nowhere", tmp_path / "blobs"):
        link = tmp_path / "d" / "y.jsonl"
        link.symlink_to(target)
        with pytest.raises(UserError, match=r"demo: .*y\.jsonl is neither a file nor a link to one"):
            names(path="d")
        assert names(path="d", exclude="y.jsonl")[0] == ["x.jsonl"]
        link.unlink()


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("dtaa/x.jsonl", "data"),
        ("data/trian.jsonl", "train.jsonl"),
        ("data/*.parquet", "train.jsonl"),
        ("nope/**", "data"),
    ],
)
def test_nothing_there_names_source_path_and_neighbours(tmp_path, names, path, nearest):
    put(tmp_path, "data/train.jsonl")
    with pytest.raises(UserError) as error:
        names(path=path)
    assert all(word in str(error.value) for word in ("demo", path, nearest))


def test_a_folder_without_files_of_the_format(tmp_path, names):
    put(tmp_path, "d/notes.txt", "d/_SUCCESS")
    with pytest.raises(UserError, match=r"demo: d has no jsonl file \(2 passed over"):
        names(path="d")
    (tmp_path / "e").mkdir()
    with pytest.raises(UserError, match="demo"):
        names(path="e")


def archives(root: Path) -> None:
    members = {
        "pkg-1/docs/b.txt": b"bee",
        "pkg-1/docs/sub/a.txt": b"a\xc3\xa9",
        "pkg-1/docs/x.py": b"pass",
        "pkg-1/r.txt": b"r",
    }
    with zipfile.ZipFile(root / "x.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    for name, mode in (("x.tar.gz", "w:gz"), ("x.tar", "w"), ("x.tar.xz", "w:xz")):
        with tarfile.open(root / name, mode) as tar:
            for member, data in members.items():
                info = tarfile.TarInfo(f"./{member}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            link = tarfile.TarInfo("pkg-1/docs/link.txt")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(link)


@pytest.mark.parametrize("chain", ["zip://{}::x.whl", "tar://{}::x.tar", "tar://{}::x.tar.gz", "tar://{}::x.tar.xz"])
def test_members_are_read_in_place(tmp_path, read_all, chain):
    archives(tmp_path)
    out = read_all({"format": "files", "path": chain.format("pkg-1/docs/**/*.txt")}, target_bytes=1)
    assert out.good == [(0, 0, "b.txt", "bee"), (1, 0, "sub/a.txt", "aé")]
    assert read_all({"format": "files", "path": chain.format("pkg-1/docs")}).texts == ["bee", "aé", "pass"]
    assert read_all({"format": "files", "path": chain.format("pkg-1/r.txt")}).good == [(0, 0, "r.txt", "r")]
    with pytest.raises(UserError, match=r"demo.*no member pkg-1/dosc"):
        read_all({"format": "files", "path": chain.format("pkg-1/dosc/*")})


def test_several_archives_and_missing_or_broken_ones(tmp_path, read_all, names):
    archives(tmp_path)
    chains = ["zip://pkg-1/*.txt::x.whl", "tar://pkg-1/*.txt::x.tar"]
    assert [f.name for f in read_all({"format": "files", "path": chains}).listing.files] == [
        "x.tar/r.txt",
        "x.whl/r.txt",
    ]
    with pytest.raises(UserError, match=r"demo: no archive at .*y\.whl.*x\.whl"):
        names(path="zip://*::y.whl")
    for name in ("x.whl", "x.tar.gz"):
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        with pytest.raises(UserError, match=f"{name}: the archive cannot be read"):
            names(path=f"{'zip' if name == 'x.whl' else 'tar'}://**::{name}")


def test_damaged_member_is_one_bad_row(tmp_path, read_all):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a.txt", "first document")
        archive.writestr("b.txt", "second document")
    data = (tmp_path / "x.zip").read_bytes().replace(b"first document", b"First document")
    (tmp_path / "x.zip").write_bytes(data)
    out = read_all({"format": "files", "path": "zip://*::x.zip"})
    assert (out.texts, out.bad) == (["second document"], [(0, 0, "corrupt_file")])
    out = read_all({"format": "jsonl", "path": "zip://a.txt::x.zip"})
    assert out.bad == [(0, 0, "corrupt_file")]


def test_any_filesystem_of_fsspec(tmp_path, read_all):
    memory = fsspec.filesystem("memory")
    memory.pipe({"/bkt/d/a.jsonl": ROW, "/bkt/d/_SUCCESS": b"", "/bkt/d/sub/b.jsonl": ROW * 2})
    out = read_all({"format": "jsonl", "path": "memory://bkt/d"})
    assert [file.name for file in out.listing.files] == ["a.jsonl", "sub/b.jsonl"]
    assert [(file, row) for file, row, _, _ in out.good] == [(0, 0), (1, 0), (1, 1)]
    with pytest.raises(UserError, match="protocol"):
        read_all({"format": "jsonl", "path": "nosuch://bkt/d"})


def test_two_files_of_one_name_are_refused(tmp_path, names):
    put(tmp_path, "a/x.jsonl")
    fsspec.filesystem("memory").pipe({"/other/x.jsonl": ROW})
    with pytest.raises(UserError, match=r"both be called x\.jsonl"):
        names(path=["a", "memory://other"])
