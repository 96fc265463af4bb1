"""Content digests: what the rows say, whatever file format or writer version holds them.

The digest of a table is the sha256 over its columns' names, types and three streams each: validity (one byte a
row), lengths (little-endian uint32 a row, variable-size columns only) and values (little-endian bytes; nothing for
a null). It does not depend on batches, row groups, compression, or the width of Arrow's offsets.
"""

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.recipe import canonical_json


class ContentDigest:
    """Accumulates record batches of one schema; `hexdigest()` at the end. Nested columns are lists and structs."""

    def __init__(self, schema: pa.Schema) -> None:
        self.columns = [(f.name, _logical(f.type), _Column(f.type)) for f in schema]
        self.rows = 0

    def update(self, batch: pa.RecordBatch) -> None:
        """Add a batch whose columns are in the order of the schema."""
        self.rows += batch.num_rows
        for (_, _, column), array in zip(self.columns, batch.columns, strict=True):
            column.update(array)

    def hexdigest(self) -> str:
        """sha256 in hex over rows and columns."""
        columns = [[name, kind, column.digests()] for name, kind, column in self.columns]
        return hashlib.sha256(canonical_json({"rows": self.rows, "columns": columns})).hexdigest()


def _logical(kind: pa.DataType) -> str:
    """One name for the types that hold the same values."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if pa.types.is_large_binary(kind):
        return "binary"
    if pa.types.is_dictionary(kind):
        return _logical(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return f"list<{_logical(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{f.name}:{_logical(f.type)}' for f in kind)}>"
    return str(kind)


class _Column:
    """The three hash streams of a column, with those of its children below."""

    def __init__(self, kind: pa.DataType) -> None:
        self.valid, self.lengths, self.values = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
        nested = pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
        nested = nested or pa.types.is_fixed_size_list(kind)
        self.children = [_Column(kind.field(i).type) for i in range(kind.num_fields)] if nested else []

    def digests(self) -> list[Any]:
        own = [h.hexdigest() for h in (self.valid, self.lengths, self.values)]
        return own + [c.digests() for c in self.children]

    def update(self, array: pa.Array) -> None:
        kind = array.type
        if pa.types.is_dictionary(kind):
            return self.update(array.dictionary_decode())
        self.valid.update(_bytes(array.is_valid().to_numpy(zero_copy_only=False), np.uint8))
        if pa.types.is_struct(kind):
            self._nested(array.flatten())
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            self.lengths.update(_lengths(pc.list_value_length(array)))
            self._nested([array.flatten()])
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            self._variable(array.cast(pa.large_string()))
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            self._variable(array.cast(pa.large_binary()))
        elif pa.types.is_boolean(kind):
            self.values.update(_bytes(pc.fill_null(array, False).to_numpy(zero_copy_only=False), np.uint8))
        elif pa.types.is_fixed_size_binary(kind):
            self.values.update(_fixed(array, kind.byte_width))
        elif array.null_count:
            self.values.update(_bytes(array.drop_null().to_numpy(zero_copy_only=False)))
        else:
            self.values.update(_bytes(array.to_numpy(zero_copy_only=False)))
        return None

    def _nested(self, arrays: list[pa.Array]) -> None:
        for child, array in zip(self.children, arrays, strict=True):
            child.update(array)

    def _variable(self, array: pa.Array) -> None:
        self.lengths.update(_lengths(pc.binary_length(array)))
        array = array.drop_null() if array.null_count else array
        _, offsets, data = array.buffers()
        if len(array) and data is not None:
            ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
            self.values.update(memoryview(data)[int(ends[0]) : int(ends[-1])])


def _lengths(lengths: pa.Array) -> memoryview:
    return _bytes(pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False), np.uint32)


def _bytes(values: np.ndarray, dtype: Any = None) -> memoryview:
    return np.ascontiguousarray(values, dtype).data.cast("B")


def _fixed(array: pa.Array, width: int) -> memoryview:
    array = array.drop_null() if array.null_count else array
    data = array.buffers()[1]
    if data is None or not len(array):
        return memoryview(b"")
    return memoryview(data)[array.offset * width : (array.offset + len(array)) * width]


def content_digest(table: pa.Table | pa.RecordBatch) -> str:
    """The content digest of a whole table."""
    digest = ContentDigest(table.schema)
    for batch in table.to_batches() if isinstance(table, pa.Table) else [table]:
        digest.update(batch)
    return digest.hexdigest()
