"""Spec files: no digit is lost, and every complaint has file, line and key."""

from fractions import Fraction

import pytest

from stages.corpus import CorpusSpec
from stages.errors import UserError
from stages.quantity import Amount, Share
from stages.specfile import Spec, load_spec, read_yaml

CORPUS = """\
corpus: demo
tokenizer:
  file: tokenizer.json
  end_of_text: <|endoftext|>
sources:
  web:
    licence: MIT
    read:
      format: jsonl
      path: web.jsonl
    filters:
      - gopher_quality
      - length:
          min_words: 3
"""


class Inner(Spec):
    size: Amount = 1


class Small(Spec):
    name: str
    share: Share = Fraction(1)
    flag: bool = False
    inner: dict[str, Inner] = {}
    parts: tuple[Inner, ...] = ()


@pytest.fixture
def load(tmp_path):
    def run(text, model=Small):
        path = tmp_path / "spec.yaml"
        path.write_text(text, encoding="utf-8")
        return load_spec(path, model)

    return run


@pytest.fixture
def complaint(load, tmp_path):
    """The complaint about a text, with the path of the file cut off each line."""

    def run(text, model=Small):
        with pytest.raises(UserError) as caught:
            load(text, model)
        lines = str(caught.value).splitlines()
        assert all(line.startswith(f"{tmp_path / 'spec.yaml'}:") for line in lines), lines
        return [line.removeprefix(f"{tmp_path / 'spec.yaml'}:") for line in lines]

    return run


def test_numbers_stay_text(load, tmp_path):
    spec = load("name: 007\nshare: 0.1\ninner: {a: {size: 9007.199254740993T}}\n")
    assert (spec.name, spec.share, spec.inner["a"].size) == ("007", Fraction(1, 10), 9007199254740993)
    data, _ = read_yaml(tmp_path / "spec.yaml")
    assert data == {"name": "007", "share": "0.1", "inner": {"a": {"size": "9007.199254740993T"}}}


@pytest.mark.parametrize("word", ["no", "on", "1e3", "0x10", "12:30:00", "2020-01-01", "1_000", ".inf"])
def test_only_true_false_and_null_are_words(load, word):
    assert load(f"name: {word}\n").name == word


def test_words(load, tmp_path):
    assert load("name: 'true'\nflag: true\n") == Small(name="true", flag=True)
    data, _ = read_yaml(tmp_path / "spec.yaml")
    assert data == {"name": "true", "flag": True}


def test_specs_do_not_change(load):
    with pytest.raises(ValueError, match="frozen"):
        load("name: a").name = "b"


def test_lines(load, tmp_path):
    load("name: a\ninner:\n  x:\n    size: 1\nparts:\n  - size: 2\n  -\n    size: 3\n")
    _, lines = read_yaml(tmp_path / "spec.yaml")
    assert lines[("inner", "x", "size")] == 4
    assert [lines[("parts", i, "size")] for i in (0, 1)] == [6, 8]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: a\nshares: 1\n", ["2: shares: unknown key; did you mean 'share'?"]),
        ("name: a\ninner:\n  x:\n    sise: 1\n", ["4: inner.x.sise: unknown key; did you mean 'size'?"]),
        ("name: a\nparts:\n  - size: 1\n  - zzz: 1\n", ["4: parts[1].zzz: unknown key; the keys here are size"]),
        ("share: 1\n", ["1: name: this key is missing"]),
        ("name: a\nname: b\n", ["2: name: this key is here twice"]),
        ("name: a\ninner:\n  x: {}\n  y: {}\n  x: {}\n", ["5: inner.x: this key is here twice"]),
        ("name: a\nparts: [{size: 1, size: 2}]\n", ["2: parts[0].size: this key is here twice"]),
        ("name: a\n? [b]\n: c\n", ["2: spec: a key here is not a plain word"]),
        ("- a\n", ["1: a spec is a mapping of keys; see `mixer schema`"]),
        ("", ["1: a spec is a mapping of keys; see `mixer schema`"]),
    ],
)
def test_complaints(complaint, text, said):
    assert complaint(text) == said


def test_every_mistake_is_listed(complaint):
    said = complaint("shares: 1\nshare: lots\nflag: perhaps\nparts:\n  - size: 1.5\n")
    assert [line.split(": ")[:2] for line in said] == [
        ["1", "name"],
        ["2", "share"],
        ["3", "flag"],
        ["5", "parts[0].size"],
        ["1", "shares"],
    ]


@pytest.mark.parametrize(
    "text", ["name: [\n", "name: a\n\tb: c\n", "name: a\n---\nname: b\n", "name: 'a\0'\n", "a: *b\n"]
)
def test_what_is_not_yaml(complaint, text):
    (said,) = complaint(text)
    assert "not valid YAML" in said


def test_an_alias_that_holds_itself(complaint):
    (said,) = complaint("name: &a [*a]\n")
    assert "alias" in said


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "spec.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(UserError, match=r"spec\.yaml: cannot be read"):
        load_spec(tmp_path / "spec.yaml", Small)
    with pytest.raises(UserError, match="cannot be read"):
        load_spec(tmp_path, Small)


def test_a_missing_file_has_a_near_one(tmp_path):
    (tmp_path / "wiki.yaml").touch()
    with pytest.raises(UserError, match=r"wikki\.yaml: no such spec file; did you mean .*wiki\.yaml"):
        load_spec(tmp_path / "wikki.yaml", Small)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("path: web.jsonl", "pth: web.jsonl", "10: sources.web.read.pth: unknown key; did you mean 'path'?"),
        ("licence:", "license:", "7: sources.web.license: unknown key; did you mean 'licence'?"),
        ("format: jsonl", "format: json", "8: sources.web.read: Input tag 'json'"),
        ("      path: web.jsonl\n", "", "8: sources.web.read: `path` is missing"),
        ("- gopher_quality", "- gopher_qualty", "12: sources.web.filters[0]: filter 'gopher_qualty' does not exist"),
        ("min_words: 3", "min_word: 3", "13: sources.web.filters[1]: filter length: unknown key 'min_word'"),
        ("min_words: 3", "min_words: few", "13: sources.web.filters[1]: filter length: min_words: Input"),
        ("- gopher_quality", "- length: {max_words: 9}", "6: sources.web: filters: length is listed 2 times"),
        ("  file: tokenizer.json\n", "", "2: tokenizer.file: this key is missing"),
        ("corpus: demo", "corpus: Demo Corpus", "1: corpus: 'Demo Corpus' is not a name"),
        ("  web:", "  Web:", "6: sources.Web: 'Web' is not a name"),
    ],
)
def test_complaints_inside_unions_and_filters(complaint, old, new, said):
    assert CORPUS.count(old) == 1
    lines = complaint(CORPUS.replace(old, new), CorpusSpec)
    assert any(line.startswith(said) for line in lines), lines


def test_a_corpus_spec_as_it_should_be(load):
    spec = load(CORPUS, CorpusSpec)
    assert [name for name, _ in spec.sources["web"].filters] == ["gopher_quality", "length"]
    assert spec.sources["web"].filters[1][1].min_words == 3
