import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from mixer.build import load_mixture
from mixer.cells import CellTable
from mixer.domains import Asked, asked_shares, resolve_domains
from mixer.expect import Bound
from mixer.spec import MixtureSpec
from stages.errors import UserError
from stages.recipe import digest_of

BASE: dict[str, Any] = {
    "mixture": "m",
    "corpus": "corpus.yaml",
    "sequence_length": 10,
    "budget": 1000,
    "domains": {"web": {"cells": ["a"], "weight": "0.7"}, "code": {"cells": ["b"], "weight": "0.3"}},
}


def spec(**changes: Any) -> MixtureSpec:
    return MixtureSpec.model_validate(BASE | changes)


def weights(*texts: str, **more: Any) -> MixtureSpec:
    domains = {f"d{i}": {"cells": [f"c{i}"], "weight": text} for i, text in enumerate(texts)}
    return spec(domains=domains, **more)


def asked(spec: MixtureSpec) -> Asked:
    """What a spec asks for of cells that are named in it."""
    cells = tuple(sorted({str(cell) for domain in spec.domains.values() for cell in domain.cells}))
    domains = resolve_domains(spec, CellTable(cells, dict.fromkeys(cells, 0), {}))
    return asked_shares(domains, spec.phases, spec.budget, None)


def message(path: Path) -> str:
    with pytest.raises(UserError) as raised:
        load_mixture(path)
    return str(raised.value)


def digests(path: Path) -> list[str]:
    domains, corpus, _ = load_mixture(path)
    return [digest_of(s.model_dump(mode="json")) for s in (domains.spec, corpus)]


def line_of(path: Path, text: str) -> int:
    return next(i for i, line in enumerate(path.read_text().splitlines(), 1) if text in line)


def test_weights_are_the_decimals_that_somebody_wrote() -> None:
    assert set(asked(weights(*["0.1"] * 10))[0][2].values()) == {Fraction(1, 10)}
    mixed = weights("1/3", "33.5%", "0.33166666", "1e-8", normalize=True)
    written = {
        "d0": Fraction(1, 3),
        "d1": Fraction(335, 1000),
        "d2": Fraction(33166666, 10**8),
        "d3": Fraction(1, 10**8),
    }
    assert {name: domain.weight for name, domain in mixed.domains.items()} == written
    total = sum(written.values())
    assert total != 1
    assert asked(mixed)[0][2] == {name: weight / total for name, weight in written.items()}


@pytest.mark.parametrize("text", ["-0.1", "half", "0.1.2", "1/0", "", "nan", "٠.٥"])
def test_what_is_no_weight(text: str) -> None:
    with pytest.raises(ValueError, match="exact share"):
        weights(text)


def test_a_binary_float_is_no_weight() -> None:
    with pytest.raises(ValueError, match="exact share"):
        spec(domains={"web": {"cells": ["a"], "weight": 0.1}})


def test_a_sum_that_is_not_one_is_printed_exactly() -> None:
    with pytest.raises(UserError, match=r"the weights of phase main sum to 0\.99999999, not 1.*normalize: true"):
        asked(weights("0.5", "0.49999999"))
    with pytest.raises(UserError, match=r"sum to 4/3 \(1\.33333333333\), not 1"):
        asked(weights("1/3", "1"))
    with pytest.raises(UserError, match="all zero"):
        asked(weights("0", "0", normalize=True))


def test_phase_shares_must_sum_to_one_as_well() -> None:
    phases = [{"name": "one", "share": "60%"}, {"name": "two", "share": "30%"}]
    with pytest.raises(UserError, match=r"the shares of the phases sum to 0\.9, not 1"):
        asked(spec(phases=phases))
    assert [share for _, share, _ in asked(spec(phases=phases, normalize=True))] == [Fraction(2, 3), Fraction(1, 3)]


def test_a_phase_with_weights_leaves_the_other_domains_out_and_one_without_has_those_of_the_domains() -> None:
    phases: list[dict[str, Any]] = [{"name": "one", "share": "60%"}, {"name": "two", "share": "40%"}]
    phases[1]["weights"] = {"code": "1"}
    assert asked(spec(phases=phases)) == (
        ("one", Fraction(6, 10), {"code": Fraction(3, 10), "web": Fraction(7, 10)}),
        ("two", Fraction(4, 10), {"code": Fraction(1), "web": Fraction(0)}),
    )
    phases[1]["weights"] = {"code": "0.5"}
    with pytest.raises(UserError, match=r"the weights of phase two sum to 0\.5"):
        asked(spec(phases=phases))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"phases": [{"name": "a", "share": "1", "weights": {"wbe": "1"}}]}, "'wbe', which is no domain.*code, web"),
        ({"budget": 9}, "9 tokens are less than one sequence of 10"),
        ({"validation": "100%"}, "leaves nothing to train on"),
        ({"domains": {}}, "domains"),
        ({"domains": {"x": {"cells": [], "weight": "1"}}}, "cells"),
        ({"domains": {"X y": {"cells": ["a"], "weight": "1"}}}, "is not a name"),
        ({"mixture": "../evil"}, "is not a name"),
        ({"seed": -1}, "seed"),
        ({"sequence_length": 0}, "sequence_length"),
        ({"budget": "1.5"}, "not a whole number"),
        ({"on_shortfall": "ignore"}, "on_shortfall"),
    ],
)
def test_what_a_spec_may_not_say(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        spec(**changes)


def test_a_cell_has_one_domain() -> None:
    twice = {"x": {"cells": ["a"], "weight": "1"}, "y": {"cells": ["a"], "weight": "0"}}
    with pytest.raises(UserError, match=r"the cell a is in domains\.x and in domains\.y"):
        asked(spec(domains=twice))


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">= 50%", ["0.5", "0.6"], ["0.499999"]),
        ("> 50%", ["0.500001"], ["0.5", "0"]),
        ("<= 3", ["3", "0"], ["3.00001"]),
        ("<3", ["2.99"], ["3", "4"]),
        ("25% +- 0.1%", ["0.249", "0.251", "0.25"], ["0.2489", "0.2511"]),
        (">= 2M", ["2000000"], ["1999999"]),
        ("1/3 +- 0", ["1/3"], ["0.333"]),
    ],
)
def test_bounds(text: str, inside: list[str], outside: list[str]) -> None:
    found = spec(expect=[{"domain": "web", "tokens": text}]).expect[0].tokens
    assert isinstance(found, Bound)
    assert all(found.holds(Fraction(value)) for value in inside)
    assert not any(found.holds(Fraction(value)) for value in outside)


@pytest.mark.parametrize("text", ["50%", "== 3", ">= many", "3 +-", ">= -1", "=> 3"])
def test_what_is_no_bound(text: str) -> None:
    with pytest.raises(ValueError, match="bound|amount"):
        spec(expect=[{"domain": "web", "tokens": text}])


@pytest.mark.parametrize(
    "entry",
    [
        {"kept": ">= 1"},
        {"source": "a", "domain": "web", "tokens": ">= 1"},
        {"source": "a", "share": ">= 1"},
        {"domain": "web", "kept": ">= 1"},
        {"domain": "web"},
        {"domain": "web", "share": ">= 1", "epochs": ">= 1"},
    ],
)
def test_an_expectation_has_one_subject_and_one_fact(entry: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expectation is about|say exactly one"):
        spec(expect=[entry])


def test_an_expectation_is_called_by_its_name_or_by_what_it_says() -> None:
    entries = [{"domain": "web", "share": ">= 1%"}, {"name": "enough code", "source": "b", "tokens": "> 1K"}]
    assert [e.label for e in spec(expect=entries).expect] == ["domain web: share >= 1%", "enough code"]
    assert [e.fact for e in spec(expect=entries).expect] == ["share", "tokens"]


def test_an_unknown_key_is_named_with_file_line_and_nearest_key(
    tmp_path: Path, write_specs: Callable[..., Path]
) -> None:
    path = write_specs(tmp_path, sequence_lenght=5)
    line = line_of(path, "sequence_lenght")
    assert message(path) == f"{path}:{line}: sequence_lenght: unknown key; did you mean 'sequence_length'?"


def test_an_unknown_key_deep_inside_and_a_domain_that_asks_for_nothing(
    tmp_path: Path, write_specs: Callable[..., Path]
) -> None:
    path = write_specs(tmp_path, domains={"manual": {"wieght": "0.7", "weight": None}})
    line = line_of(path, "wieght")
    assert f"{path}:{line}: domains.manual.wieght: unknown key; did you mean 'weight'?" in message(path)
    path = write_specs(tmp_path, domains={"manual": {"weight": None}})
    assert "domains.manual asks for nothing; say one of weight, tokens, epochs and rest" in message(path)


def test_a_mistake_in_the_corpus_spec_names_that_file(tmp_path: Path, write_specs: Callable[..., Path]) -> None:
    path = write_specs(tmp_path, corpus={"sources": {"reference": {"license": "MIT"}}})
    corpus = tmp_path / "corpus.yaml"
    line = line_of(corpus, "license")
    assert f"{corpus}:{line}: sources.reference.license: unknown key; did you mean 'licence'?" in message(path)


def test_a_key_that_is_there_twice(tmp_path: Path, write_specs: Callable[..., Path]) -> None:
    path = write_specs(tmp_path)
    path.write_text(path.read_text() + "seed: 8\n")
    assert "seed: this key is here twice" in message(path)


def test_unknown_cells_and_subjects(tmp_path: Path, write_specs: Callable[..., Path]) -> None:
    path = write_specs(tmp_path, domains={"manual": {"cells": ["reference", "copys"]}})
    assert "domains.manual.cells: no cell is named 'copys'; the nearest is 'copies'" in message(path)
    path = write_specs(tmp_path, expect=[{"source": "copys", "kept": ">= 1%"}])
    assert "source copys: kept >= 1%: there is no 'copys'; there are copies, docstrings, reference" in message(path)
    path = write_specs(tmp_path, expect=[{"domain": "reference", "share": ">= 1%"}])
    assert "there is no 'reference'; there are docstrings, manual" in message(path)


def test_a_missing_spec_and_a_missing_corpus(tmp_path: Path, write_specs: Callable[..., Path]) -> None:
    path = write_specs(tmp_path)
    assert f"did you mean {path}?" in message(tmp_path / "mixtur.yaml")
    path = write_specs(tmp_path)
    path.write_text(path.read_text().replace("corpus.yaml", "nowhere.yaml"))
    assert "nowhere.yaml: no such spec file" in message(path)


def test_sums_are_checked_when_a_spec_is_loaded(tmp_path: Path, write_specs: Callable[..., Path]) -> None:
    path = write_specs(tmp_path, domains={"manual": {"weight": "0.6"}})
    assert "sum to 0.9, not 1" in message(path)
    scaled = load_mixture(write_specs(tmp_path, domains={"manual": {"weight": "0.6"}}, normalize=True))[0]
    assert asked_shares(scaled, (), 1000, None)[0][2] == {"docstrings": Fraction(1, 3), "manual": Fraction(2, 3)}


@pytest.mark.parametrize(
    "changes",
    [
        {"domains": {"manual": {"epochs": "1/2", "weight": None}}},
        {"domains": {"manual": {"each": True}}},
        {"domains": {"manual": {"weight": None}, "docstrings": {"weight": None}}, "weights": "proportional"},
        {"phases": [{"name": "only", "share": "1", "weights": "unimax"}]},
    ],
)
def test_sums_that_only_the_store_can_tell_are_left_to_the_build(
    changes: dict[str, Any], tmp_path: Path, write_specs: Callable[..., Path]
) -> None:
    domains = load_mixture(write_specs(tmp_path, **changes))[0]
    with pytest.raises(UserError, match="needs the token counts of the store"):
        asked_shares(domains, domains.spec.phases, domains.spec.budget, None)


def test_the_order_of_keys_leaves_no_trace_in_the_digest(tmp_path: Path, write_specs: Callable[..., Path]) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            keys = list(value)
            random.Random(3).shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        return value

    path = write_specs(tmp_path / "a")
    before = digests(path)
    other = tmp_path / "b"
    other.mkdir()
    for name in ("corpus.yaml", "mixture.yaml"):
        content = shuffled(yaml.load((tmp_path / "a" / name).read_text(), yaml.BaseLoader))
        (other / name).write_text(yaml.safe_dump(content, sort_keys=False))
    assert (other / "mixture.yaml").read_text() != path.read_text()
    assert digests(other / "mixture.yaml") == before


def test_a_spec_comes_back_from_the_json_that_a_manifest_holds() -> None:
    whole = spec(
        expect=[{"domain": "web", "share": "25% +- 0.1%"}],
        phases=[{"name": "p", "share": "1", "weights": {"web": "1/3", "code": "2/3"}}],
        validation="0.5%",
        max_epochs="1.5",
    )
    assert MixtureSpec.model_validate(whole.model_dump(mode="json")) == whole
