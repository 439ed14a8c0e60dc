"""What a job may ask of its synchronisation, and what is refused."""

import pytest
from hulk_placement.sync import Rounds, Sync


def test_by_default_the_planner_chooses_and_nothing_is_compressed_left_out_or_read() -> None:
    assert Sync() == Sync("auto", inner_steps=50, compression="none", on_region_loss="restart", encryption="wan")


@pytest.mark.parametrize(("mode", "expected"), [("auto", True), ("ring", False), ("wan", True), ("local", True)])
def test_every_mode_but_the_ring_may_use_the_wan_collective(mode: str, expected: bool) -> None:
    assert Sync(mode=mode).may_use_wan is expected


@pytest.mark.parametrize(("mode", "expected"), [("auto", None), ("ring", None), ("wan", None), ("local", 7)])
def test_only_local_sgd_has_steps_between_two_sums(mode: str, expected: int | None) -> None:
    assert Sync(mode=mode, inner_steps=7).planned_inner_steps == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"mode": "hierarchical"}, "mode 'hierarchical'"),
        ({"inner_steps": 0}, "0 inner steps"),
        ({"inner_steps": 3, "rounds": Rounds(fragments=4)}, "4 fragments, merged 0 steps late, in rounds of 3 steps"),
        ({"inner_steps": 3, "rounds": Rounds(delay_steps=3)}, "1 fragments, merged 3 steps late, in rounds of 3 steps"),
        ({"compression": "zip"}, "compression 'zip'"),
        ({"on_region_loss": "ignore"}, "on region loss 'ignore'"),
        ({"encryption": "tls"}, "encryption 'tls'"),
        ({"mode": "ring", "compression": "bf16"}, "need another mode"),
        ({"mode": "ring", "on_region_loss": "continue"}, "need another mode"),
    ],
)
def test_what_no_plan_can_do_is_refused_with_the_value_in_the_message(fields: dict[str, object], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Sync(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"outer_learning_rate": 0.0}, r"outer learning rate 0\.0 must be > 0"),
        ({"outer_momentum": 1.0}, r"momentum 1\.0 must be in \[0, 1\)"),
        ({"fragments": 0}, "0 fragments must be >= 1"),
        ({"delay_steps": -1}, "-1 delay steps and 0 warmup steps >= 0"),
        ({"warmup_steps": -1}, "0 delay steps and -1 warmup steps >= 0"),
    ],
)
def test_rounds_are_what_an_outer_step_can_be(fields: dict[str, float], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Rounds(**fields)  # type: ignore[arg-type]
