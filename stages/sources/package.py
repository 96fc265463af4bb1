"""Archives of PyPI packages as data: found on the user's own index, checked against a digest, kept in a
cache.

`pip download` builds the metadata of an sdist, which runs the package's code. So only pip's configuration
is asked (`pip config list`) and the simple index (PEP 503 and PEP 691) is read directly; nothing of the
package is ever run.
"""

import ast
import hashlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import Request, url2pathname, urlopen

from stages.errors import UserError
from stages.sources.spec import PackageArchive

PYPI = "https://pypi.org/simple"
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
TIMEOUT_SECONDS = 60


def fetch(package: PackageArchive, cache_dir: str | Path) -> Path:
    """The archive as a local file, downloaded once into `cache_dir` and checked each time; offline
    afterwards.

    UserError: no index has the file, no network, or the bytes do not have `package.sha256` (both digests
    are shown).
    """
    target = Path(cache_dir) / "packages" / package.sha256[:16] / package.file
    if target.is_file() and _sha256(target) == package.sha256:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    settings = pip_settings()
    failures: list[str] = []
    for url in _candidates(package, settings, failures):
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".download-")
        partial = Path(name)
        try:
            with os.fdopen(handle, "wb") as output, _open(url, settings) as response:
                shutil.copyfileobj(response, output, 1 << 20)
            found = _sha256(partial)
            if found != package.sha256:
                raise UserError(
                    f"package {package.name} {package.version}: {package.file} from {_public(url)} has sha256 {found}, "
                    f"the spec says {package.sha256}. If the new bytes are right, put their digest in the spec"
                )
            partial.chmod(0o644)  # mkstemp gives 0600, and a cache may be shared
            partial.replace(target)
            return target
        except (OSError, URLError) as error:
            failures.append(f"{_public(url)}: {error}")
        finally:
            partial.unlink(missing_ok=True)
    raise UserError(
        f"package {package.name} {package.version}: {package.file} could not be fetched ("
        + ("; ".join(failures) or "no index lists it")
        + "). Check name, version and file, the network, and pip's index settings (`pip config list`)"
    )


def pip_settings() -> dict[str, str]:
    """pip's options by name, from its files and environment, the `download` section before `global`.

    Without pip in this Python only the `PIP_*` environment counts.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    rank = {"global": 0, "install": 1, "download": 2, ":env:": 3}
    settings: dict[str, tuple[int, str]] = {}
    for line in listed.stdout.splitlines() if listed.returncode == 0 else []:
        match = re.fullmatch(r"(global|install|download|:env:)\.([a-z-]+)=('.*'|\".*\")", line)
        if match:
            level, key = rank[match[1]], match[2]
            if level >= settings.get(key, (-1, ""))[0]:
                settings[key] = (level, str(ast.literal_eval(match[3])))
    for name, value in os.environ.items():
        if name.startswith("PIP_"):
            settings[name[4:].lower().replace("_", "-")] = (4, value)
    return {key: value for key, (_, value) in settings.items()}


def _candidates(package: PackageArchive, settings: dict[str, str], failures: list[str]) -> Iterator[str]:
    """URLs of the file: from `find-links`, then from the index and the extra indexes; failures are noted."""
    project = re.sub(r"[-_.]+", "-", package.name).lower()
    pages = settings.get("find-links", "").split()
    if settings.get("no-index", "").lower() not in ("1", "true", "yes", "on"):
        indexes = [settings.get("index-url", PYPI), *settings.get("extra-index-url", "").split()]
        pages += [f"{index.rstrip('/')}/{project}/" for index in indexes]
    for page in pages:
        try:
            links = list(_links(page, settings))
        except (OSError, URLError, ValueError) as error:
            failures.append(f"{_public(page)}: {error}")
            continue
        for link in links:
            if unquote(urlsplit(link).path).rpartition("/")[2] == package.file:
                yield link


def _links(page: str, settings: dict[str, str]) -> Iterator[str]:
    local = Path(url2pathname(urlsplit(page).path)) if page.startswith("file:") else Path(page).expanduser()
    if "://" not in page or page.startswith("file:"):
        if (local / "index.html").is_file():
            page = (local / "index.html").absolute().as_uri()
        elif local.is_dir():
            yield from (path.absolute().as_uri() for path in sorted(local.iterdir()))
            return
        else:
            page = local.absolute().as_uri()
    with _open(page, settings, {"Accept": ACCEPT}) as response:
        body, kind, final = response.read(), response.headers.get_content_type(), response.url
    if kind.endswith("json"):
        hrefs = [str(file["url"]) for file in json.loads(body)["files"]]
    else:
        parser = _Anchors()
        parser.feed(body.decode("utf-8", "replace"))
        hrefs = parser.hrefs
    yield from (urldefrag(urljoin(final, href)).url for href in hrefs)


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hrefs += [value for key, value in attrs if tag == "a" and key == "href" and value]


def _open(url: str, settings: dict[str, str], headers: dict[str, str] | None = None) -> Any:
    if urlsplit(url).scheme not in ("https", "http", "file"):
        raise ValueError(f"not a http, https or file URL: {_public(url)}")
    parts = urlsplit(url)
    request = Request(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(), headers=headers or {})
    if parts.username:
        import base64

        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    context = ssl.create_default_context(cafile=settings.get("cert") or None)
    return urlopen(request, timeout=TIMEOUT_SECONDS, context=context)


def _public(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _sha256(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
