"""A trial that fails leaves the others alone; a worker that ends early goes on from its checkpoints."""

import re
from functools import partial

import pytest
import torch
from hulk_runtime.checkpoints.signing import Owner
from hulk_runtime.errors import CheckpointError, ConfigurationError, FencedError
from hulk_runtime.job.environment import Checkpointing
from hulk_runtime.sharp import HostDevice, Model, Trial, train
from sharp_models import alone, blocks, failing, trial
from torch import nn

pytestmark = pytest.mark.usefixtures("one_thread")

GOOD = [trial("a", 16, 3, 6), trial("b", 24, 4, 7)]


def devices(number: int = 2, memory_bytes: int = 700_000) -> list[HostDevice]:
    return [HostDevice(memory_bytes, f"host-{i}") for i in range(number)]


def require_as_alone(outcomes, *, begin: int = 0) -> None:
    for each in GOOD:
        losses, parameters = alone(each, begin=begin)
        outcome = outcomes[each.name]
        assert (outcome.state, outcome.step, outcome.losses) == ("succeeded", each.num_steps, losses)
        assert all(torch.equal(outcome.parameters[key], value) for key, value in parameters.items())


@pytest.mark.parametrize(
    ("how", "reason"),
    [("diverges", r"DivergedError: loss is -?(inf|nan) in step 3"), ("raises", "OSError: the data are gone")],
)
@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_trial_that_fails_is_marked_and_the_others_go_on(number, how, reason):
    bad = Trial("bad", partial(failing, 3, how), 9)
    on = devices(number)
    outcomes = train([GOOD[0], bad, GOOD[1]], on)
    require_as_alone(outcomes)
    assert (outcomes["bad"].state, outcomes["bad"].step) == ("failed", 2)
    assert re.fullmatch(reason, outcomes["bad"].reason)
    assert [device.in_use_bytes() for device in on] == [0] * number


@pytest.mark.parametrize("number", [1, 2])
def test_a_layer_larger_than_any_device_fails_its_trial_with_the_numbers(number):
    on = devices(number)
    outcomes = train([GOOD[0], trial("wide", 80, 2, 3), GOOD[1]], on)
    require_as_alone(outcomes)
    assert (outcomes["wide"].state, outcomes["wide"].step) == ("failed", 0)
    assert re.search(
        r"trial wide: layer 1 \(Block, 207040 bytes of parameters\) is larger than device host-\d of 700000 bytes, "
        r"the smallest: .*\d+ bytes",
        outcomes["wide"].reason,
    )
    assert [device.in_use_bytes() for device in on] == [0] * number


class Askew(nn.Module):
    """A layer whose own code raises."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("shapes do not match")


def _no_model() -> Model:
    raise TypeError("make() got an unexpected keyword argument 'depht'")


def _raises() -> Model:
    good = blocks(16, 2)
    return Model([*good.layers[:2], Askew(), *good.layers[2:]], good.loss, good.optimizer, good.batches)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_no_model, "TypeError: make() got an unexpected keyword argument 'depht'"),
        (_raises, "RuntimeError: shapes do not match"),
    ],
)
def test_a_model_that_cannot_be_made_fails_its_trial_alone(make, reason):
    ended = []
    outcomes = train([Trial("bad", make, 3), *GOOD], devices(), ended=ended.append)
    require_as_alone(outcomes)
    assert (outcomes["bad"].state, outcomes["bad"].reason) == ("failed", reason)
    assert next(outcome.trial for outcome in ended) == "bad"
    assert {outcome.trial for outcome in ended} == {"a", "b", "bad"}


def test_when_no_trial_can_be_trained_all_are_said_to_have_failed():
    outcomes = train([trial("a", 80, 2, 3), trial("b", 90, 2, 3)], devices(), scheduler="exact")
    assert {name: outcome.state for name, outcome in outcomes.items()} == {"a": "failed", "b": "failed"}


def test_a_trials_end_is_told_while_others_go_on():
    """Whoever looks must not take a trial that has failed for one that runs."""
    told = []
    bad = Trial("bad", partial(failing, 2, "diverges"), 9)
    train(
        [bad, Trial("long", GOOD[0].make, 30)],
        devices(1),
        scheduler="fifo",  # by measured times either may come first on a busy machine
        report=lambda step: told.append((step.trial, step.step)),
        ended=lambda outcome: told.append((outcome.trial, outcome.state)),
    )
    assert told.index(("bad", "failed")) < told.index(("long", 30)) < told.index(("long", "succeeded"))


def test_an_exact_order_passes_over_a_trial_that_has_failed():
    few = [
        Trial("a", partial(blocks, 16, 1), 2),
        Trial("bad", partial(failing, 1, "diverges"), 2),
        trial("c", 16, 1, 2),
    ]
    outcomes = train(few, devices(2, 10**7), scheduler="exact")
    assert {name: outcome.state for name, outcome in outcomes.items()} == {
        "a": "succeeded",
        "bad": "failed",
        "c": "succeeded",
    }


def test_a_batch_larger_than_the_first_fails_its_trial():
    good = blocks(16, 2)

    def batches(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, targets = good.batches(step)
        return (inputs.repeat(200, 1), targets.repeat(200)) if step == 2 else (inputs, targets)

    large = Trial("large", lambda: Model(good.layers, good.loss, good.optimizer, batches), 4)
    outcomes = train([*GOOD, large], devices())
    require_as_alone(outcomes)
    assert outcomes["large"].state == "failed"
    assert (
        "the batch of step 2 has 102400 bytes, that of step 1, by which shards were cut, 512"
        in outcomes["large"].reason
    )


@pytest.mark.parametrize("number", [1, 2])
def test_a_layer_that_grows_fails_its_trial_alone(number):
    """It takes the memory of what is loaded for another trial meanwhile."""

    class Growing(nn.Module):
        num_calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.num_calls += 1
            return x + (x.repeat(1, 1, 1000).sum() * 0 if self.num_calls > 4 else 0)

    def growing() -> Model:
        good = blocks(16, 2)
        return Model([good.layers[0], Growing(), *good.layers[1:]], good.loss, good.optimizer, good.batches)

    outcomes = train([*GOOD, Trial("growing", growing, 8)], devices(number))
    require_as_alone(outcomes)
    assert outcomes["growing"].state == "failed"
    assert "bytes more do not fit beside" in outcomes["growing"].reason


def test_a_stopped_worker_goes_on_with_other_devices(tmp_path):
    """Stopped after some steps; the second attempt has one smaller device, so another cut."""
    checkpointing = Checkpointing(f"file://{tmp_path}", every_steps=2, num_kept=2)
    seen = []
    first = train(GOOD, devices(), report=seen.append, checkpointing=checkpointing, stop=lambda: len(seen) >= 5)
    assert {outcome.state for outcome in first.values()} == {"stopped"}
    second = train(GOOD, devices(1, 500_000), checkpointing=checkpointing, attempt=2)
    for each in GOOD:
        losses, parameters = alone(each)
        assert first[each.name].losses + second[each.name].losses == losses
        assert second[each.name].step == each.num_steps
        assert all(torch.equal(second[each.name].parameters[key], value) for key, value in parameters.items())


def test_more_steps_go_on_from_the_end_of_fewer(tmp_path):
    """As successive halving asks: some steps for all, more for some."""
    checkpointing = Checkpointing(f"file://{tmp_path}", every_steps=100, num_kept=1)
    train([Trial(t.name, t.make, 3, t.seed) for t in GOOD], devices(), checkpointing=checkpointing)
    outcomes = train(GOOD, devices(), checkpointing=checkpointing, attempt=2)
    require_as_alone(outcomes, begin=3)


def test_an_older_attempt_can_no_longer_save(tmp_path):
    checkpointing = Checkpointing(f"file://{tmp_path}", every_steps=1, num_kept=1)
    train([Trial("a", GOOD[0].make, 2, GOOD[0].seed)], devices(), checkpointing=checkpointing, attempt=2)
    with pytest.raises(FencedError, match="attempt 2 has begun"):
        train([GOOD[0]], devices(), checkpointing=checkpointing, attempt=1)


def test_a_store_that_fails_ends_the_run(tmp_path):
    checkpointing = Checkpointing(f"file://{tmp_path}", every_steps=1, num_kept=1)

    def lose_the_folder(_) -> None:
        folder = tmp_path / "a"
        if folder.is_dir():
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
            folder.write_text("no folder")

    with pytest.raises(CheckpointError, match="cannot"):
        train(GOOD, devices(), report=lose_the_folder, checkpointing=checkpointing)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    checkpointing = Checkpointing(f"file://{tmp_path}", every_steps=1, num_kept=1)
    train([Trial("a", partial(blocks, 16, 2), 1)], devices(), checkpointing=checkpointing)
    with pytest.raises(ConfigurationError, match=r"trial a: checkpoint state-.* is of another model"):
        train([Trial("a", partial(blocks, 24, 2), 2)], devices(), checkpointing=checkpointing, attempt=2)


def test_a_parameter_of_two_shards_is_refused():
    def tied() -> Model:
        model = blocks(16, 12)
        model.layers[-1][2].weight = model.layers[0].weight
        return model

    assert train([Trial("tied", tied, 1)], devices(1, 10**8))["tied"].state == "succeeded"
    outcome = train([Trial("tied", tied, 1)], devices(1, 400_000))["tied"]
    assert outcome.state == "failed"
    assert "layers 0 and 13 share a parameter of 800 numbers" in outcome.reason


def test_a_frozen_first_shard_trains_the_rest():
    def frozen() -> Model:
        model = blocks(24, 6)
        for layer in model.layers[:4]:
            for parameter in layer.parameters():
                parameter.requires_grad_(False)
        return model

    each = Trial("frozen", frozen, 3, seed=1)
    outcome = train([each], devices())["frozen"]
    losses, parameters = alone(each)
    assert outcome.losses == losses
    assert all(torch.equal(outcome.parameters[key], value) for key, value in parameters.items())


def test_layers_without_parameters_are_shards_too():
    def plain() -> Model:
        model = blocks(16, 2)
        return Model([*model.layers[:2], nn.GELU(), *model.layers[2:]], model.loss, model.optimizer, model.batches)

    each = Trial("plain", plain, 2, seed=3)
    assert train([each], devices(1, 330_000))["plain"].losses == alone(each)[0]


def test_a_trials_checkpoint_that_another_job_has_signed_is_refused(tmp_path):
    checkpointing = Checkpointing(f"file://{tmp_path}", every_steps=1, num_kept=1)
    ours, theirs = (
        Owner.of_job("team/sweep", uid, bytes(32), trusts_store=False, committed_step=0) for uid in ("u-1", "u-2")
    )
    train([Trial("a", GOOD[0].make, 1, GOOD[0].seed)], devices(), checkpointing=checkpointing, owner=theirs)
    with pytest.raises(CheckpointError, match="latest-00000001 is not signed by this job's secret"):
        train([GOOD[0]], devices(), checkpointing=checkpointing, attempt=2, owner=ours)
