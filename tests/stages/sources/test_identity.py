"""Source digests: bytes, names and settings count; places and times do not."""

import os
import shutil
import zipfile
from base64 import b64encode

import fsspec
import pytest

from stages.errors import UserError
from stages.sources import identity as identity_module
from stages.sources.identity import identity
from stages.sources.listing import list_files


@pytest.fixture
def digest(tmp_path, parse):
    def run(base=tmp_path, rehash=False, **read):
        listing = list_files(parse({"format": "jsonl", "path": "d"} | read), base, tmp_path / "cache")
        return identity(listing, tmp_path / "cache" / "digests.json", rehash)

    return run


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "d").mkdir()
    for name in ("a", "b"):
        path = tmp_path / "d" / f"{name}.jsonl"
        path.write_text(f'{{"text": "{name}"}}\n')
        os.utime(path, (1e9, 1e9))
    return tmp_path / "d"


def test_place_time_and_strays_do_not_count(folder, tmp_path, digest):
    first = digest()
    shutil.copytree(folder, tmp_path / "elsewhere" / "d")
    (tmp_path / "elsewhere" / "d" / "_SUCCESS").touch()
    os.utime(tmp_path / "elsewhere" / "d" / "a.jsonl")
    assert digest(tmp_path / "elsewhere").digest == first.digest
    assert digest(path=["d/b.jsonl", "d/a.jsonl"]).digest == first.digest
    assert digest(path=str(folder) + "/*.jsonl").digest == first.digest
    assert len(first.digest) == 64
    assert [record.name for record in first.files] == ["a.jsonl", "b.jsonl"]


def test_bytes_names_and_settings_count(folder, digest):
    seen = [digest().digest, digest(text="body").digest, digest(id=None).digest, digest(format="files").digest]
    (folder / "b.jsonl").rename(folder / "c.jsonl")
    seen.append(digest().digest)
    (folder / "c.jsonl").write_text('{"text": "d"}\n')
    seen.append(digest().digest)
    (folder / "c.jsonl").unlink()
    seen.append(digest().digest)
    assert len(set(seen)) == len(seen)


def test_unchanged_files_are_read_once(folder, digest, monkeypatch):
    read = []
    original = identity_module.hashlib.file_digest
    monkeypatch.setattr(
        identity_module.hashlib, "file_digest", lambda f, name: read.append(f.name) or original(f, name)
    )
    first = digest()
    assert len(read) == 2
    assert digest() == first
    assert len(read) == 2
    os.utime(folder / "a.jsonl", (1e9 + 1, 1e9 + 1))
    assert digest() == first
    assert len(read) == 3
    assert digest(rehash=True) == first
    assert len(read) == 5


def test_a_file_that_was_just_written_is_not_remembered(folder, digest):
    path = folder / "a.jsonl"
    path.write_text('{"text": "x"}\n')
    before = path.stat()
    first = digest()
    path.write_text('{"text": "y"}\n')
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest().digest != first.digest


def test_a_broken_memory_costs_only_time(folder, tmp_path, digest):
    first = digest()
    (tmp_path / "cache" / "digests.json").write_text("{")
    assert digest() == first


def test_a_file_that_changes_after_listing(folder, tmp_path, parse):
    listing = list_files(parse({"format": "jsonl", "path": "d"}), tmp_path, tmp_path, "demo")
    (folder / "a.jsonl").write_text("longer than before\n" * 3)
    with pytest.raises(UserError, match=r"demo: .*a\.jsonl had 14 bytes when listed and has 57 now"):
        identity(listing, tmp_path / "digests.json")
    (folder / "a.jsonl").unlink()
    with pytest.raises(UserError, match="gone"):
        identity(listing, tmp_path / "digests.json")


def test_members_count_by_their_archive(tmp_path, digest):
    def pack(text):
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
            archive.writestr(zipfile.ZipInfo("a.txt"), text)
        return digest(format="files", path="zip://*::x.zip").digest

    assert pack("one") == pack("one") != pack("two")


def test_remote_files_count_by_the_stores_checksum(digest, monkeypatch):
    memory = fsspec.filesystem("memory")
    memory.pipe("/remote/a.jsonl", b'{"text": "a"}\n')
    original = type(memory).info

    def records(**extra):
        monkeypatch.setattr(type(memory), "info", lambda self, path, **k: original(self, path, **k) | extra)
        return digest(path="memory://remote/a.jsonl")

    plain = records()
    assert plain.files[0].digest.startswith("sha256:")
    md5 = b64encode(b"m" * 16).decode()
    first = records(md5Hash=md5, generation=1, crc32c=b64encode(b"abcd").decode())
    assert first.files[0][2:] == ("md5:" + "6d" * 16, "1")
    assert records(md5Hash=md5, generation=2).digest == first.digest
    assert records(crc32c=b64encode(b"abcd").decode(), generation=2).files[0].digest == "crc32c:61626364+generation:2"
    assert records(ETag='"xyz"').files[0].digest == "etag:xyz"


def test_hub_dataset_counts_by_its_revision(tmp_path, parse, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.Dataset.from_dict({"text": ["a"]}))

    def digest(revision):
        read = parse({"format": "hf", "id": "org/name", "revision": revision})
        return identity(list_files(read, tmp_path, tmp_path), tmp_path / "digests.json").digest

    assert digest("a" * 40) == digest("a" * 40) != digest("b" * 40)
