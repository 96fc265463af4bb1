"""What a spec asks for, as exact shares."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mixer.cells import CellTable
from mixer.domains import Domains, asked_shares, resolve_domains
from mixer.plan import Supply
from mixer.spec import MixtureSpec, load_mixture_spec
from mixer.weights import quality_curve, temperature
from stages.errors import UserError

Case = tuple[Domains, dict[str, Supply]]
Resolve = Callable[..., Case]
CELLS = {"books": 100, "c-c": 300, "c-py": 100, "law": 500, "misc": 900, "web": 4000}


def shares(case: Case, known: bool = True) -> list[dict[str, Fraction]]:
    """For every phase, the shares of the domains; without the supply when it is not `known`."""
    domains, supply = case
    tokens = {d: s.tokens for d, s in supply.items()} if known else None
    asked = asked_shares(domains, domains.spec.phases, domains.spec.budget, tokens)
    assert sum(length for _, length, _ in asked) == 1
    for _, _, given_shares in asked:
        assert sum(given_shares.values()) == 1
        assert list(given_shares) == sorted(given_shares)
    return [s for _, _, s in asked]


def fractions(**values: str) -> dict[str, Fraction]:
    return {name.replace("_", "-"): Fraction(value) for name, value in values.items()}


FOUR: dict[str, Any] = {
    "books": {"cells": ["books"], "epochs": "2"},
    "law": {"cells": "law", "tokens": 150},
    "misc": {"cells": ["misc"], "rest": True},
    "web": {"cells": ["web"], "weight": "0.4"},
}
HALVES: list[dict[str, Any]] = [{"name": "early", "share": "75%"}, {"name": "late", "share": "25%"}]


def test_the_four_asks_in_one_phase(resolve_case: Resolve) -> None:
    """Of 1000 tokens: two passes over 100 are 1/5, 150 tokens are 3/20, and 1 - 1/5 - 3/20 - 2/5 is left."""
    assert shares(resolve_case(CELLS, FOUR)) == [fractions(books="1/5", law="3/20", misc="1/4", web="2/5")]


def test_the_four_asks_in_two_phases(resolve_case: Resolve) -> None:
    """Amounts are spread evenly over the run, a phase's weights replace weights, and the rest takes what they leave."""
    case = resolve_case(CELLS, FOUR, phases=[HALVES[0], HALVES[1] | {"weights": {"web": "0.1"}}])
    early, late = shares(case)
    assert early == fractions(books="1/5", law="3/20", misc="1/4", web="2/5")
    assert late == fractions(books="1/5", law="3/20", misc="11/20", web="1/10")
    run = {d: early[d] * Fraction(3, 4) + late[d] * Fraction(1, 4) for d in early}
    assert (run["books"] * 1000, run["law"] * 1000) == (200, 150)


def test_a_weight_that_a_phase_leaves_out_is_none(resolve_case: Resolve) -> None:
    domains = {n: {"cells": n, "weight": "1/3"} for n in ("books", "law", "web")}
    phases = [HALVES[0], HALVES[1] | {"weights": {"web": "0.9", "law": "0.1"}}]
    assert shares(resolve_case(CELLS, domains, phases=phases))[1] == fractions(books="0", law="1/10", web="9/10")


def test_an_amended_run_asks_for_what_is_left_of_an_amount(resolve_case: Resolve) -> None:
    """With 120 of 200 tokens of the books and all of the law drawn, and 400 tokens to come."""
    domains, supply = resolve_case(CELLS, FOUR)
    tokens = {d: s.tokens for d, s in supply.items()}
    ((_, _, left),) = asked_shares(domains, (), 400, tokens, {"books": 120, "law": 160, "web": 9})
    assert left == fractions(books="1/5", law="0", misc="2/5", web="2/5")


def test_groups_in_groups(resolve_case: Resolve) -> None:
    """code is half of the run; python 3/5 of it; of the other 2/5 C has a quarter, and law the rest."""
    code = {
        "weight": "0.5",
        "domains": {
            "python": {"cells": "c-py", "weight": "0.6"},
            "other": {
                "rest": True,
                "domains": {"c": {"cells": "c-c", "weight": "25%"}, "law": FOUR["misc"] | {"cells": "law"}},
            },
        },
    }
    case = resolve_case(CELLS, {"code": code, "web": {"cells": ["web", "misc"], "rest": True}})
    assert shares(case) == [fractions(c="1/20", law="3/20", python="3/10", web="1/2")]
    assert [n.name for n in case[0].leaves] == ["c", "law", "python", "web"]
    assert [n.cells for n in case[0].leaves] == [("c-c",), ("law",), ("c-py",), ("misc", "web")]


def test_a_group_may_ask_for_amounts_and_weighs_its_members_inside(resolve_case: Resolve) -> None:
    """Half a pass over 400 + 100 tokens are 250 of 1000."""
    members = {n: {"cells": n, "weight": "0.5"} for n in ("books", "c-c", "c-py")[1:]}
    case = resolve_case(CELLS, {"code": {"epochs": "0.5", "domains": members}, "web": {"cells": "web", "rest": True}})
    assert shares(case) == [fractions(c_c="1/10", c_py="1/10", web="4/5")]


def test_each_makes_a_domain_of_every_cell(resolve_case: Resolve) -> None:
    domains = {"code": {"cells": "c-*", "each": True, "weight": "0.8"}, "web": {"cells": "web", "rest": True}}
    assert shares(resolve_case(CELLS, domains)) == [fractions(c_c="3/5", c_py="1/5", web="1/5")]
    domains["code"]["weights"] = "uniform"
    assert shares(resolve_case(CELLS, domains), known=False) == [fractions(c_c="2/5", c_py="2/5", web="1/5")]


def test_cells_by_name_glob_and_predicate(resolve_case: Resolve) -> None:
    columns = {"quality": {c: str(len(c)) for c in CELLS}, "kind": {c: "code" if "-" in c else "text" for c in CELLS}}
    domains = {
        "code": {"cells": [{"kind": "code"}], "weight": "0.2"},
        "good": {"cells": {"quality": ">= 4", "kind": "text"}, "weight": "0.3"},
        "web": {"cells": ["w*", "law"], "weight": "0.5"},
    }
    case = resolve_case(CELLS, domains, columns)
    chosen = {n.name: n.cells for n in case[0].leaves}
    assert chosen == {"code": ("c-c", "c-py"), "good": ("books", "misc"), "web": ("law", "web")}


def test_caps_are_inherited_from_the_group_and_the_mixture(resolve_case: Resolve) -> None:
    group = {
        "weight": "0.5",
        "max_epochs": "2",
        "domains": {
            "books": {"cells": "books", "weight": "0.5"},
            "own": {"cells": "law", "max_epochs": "3", "weight": "0.25"},
            "code": {"cells": "c-*", "each": True, "weight": "0.25"},
        },
    }
    domains = {"group": group, "web": {"cells": "web", "rest": True}}
    leaves = resolve_case(CELLS, domains, max_epochs="7")[0].leaves
    assert {n.name: n.max_epochs for n in leaves} == {"books": 2, "own": 3, "c-c": 2, "c-py": 2, "web": 7}


def test_a_strategy_of_a_group_keeps_to_the_cap_of_the_group(resolve_case: Resolve) -> None:
    """600 tokens, two passes at most: 200 of the 100 of c-py, the others of c-c."""
    code = {"cells": "c-*", "each": True, "weight": "0.6", "max_epochs": "2", "weights": "unimax"}
    case = resolve_case(CELLS, {"code": code, "web": {"cells": "web", "rest": True}})
    assert shares(case) == [fractions(c_c="2/5", c_py="1/5", web="2/5")]


@pytest.mark.parametrize("strategy", ["unimax", {"quality_curve": {"column": "quality"}}])
def test_a_group_of_which_nothing_is_asked_needs_no_budget(resolve_case: Resolve, strategy: Any) -> None:
    code = {"cells": "c-*", "each": True, "weight": "0", "weights": strategy}
    columns = {"quality": dict.fromkeys(CELLS, "1")}
    case = resolve_case(CELLS, {"code": code, "web": {"cells": "web", "rest": True}}, columns)
    assert shares(case) == [fractions(c_c="0", c_py="0", web="1")]


def test_strategies_over_the_domains_at_the_top(resolve_case: Resolve) -> None:
    cells = {"a": 10, "b": 1000}
    domains = {"a": {"cells": "a"}, "b": {"cells": "b"}}

    def by(weights: Any, **more: Any) -> dict[str, Fraction]:
        (found,) = shares(resolve_case(cells, domains, weights=weights, **more))
        return found

    assert by("proportional") == fractions(a="1/101", b="100/101")
    assert by("uniform") == fractions(a="1/2", b="1/2")
    assert by({"temperature": "2"}) == fractions(a="1/10001", b="10000/10001")
    assert by({"temperature": "0.5"}) == temperature(cells, t=Fraction(1, 2))
    assert by("unimax") == fractions(a="0.04", b="0.96")
    assert by({"unimax": {"max_epochs": 2}}) == fractions(a="0.02", b="0.98")
    assert by("unimax", max_epochs="3") == fractions(a="0.03", b="0.97")


def test_a_strategy_of_one_phase_weighs_the_leaves(resolve_case: Resolve) -> None:
    group = {"weight": "0.5", "domains": {n: {"cells": n, "weight": "0.5"} for n in ("c-c", "c-py")}}
    phases = [HALVES[0], HALVES[1] | {"weights": "proportional"}]
    case = resolve_case(CELLS, {"code": group, "books": {"cells": "books", "rest": True}}, phases=phases)
    assert shares(case) == [
        fractions(books="1/2", c_c="1/4", c_py="1/4"),
        fractions(books="1/5", c_c="3/5", c_py="1/5"),
    ]


def test_a_quality_curve_reads_its_column(resolve_case: Resolve) -> None:
    quality = {"books": "3", "law": "2", "misc": "1"}
    curve = {"quality_curve": {"column": "quality", "drop": "10%", "max_epochs": 5}}
    domains = {"all": {"cells": list(quality), "each": True, "weight": "1", "weights": curve}}
    columns = {"quality": {c: quality.get(c, "0") for c in CELLS}}
    expected = quality_curve(
        {c: CELLS[c] for c in quality},
        quality={c: Fraction(v) for c, v in quality.items()},
        budget=1000,
        max_epochs=Fraction(5),
        drop=Fraction(1, 10),
    )
    assert shares(resolve_case(CELLS, domains, columns)) == [expected]
    mixed = {"some": {"cells": ["books", "law"]}, "misc": {"cells": "misc"}}
    with pytest.raises(UserError, match=r"domains.some: its cells have 2 values of quality; a curve needs one each"):
        shares(resolve_case(CELLS, mixed, columns, weights=curve))


def write(folder: Path, **spec: Any) -> Path:
    base = {"mixture": "m", "cells": "cells.csv", "sequence_length": "10", "budget": "1000"}
    (folder / "spec.yaml").write_text(yaml.safe_dump(base | spec, sort_keys=False), encoding="utf-8")
    return folder / "spec.yaml"


def test_weights_from_a_file_at_the_top_and_in_a_phase(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("name,share,late\nbooks,0.25,1%\nweb,0.75,99%\n", encoding="utf-8")
    phases = [HALVES[0], HALVES[1] | {"weights": {"csv": "w.csv", "key": "name", "column": "late"}}]
    domains = {"books": {"cells": ["books"]}, "web": {"cells": ["web"]}}
    path = write(tmp_path, domains=domains, weights={"csv": "w.csv", "key": "name", "column": "share"}, phases=phases)
    spec = load_mixture_spec(path)
    (tmp_path / "w.csv").unlink()
    again = MixtureSpec.model_validate(json.loads(json.dumps(spec.model_dump(mode="json"))))
    for read in (spec, again):
        domains_of = resolve_domains(read, CellTable(tuple(CELLS), CELLS, {}))
        asked = asked_shares(domains_of, read.phases, read.budget, None)
        assert [s for _, _, s in asked] == [fractions(books="1/4", web="3/4"), fractions(books="0.01", web="0.99")]


def test_a_file_of_weights_that_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("cell,weight\nbooks,0.25\nweb,0.85\n", encoding="utf-8")
    two: dict[str, Any] = {"books": {"cells": ["books"]}, "web": {"cells": ["web"]}}

    def asked(**more: Any) -> Any:
        spec = load_mixture_spec(write(tmp_path, weights={"csv": "w.csv"}, **more))
        return asked_shares(resolve_domains(spec, CellTable(tuple(CELLS), CELLS, {})), spec.phases, 1000, None)

    with pytest.raises(UserError, match=r"mixture m: the weights sum to 1.1, not 1"):
        asked(domains=two)
    assert asked(domains=two, normalize=True)[0][2] == fractions(books="5/22", web="17/22")
    with pytest.raises(UserError, match=r"w.csv: no weight for law; add rows"):
        asked(domains=two | {"law": {"cells": ["law"]}})
    with pytest.raises(UserError, match=r"w.csv: weights for web, which are no cells here"):
        asked(domains={"books": two["books"]})
    with pytest.raises(UserError, match=r"nowhere.csv: no such file"):
        load_mixture_spec(write(tmp_path, domains=two, weights={"csv": "nowhere.csv"}))


ASK = {"cells": "web", "weight": "1"}


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        (ASK | {"tokens": 5}, "asks for weight and tokens; say one of weight, tokens, epochs and rest"),
        (ASK | {"epochs": "1", "rest": True}, "asks for weight and epochs and rest"),
        ({"weight": "1"}, "a domain has `cells`, a group has `domains`; say one of them"),
        (ASK | {"domains": {"x": ASK}}, "a domain has `cells`, a group has `domains`"),
        (ASK | {"weights": "uniform"}, "`weights` are for a group; say `each: true`"),
        ({"domains": {"x": ASK}, "each": True, "weight": "1"}, "`each` goes with `cells`"),
        (ASK | {"each": True, "min_share": "1%"}, "`min_share` is for a domain, not for a group"),
        (ASK | {"each": True, "weights": "temperature"}, "'temperature' is no strategy without settings"),
        (ASK | {"each": True, "weights": {"quality_curve": {}}}, "quality_curve needs its column"),
        ({"domains": {"x": ASK}, "weight": "1", "weights": "uniform"}, "some say themselves what they ask for"),
    ],
)
def test_a_domain_that_is_not_clear_is_refused(domain: dict[str, Any], words: str, resolve_case: Resolve) -> None:
    with pytest.raises(ValidationError) as raised:
        resolve_case(CELLS, {"d": domain})
    assert words in str(raised.value)


def test_asks_and_a_strategy_over_all_are_refused(resolve_case: Resolve) -> None:
    with pytest.raises(ValidationError, match="`weights` weigh all domains, and web says itself what it asks for"):
        resolve_case(CELLS, {"web": ASK, "law": {"cells": "law"}}, weights="uniform")
    both = {"name": "p", "share": "1", "weights": {"web": "1"}, "strategy": "uniform"}
    with pytest.raises(ValidationError, match="has `weights` by name and a `strategy`"):
        resolve_case(CELLS, {"web": ASK}, phases=[both])


def weighed(**weights: str) -> dict[str, Any]:
    return {name: {"cells": name, "weight": weight} for name, weight in weights.items()}


LAW: dict[str, Any] = {"cells": "law"}


@pytest.mark.parametrize(
    ("domains", "words"),
    [
        (
            {"a": ASK, "b": {"cells": "w*", "weight": "0"}},
            "the cell web is in domains.a and in domains.b; a cell has one domain",
        ),
        (
            {"g": {"weight": "1", "domains": {"a": ASK}}, "a": {"cells": "law", "weight": "0"}},
            "domains.g.domains.a and domains.a have one name; rename one",
        ),
        ({"web": {"cells": "law", "rest": True}, "g": {"cells": "web", "each": True, "weight": "0"}}, "have one name"),
        ({"a": {"cells": "wep", "weight": "1"}}, "domains.a.cells: no cell is named 'wep'; the nearest is 'web'"),
        (
            {"g": {"weight": "1", "domains": {"a": {"cells": "x*", "weight": "1"}}}},
            "domains.g.domains.a.cells: no cell",
        ),
        (
            {"g": {"weight": "1", "domains": {"a": LAW | {"tokens": 3}}}},
            "domains.g.domains.a asks for an amount; inside a group say a weight",
        ),
        ({"g": {"weight": "1", "domains": {"a": LAW | {"epochs": "3"}}}}, "asks for an amount"),
        ({"g": {"weight": "1", "domains": {"a": LAW}}}, "domains.g.domains.a asks for nothing; say weight or rest"),
        ({"a": LAW, "web": ASK}, "domains.a asks for nothing; say one of weight, tokens, epochs and rest"),
        (
            {"a": LAW | {"rest": True}, "b": {"cells": "web", "rest": True}},
            "a and b all ask for the rest; one can have it",
        ),
        (
            weighed(web="0.7", law="0.2"),
            "the weights of phase main sum to 0.9, not 1; mend them, or say `normalize: true`",
        ),
        (weighed(web="2/3", law="2/3"), "sum to 4/3 (1.33333333333), not 1"),
        (weighed(web="0", law="0"), "the weights of phase main are all zero"),
        (
            {"g": {"weight": "1", "domains": weighed(web="0.7", law="0.4")}},
            "the weights of domains.g sum to 1.1, not 1",
        ),
        (
            weighed(web="0.7", law="0.4") | {"m": {"cells": "misc", "rest": True}},
            "the weights of phase main sum to 1.1 and leave nothing for m",
        ),
        ({"a": LAW | {"tokens": 2000}, "b": {"cells": "web", "rest": True}}, "sum to 2 and leave nothing for b"),
    ],
)
def test_what_cannot_be_shared_out_is_said(domains: dict[str, Any], words: str, resolve_case: Resolve) -> None:
    with pytest.raises(UserError) as raised:
        shares(resolve_case(CELLS, domains))
    assert words in str(raised.value)


def test_the_shares_of_phases_sum_to_one_and_their_names_differ(resolve_case: Resolve) -> None:
    phases = [{"name": "early", "share": "0.8"}, {"name": "late", "share": "0.3"}]
    with pytest.raises(UserError, match=r"the shares of the phases sum to 1.1, not 1"):
        shares(resolve_case(CELLS, {"web": ASK}, phases=phases))
    case = resolve_case(CELLS, weighed(web="3", law="1"), phases=phases, normalize=True)
    asked = asked_shares(case[0], case[0].spec.phases, 1000, None)
    assert [(length, s["web"]) for _, length, s in asked] == [
        (Fraction(8, 11), Fraction(3, 4)),
        (Fraction(3, 11), Fraction(3, 4)),
    ]
    with pytest.raises(UserError, match="two phases have one name"):
        shares(resolve_case(CELLS, {"web": ASK}, phases=[HALVES[0], HALVES[1] | {"name": "early"}], normalize=True))


def test_a_phase_weighs_domains_at_the_top_that_ask_for_a_weight(resolve_case: Resolve) -> None:
    for name in ("books", "law", "misc"):
        phases = [{"name": "p", "share": "1", "weights": {name: "0.33", "web": "0.1"}}]
        with pytest.raises(UserError, match=f"phase p weighs {name}, which asks for tokens, epochs or rest"):
            shares(resolve_case(CELLS, FOUR, phases=phases))
    group = {"weight": "1", "domains": weighed(web="1")}
    with pytest.raises(ValidationError, match="p weighs 'web', which is no domain at the top; there are g"):
        resolve_case(CELLS, {"g": group}, phases=[{"name": "p", "share": "1", "weights": {"web": "1"}}])


@pytest.mark.parametrize(
    ("domains", "more", "what"),
    [
        (FOUR, {}, "domains.books.epochs"),
        ({"c": {"cells": "c-*", "each": True, "weight": "1"}}, {}, "domains.c: proportional"),
        ({"web": {"cells": "web"}}, {"weights": {"temperature": "0.3"}}, "weights: temperature"),
        ({"web": ASK}, {"phases": [{"name": "p", "share": "1", "weights": "unimax"}]}, "phase p: unimax"),
    ],
)
def test_what_needs_the_store_says_so_before_it_is_built(
    domains: dict[str, Any], more: dict[str, Any], what: str, resolve_case: Resolve
) -> None:
    case = resolve_case(CELLS, domains, **more)
    with pytest.raises(UserError) as raised:
        shares(case, known=False)
    assert str(raised.value).startswith(f"{what}: needs the token counts of the store; build it with `mixer build")
    shares(case)


def backwards(value: Any) -> Any:
    return {k: backwards(v) for k, v in reversed(value.items())} if isinstance(value, dict) else value


@given(seed=st.integers(0, 2**32), size=st.integers(1, 300))
@settings(max_examples=25, deadline=None)
def test_any_spec_means_the_same_in_another_order_and_from_a_manifest(
    seed: int, size: int, resolve_case: Resolve, random_spec: Callable[..., Any]
) -> None:
    cells, domains, phases = random_spec(seed, size)
    case = resolve_case(cells, domains, phases=phases, normalize=True)
    found = shares(case)
    assert (
        shares(resolve_case(cells, backwards(domains), phases=[backwards(p) for p in phases], normalize=True)) == found
    )
    spec = MixtureSpec.model_validate(json.loads(json.dumps(case[0].spec.model_dump(mode="json"))))
    assert spec == case[0].spec
    assert shares((resolve_domains(spec, case[0].table), case[1])) == found
    assert found[0].keys() == {n.name for n in case[0].leaves}
    if not phases:
        total = sum(Fraction(d["weight"]) for d in domains.values())
        for name in domains.keys() & found[0].keys():
            assert found[0][name] == Fraction(domains[name]["weight"]) / total
