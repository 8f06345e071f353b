from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from multislice_nb.errors import ParallelismError
from multislice_nb.sharding import Parallelism, parse_strategy

ways = st.integers(min_value=1, max_value=16)
triples = st.tuples(ways, ways, ways)
texts = st.text(alphabet="fsdptenorwayicn_+-=0123456789 ,", max_size=30)


def parallelism(ici: tuple[int, int, int], dcn: tuple[int, int, int]) -> Parallelism:
    """The parallelism with these degrees, in mesh axis order."""
    names = ("data", "fsdp", "tensor")
    inside = {f"ici_{name}": value for name, value in zip(names, ici, strict=True)}
    between = {f"dcn_{name}": value for name, value in zip(names, dcn, strict=True)}
    return Parallelism(**inside, **between)


@given(triples, triples)
def test_products_hold(ici: tuple[int, int, int], dcn: tuple[int, int, int]) -> None:
    """Degrees whose products match are accepted unchanged, and every count multiplies up."""
    asked = parallelism(ici, dcn)
    resolved = asked.resolve(math.prod(ici), math.prod(dcn))
    assert resolved == asked
    assert math.prod(resolved.mesh_shape) == resolved.device_count == math.prod(ici) * math.prod(dcn)
    assert resolved.batch_ways == resolved.device_count // (ici[2] * dcn[2])


@given(triples, triples, st.integers(0, 2), st.integers(0, 2))
def test_one_axis_each_is_inferred(
    ici: tuple[int, int, int], dcn: tuple[int, int, int], ici_axis: int, dcn_axis: int
) -> None:
    """-1 on one ICI axis and one DCN axis is inferred to exactly the value that was left out."""
    complete = parallelism(ici, dcn)
    open_ici = tuple(-1 if at == ici_axis else value for at, value in enumerate(ici))
    open_dcn = tuple(-1 if at == dcn_axis else value for at, value in enumerate(dcn))
    asked = parallelism(open_ici, open_dcn)  # type: ignore[arg-type]  # three stay three
    assert not asked.is_resolved
    assert asked.resolve(complete.chips_per_slice, complete.slices) == complete


@given(triples, triples)
def test_a_name_is_read_back(ici: tuple[int, int, int], dcn: tuple[int, int, int]) -> None:
    """The human name of any parallelism is read back as that parallelism."""
    assume(math.prod(ici) > 1 or math.prod(dcn) == 1)
    known = parallelism(ici, dcn)
    if math.prod(dcn) > 1 and math.prod(ici) == 1:
        return
    assert parse_strategy(known.name, known.chips_per_slice, known.slices) == known


@given(triples, st.integers(1, 600))
def test_a_wrong_product_names_what_would_fit(ici: tuple[int, int, int], chips: int) -> None:
    """A product that does not match is refused with both numbers, and every suggestion in it fits."""
    assume(math.prod(ici) != chips)
    with pytest.raises(ParallelismError) as caught:
        parallelism(ici, (1, 1, 1)).resolve(chips, 1)
    assert str(math.prod(ici)) in caught.value.what
    assert f"a slice has {chips} chip" in caught.value.what
    if caught.value.fix.startswith("Would fit"):
        for choice in caught.value.fix.partition(": ")[2].rstrip(".").split(", "):
            name, value = choice.removeprefix("or ").split()
            degrees = dict(zip(("ici_data", "ici_fsdp", "ici_tensor"), ici, strict=True))
            assert math.prod((degrees | {name: int(value)}).values()) == chips


@given(texts, st.integers(1, 64), st.integers(1, 8))
def test_any_text_is_a_strategy_or_our_error(text: str, chips: int, slices: int) -> None:
    """Whatever is typed gives a parallelism that fits, or a ParallelismError with advice."""
    try:
        found = parse_strategy(text, chips, slices)
    except ParallelismError as error:
        advice = error.fix
        assert advice
    else:
        assert (found.chips_per_slice, found.slices) == (chips, slices)


@pytest.mark.parametrize(
    ("text", "chips", "slices", "expected"),
    [
        ("fsdp", 4, 1, Parallelism(ici_fsdp=4)),
        ("4-way FSDP", 4, 1, Parallelism(ici_fsdp=4)),
        ("4-way tensor", 4, 1, Parallelism(ici_tensor=4)),
        ("2-way FSDP + 2-way tensor", 4, 1, Parallelism(ici_fsdp=2, ici_tensor=2)),
        ("fsdp+tensor", 4, 1, Parallelism(ici_fsdp=2, ici_tensor=2)),
        ("fsdp+tensor", 8, 2, Parallelism(ici_fsdp=4, ici_tensor=2, dcn_data=2)),
        ("tensor+fsdp", 8, 2, Parallelism(ici_fsdp=2, ici_tensor=4, dcn_data=2)),
        ("fsdp", 8, 2, Parallelism(ici_fsdp=8, dcn_data=2)),
        ("data parallelism", 8, 2, Parallelism(ici_data=8, dcn_data=2)),
        ("dp=2,tp", 8, 2, Parallelism(ici_data=2, ici_tensor=4, dcn_data=2)),
        ("8-way FSDP over ICI + 4-way FSDP over DCN", 8, 4, Parallelism(ici_fsdp=8, dcn_fsdp=4)),
        ("fsdp + fsdp over dcn", 8, 4, Parallelism(ici_fsdp=8, dcn_fsdp=4)),
        ("2-way data over DCN", 8, 2, Parallelism(ici_fsdp=8, dcn_data=2)),
        (
            "--ici_fsdp_parallelism=4 --dcn_data_parallelism=2",
            4,
            2,
            Parallelism(ici_fsdp=4, dcn_data=2),
        ),
        ("ici_fsdp=-1, dcn_data=-1", 4, 2, Parallelism(ici_fsdp=4, dcn_data=2)),
        ("unsharded", 1, 1, Parallelism()),
        ("unsharded", 1, 2, Parallelism(dcn_data=2)),
        ("unsharded + 2-way FSDP over DCN", 1, 2, Parallelism(dcn_fsdp=2)),
    ],
)
def test_names_people_use(text: str, chips: int, slices: int, expected: Parallelism) -> None:
    """The names of the overview, of MaxText's flags and everyday short forms mean what they say."""
    assert parse_strategy(text, chips, slices) == expected


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        ("tensr", "'tensr' is not a strategy", "Did you mean tensor?"),
        ("", "'' is not a strategy", "Axes are data, fsdp, tensor"),
        ("fsdp + fsdp", "names ici_fsdp twice", "Name each axis once."),
        ("2-way fsdp=4", "is not a strategy", "Axes are"),
        (
            "4-way FSDP",
            "ici_data 1 x ici_fsdp 4 x ici_tensor 1 = 4, but a slice has 8 chips.",
            "ici_data 2, or ici_fsdp 8, or ici_tensor 2",
        ),
        ("unsharded", "ici_fsdp 1 x ici_tensor 1 = 1, but a slice has 8 chips", "ici_fsdp 8"),
        ("3-way data over DCN", "= 3, but there are 2 slices.", "dcn_data 2"),
    ],
)
def test_refusals(text: str, what: str, fix: str) -> None:
    """What is no strategy, or does not fit, is refused with the reason and the way out."""
    with pytest.raises(ParallelismError) as caught:
        parse_strategy(text, 8, 2)
    assert what in caught.value.what
    assert fix in caught.value.fix


@pytest.mark.parametrize("value", [0, -2, 1.5, True, "2"])
def test_a_degree_is_a_whole_number(value: object) -> None:
    """A degree that is neither a positive whole number nor -1 is refused at once."""
    with pytest.raises(ParallelismError, match="ici_fsdp cannot be"):
        Parallelism(ici_fsdp=value)  # type: ignore[arg-type]  # the point of the test


def test_two_axes_cannot_be_inferred() -> None:
    """Two -1 on the same network are refused at once."""
    with pytest.raises(ParallelismError, match="ici_data and ici_fsdp are both -1"):
        Parallelism(ici_data=-1, ici_fsdp=-1)
    with pytest.raises(ParallelismError, match="leaves a degree to be inferred"):
        _ = Parallelism(ici_fsdp=-1).mesh_shape
