"""UTF-8 checks on whole buffers."""

import numpy as np
import pyarrow as pa

BOM = b"\xef\xbb\xbf"


def is_utf8(data: bytes | memoryview) -> bool:
    """Whether the bytes are UTF-8 as RFC 3629 has it: no surrogates, nothing overlong, nothing above
    U+10FFFF.
    """
    offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
    return _valid(pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)]))


def invalid_utf8(column: pa.Array) -> np.ndarray:
    """bool[n]: which values of a string column are not UTF-8 (Parquet readers do not check). Nulls are
    fine.
    """
    bad = np.zeros(len(column), bool)
    if not _valid(column):
        binary = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
        for index, value in enumerate(column.view(binary)):
            if value.is_valid:
                bad[index] = not is_utf8(value.as_buffer())
    return bad


def _valid(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
