import unicodedata
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.kernels.nfc import COMPOSE, POINTS, compose, composition, decode_at

ASSIGNED = [chr(p) for p in range(POINTS) if unicodedata.category(chr(p)) not in ("Cn", "Cs")]
TABLE = composition()
ACTIVE = [c for c in ASSIGNED if TABLE.quick[ord(c)] or TABLE.decomposition[ord(c)]]
BASES = sorted({unicodedata.normalize("NFD", c)[0] for c in ACTIVE} | set(map(chr, range(0x1100, 0x1113))))
SYLLABLES = st.integers(0xAC00, 0xAC00 + 11171).map(chr)


def nfc(texts: list[str]) -> list[str]:
    rows = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    needs = np.full(len(rows), COMPOSE, np.uint8)
    data, offsets, changed = compose(np.frombuffer(b"".join(rows), np.uint8), offsets, needs, *TABLE)
    composed = [bytes(data[a:b]).decode() for a, b in pairwise(offsets)]
    assert changed.tolist() == [a != b for a, b in zip(texts, composed, strict=True)]
    return composed


def test_every_character_assigned_in_both_versions() -> None:
    assert nfc(ASSIGNED) == [unicodedata.normalize("NFC", c) for c in ASSIGNED]
    decomposed = [unicodedata.normalize("NFD", c) for c in ASSIGNED]
    assert nfc(decomposed) == [unicodedata.normalize("NFC", c) for c in ASSIGNED]


@settings(deadline=None)
@given(
    st.lists(st.text(st.one_of(st.sampled_from(ACTIVE), st.sampled_from(BASES), SYLLABLES, st.just("x"))), min_size=1)
)
def test_any_sequence(texts: list[str]) -> None:
    assert nfc(texts) == [unicodedata.normalize("NFC", text) for text in texts]


def test_many_random_sequences() -> None:
    rng = np.random.default_rng(11)
    letters = np.array(ACTIVE * 2 + BASES * 3)
    texts = ["".join(rng.choice(letters, n)) for n in rng.integers(1, 40, 3000)]
    assert nfc(texts) == [unicodedata.normalize("NFC", text) for text in texts]


def test_long_runs_of_marks_are_linear() -> None:
    marks = "\u0301\u0323" * 500_000  # a quadratic sort would not come back
    assert nfc(["a" + marks]) == ["\u1ea1" + "\u0323" * 499_999 + "\u0301" * 500_000]


def test_hangul() -> None:
    assert nfc(["\u1100\u1161\u11a8", "\uac00\u11a8", "\uac01\u11a8", "\u1100\u1161\u11a7", "\u1161\u11a8"]) == [
        "\uac01", "\uac01", "\uac01\u11a8", "\uac00\u11a7", "\u1161\u11a8",
    ]  # fmt: skip


def test_composition_of_a_later_unicode_version() -> None:
    assert nfc(["\U000105d2\u0307"]) == ["\U000105c9"]  # Todhri, Unicode 16


def test_nothing_grows_beyond_three_times() -> None:
    """What the size of the output buffer rests on: no decomposition is longer, no composite longer than its parts."""

    def size(points: list[int]) -> int:
        return len("".join(map(chr, points)).encode())

    for point in np.flatnonzero(TABLE.decomposition).tolist():
        pieces = [p for p in TABLE.pieces[TABLE.decomposition[point] - 1].tolist() if p]
        assert size(pieces) <= 3 * size([point])
    for first, second, composite in TABLE.pairs[TABLE.pairs[:, 0] > 0].tolist():
        assert size([composite]) <= size([first, second])


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=6))
def test_decode_agrees_with_python(data: bytes) -> None:
    point, size = decode_at(np.frombuffer(data, np.uint8), 0, len(data))
    for length in range(1, 5):
        try:
            expected = data[:length].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            continue
        assert (point, size) == (ord(expected[0]), length)
        return
    assert (point, size) == (POINTS + data[0], 1)


def test_quick_check_lets_nothing_through() -> None:
    for c in ASSIGNED:
        if not TABLE.quick[ord(c)]:
            assert unicodedata.is_normalized("NFC", c)
