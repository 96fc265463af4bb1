"""Cutting a source into units: what one task reads."""

from dataclasses import dataclass

from stages.sources import parquet
from stages.sources.archive import Archive
from stages.sources.listing import Listing, SourceFile
from stages.sources.storage import open_binary


@dataclass(frozen=True)
class FilePart:
    """A file, whole or a range of it. `index`: place in the listing; `start`, `stop`: Parquet row groups,
    or rows of an `hf` dataset; None means all; `bytes`: stored bytes of the part.
    """

    index: int
    file: SourceFile
    bytes: int
    start: int | None = None
    stop: int | None = None


@dataclass(frozen=True)
class Unit:
    """Parts that one task reads, in listing order. `source` names the source in errors."""

    source: str
    parts: tuple[FilePart, ...]
    bytes: int


def plan_units(listing: Listing, target_bytes: int) -> list[Unit]:
    """Contiguous groups of about `target_bytes` stored bytes; each part is in exactly one unit, in order.

    Small files share a unit, a Parquet file above the target is split by row groups and an `hf` dataset by
    rows, any other large file is a unit alone. All members of a compressed tar stay together, as each unit
    would have to inflate the whole of it. The plan depends on the listing and the target only.
    """
    if target_bytes < 1:
        raise ValueError(f"target_bytes must be positive, not {target_bytes}")
    groups: list[list[FilePart]] = []
    filled = 0
    for part in (p for index, file in enumerate(listing.files) for p in _parts(listing, index, file, target_bytes)):
        together = bool(groups) and part.file.sequential and groups[-1][-1].file.url == part.file.url
        if together or (groups and filled + part.bytes <= target_bytes):
            groups[-1].append(part)
            filled += part.bytes
        else:
            groups.append([part])
            filled = part.bytes
    return [Unit(listing.source, tuple(group), sum(part.bytes for part in group)) for group in groups]


def _parts(listing: Listing, index: int, file: SourceFile, target_bytes: int) -> list[FilePart]:
    if file.rows is not None:
        pieces = min(max(1, -(-file.bytes // target_bytes)), max(file.rows, 1))
        cuts = [file.rows * i // pieces for i in range(pieces + 1)]
        sizes = [file.bytes * cut // max(file.rows, 1) for cut in cuts]
        return [FilePart(index, file, sizes[i + 1] - sizes[i], cuts[i], cuts[i + 1]) for i in range(pieces)]
    if listing.read.format != "parquet" or file.bytes <= target_bytes:
        return [FilePart(index, file, file.bytes)]
    parts: list[FilePart] = []
    start, filled = 0, 0
    groups = _row_groups(listing.source, file)
    for group, size in enumerate(groups):
        if group > start and filled + size > target_bytes:
            parts.append(FilePart(index, file, filled, start, group))
            start, filled = group, 0
        filled += size
    parts.append(FilePart(index, file, filled, start, len(groups)))
    return parts


def _row_groups(source: str, file: SourceFile) -> list[int]:
    where = f"source {source}: {file.url if file.member is None else file.name}"
    if file.member is None:
        with open_binary(file.url) as opened:
            return parquet.row_group_bytes(opened, where)
    with Archive(file.url) as archive, archive.open(file.member) as opened:
        return parquet.row_group_bytes(opened, where)
