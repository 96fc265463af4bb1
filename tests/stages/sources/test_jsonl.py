"""JSON Lines: good rows, every kind of bad row, damaged streams, and the scanner against the exact reader."""

import gzip
import json
import zlib
from pathlib import Path

import numpy as np
import orjson
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.errors import UserError
from stages.sources import json_scan
from stages.sources.json_line import Row, read_line
from stages.sources.jsonl import OversizedLine, line_blocks, parse_block
from stages.sources.rows import Reason
from stages.sources.spec import JsonlRead
from stages.sources.text import is_utf8

CORPORA = Path(__file__).parents[4] / "shared" / "corpora"
JSONL = {"format": "jsonl", "path": "in.jsonl"}
READ = JsonlRead(format="jsonl", path="x")


def lines(count, **more):
    return [json.dumps({"id": f"d{i}", "text": f"document {i}\n«é»"} | more).encode() for i in range(count)]


def write(tmp_path, rows, name="in.jsonl", pack=lambda data: data):
    data = pack(b"".join(row + b"\n" for row in rows))
    (tmp_path / name).write_bytes(data)
    return data


BAD_LINES = {
    "invalid_utf8": [b'{"text": "\xff"}', b'{"text": "ok", "x": "\xed\xa0\x80"}', b"\xc3"],
    "invalid_json": [
        b'{"text": "a"',
        b"{'text': 'a'}",
        b'{"text": "a"} {"text": "b"}',
        b'{"text": "a", "v": NaN}',
        b'{"text": "a", "v": -Infinity}',
        b'{"text": NaN}',
        b'{"text": "a", "v": 01}',
        b'{"text": "a\tb"}',
        b'{"text": "a",}',
        b'{"text": "a", "v": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'\xef\xbb\xbf{"text": "a BOM, but not at the start of the file"}',
        b"plain words",
        b'{"text": "a"}\0',
    ],
    "lone_surrogate": [b'{"text": "\\ud83d"}', b'{"text": "\\ude00"}', b'{"text": "a", "x": "\\ud83dx"}'],
    "not_an_object": [b'["text"]', b"5", b"null", b'"text"', b"true"],
    "missing_text": [b"{}", b'{"Text": "a"}', b'{"x": {"text": "a"}}'],
    "null_text": [b'{"text": null}'],
    "empty_text": [b'{"text": ""}'],
    "text_not_string": [b'{"text": 5}', b'{"text": ["a"]}', b'{"text": {"a": "b"}}', b'{"text": false}'],
    "id_not_string": [b'{"text": "a", "id": 1.5}', b'{"text": "a", "id": ["x"]}', b'{"text": "a", "id": true}'],
}


@pytest.mark.parametrize(("reason", "line"), [(r, line) for r, some in BAD_LINES.items() for line in some])
def test_a_bad_line_costs_only_itself(tmp_path, read_all, reason, line):
    rows = lines(100)
    rows[50] = line
    write(tmp_path, rows)
    out = read_all(JSONL)
    assert out.bad == [(0, 50, reason)]
    assert [row for _, row, _, _ in out.good] == [*range(50), *range(51, 100)]
    assert [source_id for _, _, source_id, _ in out.good] == [f"d{i}" for i in range(100) if i != 50]


def test_every_bad_line_at_once_in_any_blocks(tmp_path, read_all):
    rows = lines(3)
    expected = []
    for reason, some in BAD_LINES.items():
        for line in some:
            expected.append((0, len(rows), reason))
            rows += [line, *lines(1)]
    write(tmp_path, rows)
    whole = read_all(JSONL)
    assert whole.bad == expected
    assert len(whole.good) == len(rows) - len(expected)
    for batch_bytes in (1, 100, 5000):
        cut = read_all(JSONL, batch_bytes=batch_bytes)
        assert (cut.good, cut.bad) == (whole.good, whole.bad)


@pytest.mark.parametrize(
    ("line", "text", "source_id"),
    [
        (b'{"text":"a","id":5}', "a", "5"),
        (b'{"text":"a","id":-0}', "a", "0"),
        (b'{"text":"a","id":18446744073709551615}', "a", "18446744073709551615"),
        (b'{"text":"a","id":null}', "a", None),
        (b'{"text":"a"}', "a", None),
        (b'{"text":"a","id":""}', "a", ""),
        (b'{"text":"2020-01-01T00:00:00Z","id":"2020-01-01"}', "2020-01-01T00:00:00Z", "2020-01-01"),
        (b'{"text":"a","text":"b"}', "b", None),
        (b'{"te\\u0078t":"escaped key"}', "escaped key", None),
        (b' {"x":[{"text":"no"},[1.5e3,-2,true,false,null,{}]],"text":"yes"}\t\r', "yes", None),
        (b'{"text":"\\ud83d\\ude00\\u00e9\\u20ac\\/\\b\\u0000\\ufffe"}', "😀é€/\b\0\ufffe", None),
        (b'{"text":"<|endoftext|>"}', "<|endoftext|>", None),
        (b'{"text":"a","v":1e99}', "a", None),
        (b'{"text":"a","v":1e300}', "a", None),
    ],
)
def test_good_lines(tmp_path, read_all, line, text, source_id):
    write(tmp_path, [line])
    assert read_all(JSONL).good == [(0, 0, source_id, text)]


def test_other_keys_and_no_id(tmp_path, read_all):
    write(tmp_path, [b'{"body": "b", "text": "t", "key": 7, "id": 1.5}'])
    assert read_all(JSONL | {"text": "body", "id": "key"}).good == [(0, 0, "7", "b")]
    assert read_all(JSONL | {"text": "body", "id": None}).good == [(0, 0, None, "b")]


def test_blank_lines_are_no_rows_and_bom_and_last_newline_do_not_matter(tmp_path, read_all):
    a, b = lines(2)
    (tmp_path / "in.jsonl").write_bytes(b"\xef\xbb\xbf" + a + b"\r\n\n \t\r\n" + b)
    out = read_all(JSONL)
    assert [row for _, row, _, _ in out.good] == [0, 1]
    assert out.bad == []


@pytest.mark.parametrize("rows", [[b"{}"] * 5, [b'{"text":null}'] * 5, [b'{"text":""}'] * 5])
def test_no_good_row_at_all(tmp_path, read_all, rows):
    write(tmp_path, rows)
    out = read_all(JSONL)
    assert out.good == []
    assert [row for _, row, _ in out.bad] == [0, 1, 2, 3, 4]


def test_duplicate_ids_are_kept(tmp_path, read_all):
    write(tmp_path, lines(1) * 3)
    assert [source_id for _, _, source_id, _ in read_all(JSONL).good] == ["d0"] * 3


@pytest.mark.parametrize("pack", [lambda d: d, gzip.compress, zstandard.compress], ids=["plain", "gz", "zst"])
def test_compression_is_told_by_content(tmp_path, read_all, pack):
    write(tmp_path, lines(500), pack=pack)
    assert read_all(JSONL).texts == [f"document {i}\n«é»" for i in range(500)]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gz", "zst"])
def test_several_members_and_frames(tmp_path, read_all, pack):
    a, b = (b"".join(row + b"\n" for row in lines(300)[part]) for part in (slice(0, 150), slice(150, None)))
    padding = b"\0" * 10 if pack is gzip.compress else b""
    (tmp_path / "in.jsonl").write_bytes(pack(a[:-5]) + pack(b"") + padding + pack(a[-5:] + b) + padding)
    out = read_all(JSONL)
    assert (len(out.good), out.bad) == (300, [])


def noisy(count):
    rng = np.random.default_rng(5)
    return [json.dumps({"id": str(i), "text": rng.bytes(300).hex()}).encode() for i in range(count)]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gz", "zst"])
@pytest.mark.parametrize("fraction", [0.001, 0.5, 0.999])
def test_truncated_stream_gives_what_came_before(tmp_path, read_all, pack, fraction):
    rows = noisy(3000)
    data = write(tmp_path, rows, pack=pack)
    cut = max(5, int(len(data) * fraction))
    (tmp_path / "in.jsonl").write_bytes(data[:cut])
    out = read_all(JSONL)
    assert [row for _, row, _, _ in out.good] == [*range(len(out.good))]
    assert out.texts == [json.loads(row)["text"] for row in rows[: len(out.good)]]
    assert out.bad == [(0, len(out.good), "truncated_file")]
    slack = 500 if pack is zstandard.compress else 60  # zstd delivers whole blocks of 128 KiB
    assert len(out.good) > 3000 * fraction - slack


def test_flipped_bits_in_gzip_are_found(tmp_path, read_all):
    rows = noisy(2000)
    data = bytearray(write(tmp_path, rows, pack=gzip.compress))
    for place in (len(data) // 2, len(data) - 6):  # in the deflate stream, in the CRC
        broken = bytearray(data)
        broken[place] ^= 0x10
        (tmp_path / "in.jsonl").write_bytes(broken)
        out = read_all(JSONL)
        last = out.bad[-1]
        assert last[2] in ("corrupt_file", "truncated_file")
        assert last[1] == len(out.good) + len(out.bad) - 1
        assert len(out.good) > 900


def test_flipped_bit_in_zstd_is_found(tmp_path, read_all):
    pack = zstandard.ZstdCompressor(write_checksum=True).compress
    data = bytearray(write(tmp_path, noisy(2000), pack=pack))
    data[len(data) // 2] ^= 0x10
    (tmp_path / "in.jsonl").write_bytes(data)
    assert read_all(JSONL).bad[-1][2] in ("corrupt_file", "truncated_file")


def test_garbage_after_the_stream(tmp_path, read_all):
    for pack in (gzip.compress, zstandard.compress):
        data = write(tmp_path, lines(3), pack=pack)
        (tmp_path / "in.jsonl").write_bytes(data + b"garbage")
        out = read_all(JSONL)
        assert (len(out.good), out.bad) == (3, [(0, 3, "corrupt_file")])


def test_salvage_reads_up_to_the_byte_that_zlib_refuses(tmp_path, read_all):
    good = b"".join(row + b"\n" for row in lines(20))
    deflate = zlib.compressobj(wbits=31)
    stream = deflate.compress(good) + deflate.flush(zlib.Z_FULL_FLUSH)
    (tmp_path / "in.jsonl").write_bytes(stream + b"\x07" * 20)  # a block of the reserved type
    out = read_all(JSONL)
    assert (len(out.good), out.bad) == (20, [(0, 20, "corrupt_file")])


def test_empty_files(tmp_path, read_all):
    (tmp_path / "in.jsonl").write_bytes(b"")
    assert read_all(JSONL)[1:] == ([], [])
    (tmp_path / "in.jsonl").write_bytes(b"\xef\xbb\xbf")
    assert read_all(JSONL)[1:] == ([], [])
    (tmp_path / "in.jsonl").unlink()
    (tmp_path / "in.jsonl.gz").write_bytes(b"")
    assert read_all(JSONL | {"path": "in.jsonl.gz"}).bad == [(0, 0, "truncated_file")]


@pytest.mark.parametrize(
    ("data", "word"), [(b"PAR1....", "parquet"), (b"BZh91", "bzip2"), (b"PK\x03\x04", "zip://"), (b"\xfd7zXZ\0", "xz")]
)
def test_other_kinds_of_files_are_named(tmp_path, read_all, data, word):
    (tmp_path / "in.jsonl").write_bytes(data)
    with pytest.raises(UserError, match=word) as error:
        read_all(JSONL)
    assert "in.jsonl" in str(error.value) and "demo" in str(error.value)


def test_a_50_mb_document_passes_by_default(tmp_path, read_all):
    rows = lines(2)
    rows.insert(1, json.dumps({"text": "xyz\n" * 12_500_000}).encode())
    write(tmp_path, rows)
    out = read_all(JSONL)
    assert [len(text) for text in out.texts] == [14, 50_000_000, 14]


def test_oversized_lines_are_skipped_and_counted(tmp_path, read_all):
    def sized(size):
        return b'{"text":"' + b"x" * (size - 11) + b'"}'

    assert len(sized(1000)) == 1000
    sizes = [1000, 1001, 30, 3_000_000, 1000, 999, 700_000]
    write(tmp_path, [sized(size) for size in sizes])
    for batch_bytes in (1, 1500, 8 << 20):
        out = read_all(JSONL, max_document_bytes=1000, batch_bytes=batch_bytes)
        assert out.bad == [(0, 1, "oversized"), (0, 3, "oversized"), (0, 6, "oversized")]
        assert [row for _, row, _, _ in out.good] == [0, 2, 4, 5]


def test_an_endless_line_is_never_held():
    held = []

    def pieces():
        yield b'{"text":"first"}\n'
        for _ in range(200):
            yield b"x" * 10_000
        yield b'\n{"text":"last"}'

    blocks = list(line_blocks(pieces(), 1 << 20, 50_000))
    held = [block for block in blocks if isinstance(block, bytes)]
    assert held == [b'{"text":"first"}\n', b'{"text":"last"}\n']
    assert [type(block) for block in blocks] == [bytes, OversizedLine, bytes]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_line_blocks_do_not_depend_on_pieces(data):
    text = data.draw(st.text(alphabet="ab\n", max_size=60)).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    seen = []
    for block in line_blocks(iter(pieces), data.draw(st.integers(1, 20)), 5):
        if isinstance(block, OversizedLine):
            seen.append("big")
        else:
            assert block.endswith(b"\n")
            seen += ["big" if len(line) > 5 else line for line in block.split(b"\n")[:-1]]
    whole = text.split(b"\n")
    if not whole[-1]:
        whole.pop()
    assert seen == ["big" if len(line) > 5 else line for line in whole]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
texts = st.text(max_size=40) | st.sampled_from(['"', "\\", "\n", "😀", "é", "\0", "\x7f", "\u2028"])
objects = st.fixed_dictionaries(
    {}, optional={"text": texts | texts | json_values, "id": texts | st.integers() | json_values, "x": json_values}
)
FRAGMENTS = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b",",
    b":",
    b"\\ud83d",
    b"\\ude00",
    b"\xff",
    b"NaN",
    b"0",
    b"e9",
    b"\0",
    b" ",
    b"[",
)


@st.composite
def json_lines(draw):
    value = draw(objects | json_values)
    line = json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(line)))
        line = line[:at] + draw(st.sampled_from(FRAGMENTS)) + line[at + draw(st.integers(0, 2)) :]
    return line.replace(b"\n", b" ")


@settings(max_examples=150, deadline=None)
@given(st.lists(json_lines() | st.binary(max_size=10).map(lambda b: b.replace(b"\n", b"")), max_size=6))
def test_scanner_and_exact_reader_agree(some):
    rows = [line for line in some if line.strip(b" \t\r")]
    exact = [read_line(line, "text", "id", 1 << 20) for line in rows]
    count, batch = parse_block(READ, b"".join(line + b"\n" for line in some), 3, 10, 1 << 20)
    assert count == len(rows)
    good = [(10 + i, r.source_id, r.text) for i, r in enumerate(exact) if isinstance(r, Row)]
    assert [tuple(row.values())[1:] for row in batch.rows.to_pylist()] == good
    bad = [(10 + i, r) for i, r in enumerate(exact) if isinstance(r, Reason)]
    assert [(b.row, b.reason) for b in batch.bad] == bad


def scan(line):
    """The scanner alone on one line: (status, text, id)."""
    data = np.frombuffer(line + b"\n", np.uint8)
    size = len(data)
    text, ids, status = np.zeros(size, np.uint8), np.zeros(size, np.uint8), np.zeros(1, np.uint8)
    ends, id_ends = np.zeros(2, np.int64), np.zeros(2, np.int32)
    null, starts, flags = np.zeros(1, bool), np.zeros(2, np.int64), np.zeros(-(-size // 8) * 8, np.uint8)
    keys = np.frombuffer(b"text", np.uint8), np.frombuffer(b"id", np.uint8)
    json_scan.scan_lines(data, *keys, 1 << 20, text, ends, ids, id_ends, null, starts, status, flags)
    return status[0], text[: ends[1]].tobytes().decode(), None if null[0] else ids[: id_ends[1]].tobytes().decode()


@settings(max_examples=150, deadline=None)
@given(json_lines())
def test_the_scanner_never_passes_what_orjson_refuses(line):
    if not is_utf8(line):
        return
    status, text, source_id = scan(line)
    if status == json_scan.CLEAN:
        value = orjson.loads(line)
        assert value["text"] == text
        assert source_id == (None if value.get("id") is None else str(value["id"]))


def test_ordinary_lines_take_the_columnar_path():
    for line in (b'{"text":"a"}', b'{ "id" : 7 , "m":{"a":[1,-2.5e3,{"b":[]}],"c":null}, "text" : "\\u00e9\\n" }'):
        assert scan(line)[0] == json_scan.CLEAN
    assert scan(b'{"text":"a","v":NaN}')[0] == json_scan.UNCLEAR
    assert scan(b'{"text":"a","v":' + b"[" * 61 + b"]" * 61 + b"}")[0] == json_scan.UNCLEAR
    assert scan(b'{"text":"a","v":' + b"[" * 60 + b"]" * 60 + b"}")[0] == json_scan.CLEAN


@pytest.mark.skipif(not CORPORA.is_dir(), reason="no shared corpora")
@pytest.mark.parametrize("name", ["poetry-zh", "code-python"])
def test_real_text(read_all, name):
    path = CORPORA / f"{name}.jsonl.gz"
    out = read_all({"format": "jsonl", "path": str(path)})
    with gzip.open(path) as opened:
        rows = [orjson.loads(line) for line in opened]
    assert out.good == [(0, i, row["id"], row["text"]) for i, row in enumerate(rows)]
    assert out.bad == []
