"""Links that are not what the plan believes: all ranks change their shares at the same operation, to the better."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from collective_ranks import (
    LINKS,
    PATIENCE_S,
    PLAN,
    RATE,
    STARS,
    all_reduce,
    break_off,
    group,
    star,
    together,
    vectors,
)
from depth import num_examples
from hulk_runtime.collective.drift.agreement import ROUND, WINDOW, LinkRates
from hulk_runtime.collective.drift.cost_model import Clock
from hulk_runtime.collective.drift.estimate_update import judge
from hulk_runtime.collective.drift.flow_versions import Version, first, following
from hulk_runtime.collective.drift.link_estimates import MIN_BYTES, Beside, LinkEstimate, Seen, slots
from hulk_runtime.collective.drift.share_optimizer import best, play, seconds
from hulk_runtime.collective.group import Collective, Settings
from hulk_runtime.collective.reduction.handle import Both, Work
from hulk_runtime.collective.wire import bandwidth_meter
from hulk_runtime.errors import MembershipChangedError, RankLostError
from hulk_runtime.plan.flows import Alternative, CollectivePlan, Flow, Pair, SizeClass
from hypothesis import given, settings
from hypothesis import strategies as st

PACE = 0.97
MOST_ROUNDS = 25
NUM_BYTES = 1 << 20
NUM_VALUES = NUM_BYTES // 4
FEW_BYTES = NUM_BYTES // 4


def carried(
    plan: CollectivePlan, share_of: Callable[[Pair], float], queued: float = 0, short: float = 0
) -> list[float]:
    """The figures of links that carry a share of what the plan believes."""
    found = []
    for slot in slots(plan):
        found += [share_of(slot.link) * plan.links[slot.link].bytes_per_s * slot.share, 1.0, queued, short, 0.0, 0.0]
    return found


def after(figures: list[list[float]], plan: CollectivePlan = PLAN) -> tuple[Version, list[str]]:
    """The version after rounds with these figures, and what was said."""
    version, news = first(plan), []
    for each in figures:
        version, said = following(plan, version, each, {0: NUM_BYTES}, PACE)
        news += said
    return version, news


def clock(plan: CollectivePlan, rates: Mapping[Pair, float]) -> Clock:
    return Clock(plan, rates, NUM_BYTES, plan.classes[0].chunk_bytes)


def loads(flows: tuple[Flow, ...], link: Pair) -> float:
    return sum(flow.share for flow in flows if link in flow.links)


def test_shares_move_away_from_a_slow_link() -> None:
    version, news = after([carried(PLAN, lambda link: 0.5 if link == (0, 1) else PACE)])
    assert version.beliefs[0, 1].bytes_per_s == RATE / 2
    assert version.beliefs[1, 0].bytes_per_s == RATE
    flows = version.classes[0].flows
    assert loads(flows, (0, 1)) < 0.8 * loads(STARS, (0, 1))
    rates = {link: belief.bytes_per_s for link, belief in version.beliefs.items()}
    gain = seconds(clock(PLAN, rates), STARS) / seconds(clock(PLAN, rates), flows)
    assert gain > 1.1
    assert len(news) == 1


def test_an_alternative_of_the_plan_is_taken_while_its_link_is_slow() -> None:
    own, other = (star(0, 0.5), star(1, 0.5)), star(2, 1.0)
    plan = replace(PLAN, classes=(SizeClass(1 << 40, 1 << 15, own, (Alternative((0, 1), (other,)),)),))
    slow = carried(plan, lambda link: 0.1 if link == (0, 1) else PACE)
    version, _ = after([slow], plan)
    assert loads(version.classes[0].flows, (0, 1)) < 0.2
    fast = [carried(plan, lambda _, share=0.1 * 1.2**number: min(1.0, share)) for number in range(40)]  # type: ignore[misc]
    back, news = after([slow, *fast], plan)
    assert back.beliefs[0, 1].bytes_per_s > 0.8 * RATE
    assert loads(back.classes[0].flows, (0, 1)) > 0.4
    assert len(news) >= 2


@settings(max_examples=num_examples(50))
@given(st.lists(st.lists(st.floats(0.95, 1.05), min_size=6, max_size=6), min_size=1, max_size=8))
def test_noise_changes_nothing(noise: list[list[float]]) -> None:
    number = {link: at for at, link in enumerate(LINKS)}
    figures = [carried(PLAN, lambda link, each=each: PACE * each[number[link]], 0.1) for each in noise]  # type: ignore[misc]
    version, news = after(figures)
    assert version.classes == PLAN.classes
    assert not news


def test_it_does_not_flap() -> None:
    """A link between two rates: the shares change once, and stay."""
    swings = [carried(PLAN, lambda link, s=s: s if link == (0, 1) else PACE) for s in [0.5, 0.45, 0.5, 0.47] * 5]  # type: ignore[misc]
    _, news = after(swings)
    assert len(news) == 1


def test_what_was_not_measured_is_not_judged() -> None:
    silent = [0.0] * len(carried(PLAN, lambda _: 1.0))
    version, _ = after([silent] * 5)
    assert version.beliefs == first(PLAN).beliefs


def test_a_link_that_is_faster_is_found_by_raising_its_pace() -> None:
    belief, rounds = LinkEstimate.of(RATE / 2), 0
    while belief.bytes_per_s < 0.9 * RATE and rounds < 20:
        given_rate = PACE * belief.bytes_per_s * belief.boost
        belief = judge(belief, RATE / 2, PACE, Seen(min(given_rate, RATE)))
        rounds += 1
    assert belief.bytes_per_s == pytest.approx(RATE, rel=0.1)
    assert rounds <= 6


def test_trials_of_a_link_that_is_as_planned_become_rare_and_change_nothing() -> None:
    belief, trials = LinkEstimate.of(RATE), []
    for number in range(200):
        given_rate = PACE * belief.bytes_per_s * belief.boost
        belief = judge(belief, RATE, PACE, Seen(min(given_rate, RATE)))
        assert belief.bytes_per_s == pytest.approx(RATE, rel=0.05)
        trials += [number] if belief.boost > 1 else []
    assert 2 <= len(trials) <= 8


def test_short_windows_move_shares_only_when_they_stay_and_never_the_pace() -> None:
    short = carried(PLAN, lambda link: 0.3 if link == (0, 1) else PACE, short=1.0)
    clear = carried(PLAN, lambda _: PACE)
    once, _ = after([short, clear, short, clear])
    assert once.classes == PLAN.classes
    twice, news = after([short, short])
    assert twice.beliefs[0, 1].bytes_per_s == RATE
    assert twice.beliefs[0, 1].carries == pytest.approx(0.3 * RATE)
    assert len(news) == 1
    later, _ = after([short, short, clear])
    assert later.beliefs[0, 1].carries == RATE


def test_a_queue_puts_a_trial_off() -> None:
    belief = LinkEstimate.of(RATE)
    for _ in range(6):
        belief = judge(belief, RATE, PACE, Seen(PACE * RATE, has_queue=True))
    assert belief.boost == 1.0


@dataclass
class Way:
    """A link with a FIFO queue, round by round, that a foreign flow fills: it leaves us more the more we send."""

    part: float = 0.5
    """Of what is sent beside the foreign flow, that is what arrives; 1: there is no such flow."""
    rate: float = RATE
    queue_rounds: int = 0

    def seen(self, belief: LinkEstimate, num_rounds: int) -> list[LinkEstimate]:
        """What is believed after each round. A queue of our own drains slowly, and so is there one round longer."""
        found = []
        for _ in range(num_rounds):
            given_rate = PACE * belief.wanted(RATE)
            self.queue_rounds = 2 if given_rate > self.rate else self.queue_rounds - 1
            has_queue = self.part < 1 or self.queue_rounds > 0
            belief = judge(belief, RATE, PACE, Seen(min(self.part * given_rate, self.rate), has_queue))
            found.append(belief)
        return found


def test_beside_others_the_planned_pace_is_kept_while_that_brings_more() -> None:
    seen = Way().seen(LinkEstimate.of(RATE), 200)
    assert seen[8].beside is Beside.YES
    assert sum(belief.beside is Beside.YES for belief in seen) > 0.7 * 200
    assert all(belief.carries == pytest.approx(PACE * RATE / 2) for belief in seen if belief.beside is Beside.YES)
    alone = Way(1.0).seen(seen[8], 4)
    assert alone[0] == LinkEstimate.of(RATE)
    assert alone[-1].carries == RATE


def test_a_link_of_others_that_gives_no_more_is_tried_ever_less_often() -> None:
    belief, trials = LinkEstimate.of(RATE), []
    for number in range(400):
        belief = judge(belief, RATE, PACE, Seen(0.4 * RATE, has_queue=True))
        trials += [number] if belief.beside is Beside.TRIED else []
        assert belief.carries == pytest.approx(0.4 * RATE)
        assert belief.beside is not Beside.YES
    assert 3 <= len(trials) <= 12


def test_a_link_that_gives_less_than_before_beside_others_is_no_longer_pressed() -> None:
    belief = Way().seen(LinkEstimate.of(RATE), 9)[-1]
    assert belief.beside is Beside.YES
    belief = judge(belief, RATE, PACE, Seen(0.5 * belief.bytes_per_s, has_queue=True))
    assert belief.beside is Beside.NO


def test_a_slower_link_is_not_pressed() -> None:
    seen = Way(1.0, rate=RATE / 2).seen(LinkEstimate.of(RATE), 200)
    assert all(belief.beside is Beside.NO for belief in seen)
    assert seen[-1].bytes_per_s == pytest.approx(RATE / 2)


def by_load(version: Version, rates: Mapping[Pair, float]) -> list[float]:
    """The figures of links with these rates: of those that little crosses nothing is measured."""
    found: list[float] = []
    for slot in slots(PLAN):
        used = WINDOW * FEW_BYTES * loads(version.classes[0].flows, slot.link) >= MIN_BYTES
        given_rate = PACE * version.beliefs[slot.link].wanted(RATE)
        found += [min(given_rate, rates[slot.link]), float(used), 0.0, 0.0, 0.0, 0.0]
    return found


def play_rounds(version: Version, rates: Mapping[Pair, float], num_rounds: int) -> list[Version]:
    found = []
    for _ in range(num_rounds):
        version, _ = following(PLAN, version, by_load(version, rates), {0: FEW_BYTES}, PACE)
        found.append(version)
    return found


def test_a_link_that_was_given_up_is_used_again_when_it_is_healed() -> None:
    slow = {**dict.fromkeys(LINKS, RATE), (0, 1): RATE / 16}
    version = play_rounds(first(PLAN), slow, 6)[-1]
    assert loads(version.classes[0].flows, (0, 1)) < 0.1
    healed = play_rounds(version, dict.fromkeys(LINKS, RATE), 20)[-1]
    assert healed.beliefs[0, 1].carries > 0.9 * RATE
    assert loads(healed.classes[0].flows, (0, 1)) > 0.5


def test_a_link_that_stays_slow_is_tried_ever_less_often() -> None:
    slow = {**dict.fromkeys(LINKS, RATE), (0, 1): RATE / 16}
    tried = [version.beliefs[0, 1].carries > 0.9 * RATE for version in play_rounds(first(PLAN), slow, 400)[6:]]
    assert 1 <= sum(tried) <= 10


@given(
    st.lists(st.lists(st.floats(0.1, 9.0), min_size=4, max_size=4), min_size=1, max_size=6),
    st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4).filter(lambda mix: sum(mix) > 0.1),
)
def test_no_other_mix_is_better(rows: list[list[float]], mix: list[float]) -> None:
    def value(shares: list[float]) -> float:
        return max(sum(a * x for a, x in zip(row, shares, strict=True)) for row in rows)

    found = play(rows)
    assert sum(found) == pytest.approx(1)
    assert min(found) >= 0
    assert value(found) <= value([share / sum(mix) for share in mix]) * (1 + 1e-6)


def test_equal_links_keep_equal_stars() -> None:
    took_s, flows = best(clock(PLAN, dict.fromkeys(LINKS, RATE)), STARS)
    assert [flow.share for flow in flows] == pytest.approx([1 / 3] * 3)
    assert took_s == pytest.approx(seconds(clock(PLAN, dict.fromkeys(LINKS, RATE)), STARS))


def hobble(rank: Collective, target: int, most_bytes_per_s: float) -> None:
    """The way to a rank carries less from now on."""
    for channel in rank._peers[target].channels:
        channel.pace = partial(_at_most, channel.pace, most_bytes_per_s)  # type: ignore[method-assign]
        channel.pace(PACE * RATE)


def _at_most(pace: Callable[[float], None], most: float, bytes_per_s: float) -> None:
    pace(min(most, bytes_per_s))


def rounds(ranks: list[Collective], count: int) -> list[list[torch.Tensor]]:
    """So many rounds of all-reduces, every one with the same bits on all ranks; the last sums."""
    for seed in range(count * ROUND):
        mine = vectors(len(ranks), NUM_VALUES, seed=seed)
        wanted = sum(vector.double() for vector in mine)
        all_reduce(ranks, mine)
        assert all(torch.equal(vector, mine[0]) for vector in mine)
        assert (mine[0].double() - wanted).abs().max() < 1e-4
    return [mine]


def test_ranks_change_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback carries 32 KiB at once, so that a stretch must be long for the bytes in it to be counted within 10 %.

    A stretch in which the machine did other things is measured wrong: then one of the next rounds sets it right, and
    on a machine that is never idle it takes many.
    """
    monkeypatch.setattr(bandwidth_meter, "STRETCH_BYTES", 384 << 10)
    with group(PLAN) as ranks:
        hobble(ranks[0], 1, RATE / 4)
        for _ in range(MOST_ROUNDS):
            rounds(ranks, 2)
            believed = [rank.beliefs() for rank in ranks]
            flows = [rank._drift.size_class(NUM_BYTES).flows for rank in ranks if rank._drift is not None]
            assert believed[0] == believed[1] == believed[2]
            assert flows[0] == flows[1] == flows[2]
            if is_known(believed[0], RATE / 4):
                break
        assert is_known(believed[0], RATE / 4)
        assert believed[0][0, 1].planned_bytes_per_s == RATE
        assert flows[0] != STARS


def is_known(believed: Mapping[Pair, LinkRates], bytes_per_s: float) -> bool:
    """Whether the slow link is believed to carry what it does, and the others no less than they should."""
    slow = believed[0, 1]
    figures = (slow.bytes_per_s, slow.carried.bytes_per_s)
    others = (believed[link].bytes_per_s > 0.6 * RATE for link in LINKS if link != (0, 1))
    return figures == pytest.approx((bytes_per_s,) * 2, rel=0.3) and all(others)


def test_many_operations_at_once_change_at_the_same_one() -> None:
    """Begun without waiting: those that need a decision wait for it, in their order."""
    with group(PLAN) as ranks:
        hobble(ranks[2], 0, RATE / 4)
        together([rank.warm for rank in ranks])
        each = [vectors(3, NUM_VALUES // 4, seed=seed) for seed in range(3 * ROUND)]
        wanted = [sum(vector.double() for vector in mine) for mine in each]
        works = [rank.all_reduce(mine[number]) for mine in each for number, rank in enumerate(ranks)]
        for work in works:
            work.wait(60)
        for mine, total in zip(each, wanted, strict=True):
            assert all(torch.equal(vector, mine[0]) for vector in mine)
            assert (mine[0].double() - total).abs().max() < 1e-4
        assert ranks[0].beliefs() == ranks[1].beliefs()


def test_reports_tell_the_rate_of_each_link() -> None:
    with group(PLAN) as ranks:
        rounds(ranks, 1)
        reports = ranks[1].reports()
    assert len(reports) == ROUND
    assert all(report.num_bytes == NUM_BYTES for report in reports)
    assert 0.5 * RATE < reports[WINDOW - 1].links[0].bytes_per_s < 2 * RATE  # loopback's packets of 64 KiB are uneven


def begun(ranks: list[Collective], count: int) -> list[Work | Both]:
    """So many all-reduces of all ranks, not awaited; the last rank's last."""
    works = [rank.all_reduce(torch.zeros(NUM_VALUES // 16)) for _ in range(count) for rank in ranks]
    return works[-len(ranks) :]


def test_a_rank_that_leaves_ends_the_wait_for_a_decision() -> None:
    with group(PLAN, Settings(bound_s=2.0, connect_s=30)) as ranks:
        for work in begun(ranks, WINDOW):
            work.wait(60)
        waiting = begun(ranks[:2], ROUND)
        ranks[2].close()
        for work in waiting:
            with pytest.raises(RankLostError, match="rank 2 was lost: it left"):
                work.wait(60)


def test_a_rank_that_does_not_take_part_is_named_by_those_who_wait_for_a_decision() -> None:
    with group(PLAN, Settings(bound_s=2.0, connect_s=30)) as ranks:
        begun(ranks, WINDOW)
        waiting = begun(ranks[:2], ROUND)
        with pytest.raises(RankLostError, match="rank 2 was lost: it did not begin all-reduce"):
            waiting[0].wait(3.0)
        with pytest.raises(RankLostError, match="rank 2"):
            waiting[1].wait(60)


def test_leaving_right_after_the_last_sum_is_no_failure() -> None:
    """What was measured may still be under way: whoever leaves waits for it."""
    with group(PLAN) as ranks:
        for _ in range(3):
            for work in begun(ranks, WINDOW + 1):
                work.wait(60)
        together([rank.close for rank in ranks])


def test_links_are_followed_as_regions_are_lost_until_one_is_left() -> None:
    """Three regions, two, one: an all-reduce of one region takes no time, and has no link to follow."""
    regions = ((0, 1), (2,), (3,))
    classes = (SizeClass(1 << 40, 1 << 15, STARS),)
    plan = CollectivePlan(
        regions, {pair: replace(figures, bytes_per_s=1e9) for pair, figures in LINKS.items()}, classes
    )
    with group(replace(plan, on_region_loss="continue"), Settings(bound_s=2.0, connect_s=PATIENCE_S)) as ranks:
        for num_left, num_regions in ((4, 3), (3, 2), (2, 1)):
            left = ranks[:num_left]
            for rank in ranks[num_left : num_left + 1]:
                lose(rank, left)
            followed = follow_a_round(left)
            assert len(followed) == num_regions * (num_regions - 1)
            assert all(max(link) < num_regions for link in followed)


def lose(gone: Collective, left: list[Collective]) -> None:
    """The others go on."""
    works = [rank.all_reduce(torch.ones(10)) for rank in left]
    break_off(gone)
    for work in works:
        with pytest.raises(MembershipChangedError):
            work.wait(PATIENCE_S)
    together([rank.adopt for rank in left])


def follow_a_round(ranks: list[Collective]) -> set[Pair]:
    """The links that have carried something in a whole round and what follows from it; the same on every rank."""
    for _ in range(ROUND + 1):
        all_reduce(ranks, vectors(len(ranks), MIN_BYTES // 4))
    found = [{link for link, rates in rank.beliefs().items() if rates.carried.num_bytes} for rank in ranks]
    assert all(links == found[0] for links in found)
    return found[0]
