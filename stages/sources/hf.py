"""Sources that the `datasets` library reads: a pinned hub dataset, a local folder, a saved dataset."""

from collections.abc import Iterator
from typing import Any

from stages.errors import UserError
from stages.sources.columns import column_batches, pick_columns
from stages.sources.rows import Batch
from stages.sources.spec import HfRead


def load(read: HfRead, url: str) -> Any:
    """The split as a `datasets.Dataset`. `url`: the resolved folder, or only a label for a hub dataset.

    UserError: the dataset, configuration or split is not there, or the hub cannot be reached.
    """
    import datasets

    try:
        if read.id is not None:
            return datasets.load_dataset(read.id, name=read.name, revision=read.revision, split=read.split)
        if read.folder is not None:
            return datasets.load_dataset(url, name=read.name, split=read.split)
        saved = datasets.load_from_disk(url)
    except (OSError, ValueError, KeyError, datasets.exceptions.DatasetsError) as error:
        raise UserError(
            f"hf dataset {url}, split {read.split!r}: {type(error).__name__}: {error}. Check the name, the split, and "
            "for the hub the network or HF_HUB_OFFLINE"
        ) from error
    if isinstance(saved, datasets.DatasetDict):
        if read.split not in saved:
            raise UserError(f"hf dataset {url}: no split {read.split!r}, only {', '.join(saved)}. Set `split`")
        return saved[read.split]
    if saved.split is not None and str(saved.split) != read.split:
        raise UserError(f"hf dataset {url}: it holds the split {saved.split!s}, not {read.split!r}. Set `split`")
    return saved


def read_rows(
    read: HfRead, url: str, file: int, start: int, stop: int, batch_bytes: int, max_document_bytes: int
) -> Iterator[Batch]:
    """Rows `start` to `stop` of the split as batches; `file` is the index in the listing."""
    dataset = load(read, url)
    text, row_id = pick_columns(dataset.data.schema, read.text, read.row_id, f"hf dataset {url}")
    columns = [text] if row_id is None else [text, row_id]
    dataset = dataset.select_columns(columns).with_format("arrow")
    step = max(1, batch_bytes * max(len(dataset), 1) // max(int(dataset.data.nbytes), 1))
    for first in range(start, stop, step):
        table = dataset[first : min(first + step, stop)]
        for batch in table.combine_chunks().to_batches():
            ids = batch.column(row_id) if row_id is not None else None
            yield column_batches(batch.column(text), ids, file, first, max_document_bytes)
