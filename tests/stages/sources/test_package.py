"""Package archives from an index that the test writes; nothing of the package may run."""

import hashlib
import io
import tarfile

import pytest
from pydantic import ValidationError

from stages.errors import UserError
from stages.sources import package as package_module
from stages.sources.package import fetch, pip_settings
from stages.sources.spec import PackageArchive

FILE = "Demo_Pkg-1.0.tar.gz"


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A file: index with one sdist whose setup.py would leave a trace; returns the sdist's sha256."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        members = {"setup.py": f"open({str(tmp_path / 'ran')!r}, 'w')", "docs/a.txt": "alpha", "docs/b.txt": "beta"}
        for name, text in members.items():
            info = tarfile.TarInfo(f"Demo_Pkg-1.0/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    page = tmp_path / "simple" / "demo-pkg"
    page.mkdir(parents=True)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / FILE).write_bytes(buffer.getvalue())
    (page / "index.html").write_text(f'<a href="../../files/{FILE}#sha256=0">{FILE}</a> <a href="x-1.zip">x</a>')
    monkeypatch.setattr(package_module, "pip_settings", lambda: {"index-url": (tmp_path / "simple").as_uri()})
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def archive(digest, **more):
    return PackageArchive(**({"name": "Demo.Pkg", "version": "1.0", "file": FILE, "sha256": digest} | more))


def test_read_from_a_package_without_running_it(tmp_path, index, read_all, monkeypatch):
    package = archive(index).model_dump()
    read = {"format": "files", "package": package, "path": "Demo_Pkg-1.0/docs/*.txt"}
    assert read_all(read).good == [(0, 0, "a.txt", "alpha"), (1, 0, "b.txt", "beta")]
    assert not (tmp_path / "ran").exists()
    (tmp_path / "files" / FILE).unlink()
    assert read_all(read).texts == ["alpha", "beta"]


def test_a_wrong_digest_shows_both(tmp_path, index):
    with pytest.raises(UserError) as error:
        fetch(archive("0" * 64), tmp_path / "cache")
    assert "0" * 64 in str(error.value) and index in str(error.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_damaged_cache_is_fetched_again(tmp_path, index):
    path = fetch(archive(index), tmp_path / "cache")
    path.write_bytes(b"damaged")
    assert hashlib.sha256(fetch(archive(index), tmp_path / "cache").read_bytes()).hexdigest() == index


def test_what_no_index_has(tmp_path, index):
    with pytest.raises(UserError, match=r"Demo\.Pkg 2\.0: Demo_Pkg-2\.0\.tar\.gz could not be fetched"):
        fetch(archive(index, version="2.0", file="Demo_Pkg-2.0.tar.gz"), tmp_path / "cache")
    with pytest.raises(UserError, match="other"):
        fetch(archive(index, name="other"), tmp_path / "cache")


def test_find_links_without_an_index(tmp_path, index, monkeypatch):
    settings = {"find-links": str(tmp_path / "files"), "no-index": "1"}
    monkeypatch.setattr(package_module, "pip_settings", lambda: settings)
    assert fetch(archive(index), tmp_path / "cache").name == FILE


def test_pip_settings_follow_the_environment(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:secret@index.example/simple")
    assert pip_settings()["index-url"] == "https://user:secret@index.example/simple"


@pytest.mark.parametrize(
    "more", [{"file": "../x.whl"}, {"file": "x.exe"}, {"name": "a/b"}, {"sha256": "x"}, {"url": "y"}]
)
def test_odd_packages_are_refused(more):
    with pytest.raises(ValidationError):
        archive("0" * 64, **more)
