"""Tokens: those of Hugging Face `tokenizers` on ordinary text, and never a control id from a text."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from stages import tokenizing
from stages.artifact import sha256_of
from stages.corpus import TokenizerSpec
from stages.errors import UserError
from stages.tokenizer_file import locate_tokenizer
from stages.tokenizing import Tokenize, TokenizerFile, encode, load_encoder, open_tokenizer

END, USER, SPACES = 0, 498, 499
U2 = np.dtype("<u2")


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer):
    return open_tokenizer(tiny_tokenizer, sha256_of(tiny_tokenizer)[1], "<|endoftext|>")


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return load_encoder(tokenizer)


@pytest.fixture(scope="module")
def reference(tiny_tokenizer):
    return Tokenizer.from_file(str(tiny_tokenizer))


def documents(texts, kept=None):
    """Inputs of the stage, with only the columns it reads."""
    rows = pa.RecordBatch.from_arrays(
        [pa.array(texts, pa.large_string()), pa.array([len(t.encode()) for t in texts], pa.int64())], ["text", "bytes"]
    )
    mask = pa.array(kept if kept is not None else [True] * len(texts), pa.bool_())
    return {"documents": rows, "filters": pa.RecordBatch.from_arrays([mask], ["kept"])}


def stage(tokenizer):
    return Tokenize("web", "aa", "bb", tokenizer)


def split(made):
    """The ids of every document, from the counts."""
    ends = np.cumsum(made.batch.column(0).to_numpy())
    assert ends[-1] == len(made.data) if len(ends) else not len(made.data)
    return [made.data[a:b].tolist() for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def test_what_the_file_says(tokenizer):
    assert (tokenizer.end_of_text, tokenizer.vocabulary, tokenizer.dtype) == (END, 500, U2)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text().filter(lambda t: "<|" not in t))
def test_ordinary_text_has_the_plain_ids(tokenizer, encoder, reference, text):
    ids, counts = encode(encoder, [text], tokenizer.end_of_text, tokenizer.dtype)
    assert ids.tolist() == [*reference.encode(text, add_special_tokens=False).ids, END]
    assert counts.tolist() == [len(ids)]


def test_real_text(tokenizer, reference, tiny_corpus):
    rows = (tiny_corpus / "docstrings.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(row)["text"] for row in rows]
    made = stage(tokenizer).columns(documents(texts))
    assert split(made) == [[*reference.encode(t).ids, END] for t in texts]
    assert made.data.dtype == U2
    assert made.counters == {"tokens": len(made.data), "documents": len(texts)}


@pytest.mark.parametrize(
    "text",
    [
        "<|endoftext|>",
        "a<|endoftext|>b",
        "<|user|>",
        "x <|user|> y<|endoftext|>",
        "<|endoftext|>" * 3,
        "\0<|endoftext|>",
        "<|user|><|user|>",
    ],
)
def test_a_control_token_in_a_text_is_text(tokenizer, encoder, reference, text):
    assert {END, USER} & set(reference.encode(text).ids), "the tokenizer by itself would make a control id"
    ids, _ = encode(encoder, [text], END, U2)
    assert END not in ids[:-1]
    assert USER not in ids
    assert ids[-1] == END
    assert reference.decode(ids[:-1].tolist(), skip_special_tokens=False) == text


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.sampled_from(["<|endoftext|>", "<|user|>", "<|", "|>", "endoftext", " " * 8, "a", "\n"])))
def test_end_of_text_once_and_at_the_end(tokenizer, encoder, parts):
    ids, counts = encode(encoder, ["".join(parts), ""], END, U2)
    assert (ids == END).nonzero()[0].tolist() == [len(ids) - 2, len(ids) - 1]
    assert USER not in ids
    assert counts.tolist() == [len(ids) - 1, 1]


def test_added_tokens_that_stand_for_content_stay(encoder, reference):
    text = "def f():\n" + " " * 8 + "return <|user|>"
    ids, _ = encode(encoder, [text], END, U2)
    assert SPACES in ids
    assert SPACES in reference.encode(text).ids


def test_what_the_filters_drop_has_no_tokens(tokenizer):
    texts = ["one", "two words", "three"]
    made = stage(tokenizer).columns(documents(texts, [True, False, True]))
    parts = split(made)
    assert parts[1] == []
    assert [parts[0], parts[2]] == split(stage(tokenizer).columns(documents(["one", "three"])))
    assert made.counters["documents"] == 2


@pytest.mark.parametrize(("texts", "kept"), [([], []), (["a", "b"], [False, False])], ids=["no rows", "none kept"])
def test_empty_batches(tokenizer, texts, kept):
    made = stage(tokenizer).columns(documents(texts, kept))
    assert made.batch.column(0).to_pylist() == [0] * len(texts)
    assert (len(made.data), made.data.dtype) == (0, U2)
    assert made.counters == {"tokens": 0, "documents": 0}


@pytest.mark.parametrize("size", [1, 7, 100])
def test_chunks_do_not_matter(tokenizer, monkeypatch, size):
    texts = ["word " * (i * 7 % 12) for i in range(40)]
    whole = stage(tokenizer).columns(documents(texts))
    monkeypatch.setattr(tokenizing, "CHUNK_BYTES", size)
    cut = stage(tokenizer).columns(documents(texts))
    assert cut.data.tolist() == whole.data.tolist()
    assert cut.batch == whole.batch


@given(st.lists(st.integers(0, 300), max_size=30))
def test_chunks_cover_the_rows_in_order(sizes):
    limit, tokenizing.CHUNK_BYTES = tokenizing.CHUNK_BYTES, 100
    try:
        chunks = tokenizing._chunks(np.array(sizes, np.int64))
    finally:
        tokenizing.CHUNK_BYTES = limit
    assert [row for a, b in chunks for row in range(a, b)] == list(range(len(sizes)))
    assert all(b - a == 1 or sum(sizes[a:b]) <= 100 for a, b in chunks)


def write(path, data):
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


@pytest.mark.parametrize(("highest", "dtype"), [(65535, "<u2"), (65536, "<u4")])
def test_width_of_the_ids(tmp_path, highest, dtype):
    path = write(tmp_path / "t.json", {"model": {"vocab": {"a": 0, "b": highest, "<e>": 1}}, "added_tokens": []})
    assert open_tokenizer(path, "", "<e>").dtype == np.dtype(dtype)
    added = [{"content": "<e>", "id": highest}]
    path = write(tmp_path / "t.json", {"model": {"vocab": [["a", 0.5], ["b", 0.5]]}, "added_tokens": added})
    found = open_tokenizer(path, "", "<e>")
    assert (found.vocabulary, found.end_of_text, found.dtype) == (highest + 1, highest, np.dtype(dtype))


def test_wide_ids_are_the_same_ids(tokenizer):
    wide = replace(tokenizer, vocabulary=70_000)
    texts = ["some text", "more"]
    narrow_made, wide_made = stage(tokenizer).columns(documents(texts)), stage(wide).columns(documents(texts))
    assert wide_made.data.dtype == np.dtype("<u4")
    assert wide_made.data.tolist() == narrow_made.data.tolist()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"model": {}}', '{"model": {"vocab": 3}}'])
def test_what_is_no_tokenizer(tmp_path, content):
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(UserError, match=r"t\.json: is not a tokenizer\.json"):
        open_tokenizer(tmp_path / "t.json", "", "<e>")


def test_a_missing_end_of_text_lists_the_added_tokens(tiny_tokenizer):
    with pytest.raises(UserError, match=r"has no token '</s>' for tokenizer.end_of_text.*<\|endoftext\|>, <\|user\|>"):
        open_tokenizer(tiny_tokenizer, "", "</s>")


def test_truncation_and_padding_of_the_file_are_off(tmp_path, tiny_tokenizer):
    other = Tokenizer.from_file(str(tiny_tokenizer))
    other.enable_truncation(3)
    other.enable_padding(length=10)
    path = tmp_path / "t.json"
    other.save(str(path))
    encoder = load_encoder(open_tokenizer(path, sha256_of(path)[1], "<|endoftext|>"))
    _, counts = encode(encoder, ["a much longer text than three tokens", "a"], END, U2)
    assert counts[0] > 10
    assert counts[1] == 2


def test_the_bytes_of_the_file_count_and_not_its_path(tmp_path, tokenizer, encoder):
    path = tmp_path / "t.json"
    path.write_bytes(tokenizer.path.read_bytes())
    copy = replace(tokenizer, path=path)
    load_encoder(copy)
    changed = json.loads(path.read_bytes())
    changed["model"]["merges"] = changed["model"]["merges"][:10]
    write(path, changed)
    load_encoder.cache_clear()
    with pytest.raises(UserError, match=r"t\.json: the tokenizer has changed"):
        load_encoder(copy)
    other = load_encoder(replace(copy, sha256=sha256_of(path)[1]))
    assert len(other.encode("function").ids) > len(encoder.encode("function").ids)
    path.unlink()
    with pytest.raises(UserError, match=r"t\.json: cannot be read"):
        load_encoder(copy)


def trained(kind):
    """A tokenizer of another kind, whose model has `</s>` (id 0) and `<unk>` (1) in its vocabulary."""
    special = ["</s>", "<unk>"]
    if kind == "unigram":
        made = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=special, unk_token="<unk>", show_progress=False)
    elif kind == "words":
        made = Tokenizer(models.WordLevel(unk_token="<unk>"))
        trainer = trainers.WordLevelTrainer(special_tokens=special, show_progress=False)
    else:
        made = Tokenizer(models.BPE(unk_token="<unk>"))
        trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.train_from_iterator(["a plain text of plain words </p> <s> and a list of such texts"] * 9, trainer)
    data = json.loads(made.to_str())
    if kind == "merges":
        data["model"]["vocab"]["</"] = len(data["model"]["vocab"])
        data["model"]["vocab"]["s>"] = len(data["model"]["vocab"])
        data["model"]["merges"] = [["<", "/"], ["s", ">"], ["</", "s>"], *data["model"]["merges"]]
        data["model"]["vocab"] = {name: i for i, name in enumerate(data["model"]["vocab"])}
    return data


@pytest.mark.parametrize("kind", ["unigram", "words", "merges"])
@pytest.mark.parametrize("added", [True, False])
def test_a_control_token_in_the_models_vocabulary_is_not_found_there(tmp_path, kind, added):
    data = trained(kind)
    if not added:
        data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] != "</s>"]
    path = write(tmp_path / "t.json", data)
    plain = Tokenizer.from_file(str(path))
    plain.encode_special_tokens = True
    assert 0 in plain.encode("plain </s> text").ids, "the model by itself would make a control id"
    encoder = load_encoder(open_tokenizer(path, sha256_of(path)[1], "</s>"))
    ids, _ = encode(encoder, ["plain </s> text", "a list of words", "\u4e00"], 0, U2)
    assert (ids == 0).sum() == 3
    cuts = np.flatnonzero(ids == 0)
    assert ids[cuts[0] + 1 : cuts[1]].tolist() == plain.encode("a list of words").ids
    assert ids[cuts[1] + 1 : cuts[2]].tolist() == plain.encode("\u4e00").ids


def test_the_recipe_follows_the_bytes(tokenizer):
    base = stage(tokenizer).recipe
    assert stage(replace(tokenizer, path=tokenizer.path / "elsewhere")).recipe.digest == base.digest
    others = [
        stage(replace(tokenizer, sha256="0")).recipe,
        stage(replace(tokenizer, end_of_text=1)).recipe,
        Tokenize("web", "ab", "bb", tokenizer).recipe,
        Tokenize("web", "aa", "bc", tokenizer).recipe,
    ]
    assert len({base.digest, *(r.digest for r in others)}) == 5


def test_locate(tmp_path, tiny_tokenizer, tokenizer):
    spec = TokenizerSpec(file=tiny_tokenizer.name, end_of_text="<|endoftext|>")
    found = locate_tokenizer(spec, tiny_tokenizer.parent, tmp_path)
    assert found == TokenizerFile(tiny_tokenizer, hashlib.sha256(tiny_tokenizer.read_bytes()).hexdigest(), 0, 500)
    right = spec.model_copy(update={"sha256": tokenizer.sha256})
    assert locate_tokenizer(right, tiny_tokenizer.parent, tmp_path) == found
    with pytest.raises(UserError, match="has the sha256 .* but the corpus spec asks for 00"):
        locate_tokenizer(spec.model_copy(update={"sha256": "00"}), tiny_tokenizer.parent, tmp_path)
    with pytest.raises(UserError, match=r"does not exist; mend tokenizer\.file"):
        locate_tokenizer(spec, tmp_path, tmp_path)
    with pytest.raises(UserError, match="'no-such-package-here' is not installed"):
        locate_tokenizer(spec.model_copy(update={"package": "no-such-package-here"}), tmp_path, tmp_path)
    with pytest.raises(UserError, match="'pytest' has no file"):
        locate_tokenizer(spec.model_copy(update={"package": "pytest"}), tmp_path, tmp_path)
