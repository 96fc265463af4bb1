"""Opening local files and fsspec URLs for reading."""

from pathlib import Path
from typing import Any, BinaryIO, cast

import fsspec
from fsspec.implementations.local import LocalFileSystem

from stages.errors import UserError

REMOTE_BLOCK_BYTES = 8 << 20


def resolve(path: str, base: str) -> str:
    """A path of a spec as something fsspec opens: relative ones are below `base`, in a chain only the last
    one.
    """
    head, chain, last = path.rpartition("::")
    if "://" not in last:
        expanded = Path(last).expanduser()
        if not expanded.is_absolute():
            last = f"{base.rstrip('/')}/{last}" if "://" in base else str(Path(base, last).absolute())
        else:
            last = str(expanded)
    return head + chain + last


def filesystem(url: str) -> tuple[Any, str]:
    """(fsspec filesystem, path in it). UserError when the protocol is unknown or its package is missing."""
    try:
        return fsspec.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise UserError(f"{url}: cannot be opened: {error}. Check the protocol before '://'") from error


def is_local(fs: Any) -> bool:
    """Whether paths of this filesystem are plain paths of this machine."""
    return isinstance(fs, LocalFileSystem)


def open_binary(url: str) -> BinaryIO:
    """Open for sequential reading. Remote stores read ahead one block; UserError when the file is gone or
    closed.
    """
    fs, path = filesystem(url)
    try:
        if is_local(fs):
            return Path(path).open("rb")
        opened = fs.open(path, "rb", cache_type="readahead", block_size=REMOTE_BLOCK_BYTES)
        return cast(BinaryIO, opened)
    except FileNotFoundError as error:
        raise UserError(f"{url}: the file was listed but is no longer there. List the source again") from error
    except PermissionError as error:
        raise UserError(f"{url}: no permission to read it. Check the access rights or credentials") from error
    except IsADirectoryError as error:
        raise UserError(f"{url}: a folder stands where a file was listed. List the source again") from error
