"""hulk.DiLoCo: over gloo worlds what one process computes by the papers' equations; what cannot be is refused."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import hulk
import numpy as np
import pytest
import torch
from hulk_lab.builds import python
from hulk_runtime.diloco.replicas import digest
from hulk_runtime.diloco.settings import Job
from test_wan_training import TWO, wan

SCRIPT = str(Path(__file__).with_name("diloco_script.py"))
STREAMED = {"mode": "local", "innerSteps": 6, "outerLearningRate": 0.5, "outerMomentum": 0.25, "fragments": 3}


def run(job: Any, document: dict[str, Any], *kinds: str) -> None:
    """Every rank says of every kind that it is right."""
    for rank in job.run_ranks(document, SCRIPT, ",".join(kinds)):
        for kind in kinds:
            assert f"{kind} is right" in rank.output


def test_two_replicas_are_what_the_papers_write_down(job, make_plan) -> None:
    run(job, make_plan((1, 1)), "plain", "first_ranks_start", "streaming", "given_modules_and_optimizer")
    run(job, make_plan((1, 1)), "ddp", "loop_of_the_runtime", "warmup", "warmup_by_a_closure")


def test_models_and_optimizers_of_all_kinds(job, make_plan) -> None:
    run(job, make_plan((1, 1)), "frozen_and_groups", "closures", "differing", "goes_on_meanwhile")


def test_shards_sync_with_those_of_other_replicas(job, make_plan) -> None:
    run(job, make_plan((1, 1, 1, 1)), "sharded", "sharded_state")


def test_quantised_outer_gradients_arrive_over_many_rounds(job, make_plan) -> None:
    run(job, make_plan((1, 1, 1)), "quantised", "compressed", "streaming")


def test_a_run_goes_on_from_its_state_and_a_replica_from_the_others(job, make_plan) -> None:
    run(job, make_plan((1, 1)), "resumed", "one_restarts", "exceptions")


def test_shards_sync_over_planned_flows(job, make_plan) -> None:
    workers = [{"node": f"node-{i}", "region": f"region-{i // 2}", "accelerators": 1} for i in range(4)]
    run(job, make_plan((1, 1, 1, 1), workers=workers, **wan(2, classes=TWO)), "sharded_planned")
    compressed = wan(2, classes=TWO, compression="int8")
    run(job, make_plan((1, 1, 1, 1), workers=workers, **compressed), "sharded_planned_int8")


def test_trainers_wrap_models_over_all_ranks(job, make_plan) -> None:
    workers = [{"node": f"node-{i}", "region": f"region-{i // 2}", "accelerators": 1} for i in range(4)]
    run(job, make_plan((1, 1, 1, 1), workers=workers), "ddp_of_regions")


def test_sums_go_over_planned_flows_compressed_as_planned(job, make_plan) -> None:
    run(job, make_plan((1, 1), **wan(2, classes=TWO, compression="int8")), "planned")
    run(job, make_plan((1, 1), **wan(2, classes=TWO, compression="int4")), "planned_int4")
    run(job, make_plan((1, 1), **wan(2, classes=TWO)), "planned_ddp")


def test_without_arguments_it_is_as_the_job_says(job, make_plan) -> None:
    run(job, make_plan((1, 1), sync={**STREAMED, "delaySteps": 2}), "of_the_job")


def test_a_job_has_as_many_fragments_as_a_script_has_layers_and_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan knows neither: the planner chose by what the job says of its model."""
    monkeypatch.setattr(Job, "here", classmethod(lambda cls: Job(20, 5, 7)))
    net = model(3)
    assert len(hulk.DiLoCo(net, sgd(net)).state_dict()["fragments"]) == 3
    assert len(hulk.DiLoCo(net, sgd(net), sync_every=2).state_dict()["fragments"]) == 2
    with pytest.raises(ValueError, match="delay 7 must be >= 0 and below sync_every, 7"):
        hulk.DiLoCo(net, sgd(net), sync_every=7, delay=7)


@pytest.mark.parametrize(
    ("name", "make", "num_made", "given", "left"),
    [
        ("a new one", torch.optim.AdamW, 0, {}, 7),
        ("resumed within the warm-up", torch.optim.AdamW, 5, {}, 2),
        ("resumed after it", torch.optim.AdamW, 20, {}, 0),
        ("steps are not counted", partial(torch.optim.SGD, momentum=0.9), 1, {}, 0),
        ("zeros to load into", partial(torch.optim.SGD, momentum=0.9), 0, {}, 7),
        ("as the script says", torch.optim.AdamW, 20, {"warmup": 7}, 7),
    ],
)
def test_a_script_that_resumes_by_itself_warms_up_for_what_is_left_of_the_job_s_warmup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, make, num_made, given, left
) -> None:
    monkeypatch.setattr(Job, "here", classmethod(lambda cls: Job(3, warmup=7)))
    net = model(1)
    before = make(net.parameters(), lr=0.1)
    for _ in range(num_made or 1):
        for one in net.parameters():
            one.grad = torch.ones_like(one) if num_made else torch.zeros_like(one)
        if num_made or name == "zeros to load into":
            before.step()
    optimizer = make(net.parameters(), lr=0.1)
    optimizer.load_state_dict(before.state_dict())
    with hulk.DiLoCo(net, optimizer, **given) as diloco:
        assert diloco.step == 7 - left
    assert capsys.readouterr().out == f"hulk: DiLoCo warms up for {left} of 7 steps\n"


def test_replicas_that_a_script_resumes_train_apart_at_once(job, make_plan) -> None:
    run(job, make_plan((1, 1), sync={**STREAMED, "warmupSteps": 7}), "resumed_without_a_state")


@pytest.mark.parametrize("compression", ["none", "int8"])
def test_others_hear_of_a_rank_that_fails(job, make_plan, compression: str) -> None:
    ranks = job.start_ranks(make_plan((1, 1, 1)), SCRIPT, "one_fails", compression)
    assert all(rank.wait() != 0 for rank in ranks)
    assert "KeyError" in ranks[0].output
    assert all("lost, and goes on alone" in rank.output for rank in ranks[1:])


@pytest.mark.whole
@pytest.mark.parametrize("trainer", ["hf", "lightning"])
def test_trainers_train_apart_by_a_callback(job, make_plan, tmp_path: Path, trainer: str) -> None:
    script = str(Path(__file__).with_name("diloco_trainers.py"))
    for rank in job.run_ranks(
        make_plan((1, 1)), script, str(python.build_packages("trainers")), trainer, str(tmp_path)
    ):
        assert f"{trainer} is right" in rank.output


def model(num_layers: int = 2) -> torch.nn.Module:
    return torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(num_layers)))


def sgd(net: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1)


def test_one_process_alone_takes_outer_steps() -> None:
    """Lookahead: with 0.5 and no momentum the parameters go back half of the way."""
    net = model(1)
    optimizer, start = sgd(net), net[0].weight.detach().clone()
    with hulk.DiLoCo(net, optimizer, sync_every=2, outer=hulk.Outer(0.5, 0.0)):
        for _ in range(2):
            net[0].weight.grad, net[0].bias.grad = torch.ones(3, 3), torch.ones(3)
            optimizer.step()
    torch.testing.assert_close(net[0].weight.detach(), start - 0.1)


def test_all_begin_where_the_model_is_when_the_context_is_entered() -> None:
    net = model(1)
    optimizer = sgd(net)
    diloco = hulk.DiLoCo(net, optimizer, sync_every=1, outer=hulk.Outer(0.5, 0.0))
    torch.nn.init.ones_(net[0].weight)
    with diloco:
        net[0].weight.grad = torch.ones(3, 3)
        optimizer.step()
    torch.testing.assert_close(net[0].weight.detach(), torch.full((3, 3), 0.95))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sync_every": 0}, "sync_every 0 must be >= 1"),
        ({"sync_every": 4, "fragments": 5}, "5 fragments: at least 1, at most sync_every, 4"),
        ({"fragments": 0}, "0 fragments"),
        ({"fragments": 3}, "3 fragments of a model with 2 layers: 0, 1"),
        ({"sync_every": 4, "delay": 4}, "delay 4 must be >= 0 and below sync_every, 4"),
        ({"mixing": 1.0}, "mixing 1.0 must be in"),
        ({"compression": "int2"}, "compression 'int2' must be one of none, bf16, int8, int4"),
        ({"warmup": -1}, "warmup of -1 steps must be >= 0"),
        ({"weight": 0.0}, "weight 0.0 must be > 0"),
        ({"fragments": []}, "0 fragments"),
        ({"outer": lambda parameters: None}, "makes NoneType, not one of torch's optimizers"),
        ({"sync_every": 7.5}, "sync_every 7.5 must be a whole number"),
        ({"sync_every": math.nan}, "sync_every nan must be a whole number"),
        ({"fragments": 2.0}, "fragments 2.0 must be a whole number"),
        ({"fragments": "2"}, "fragments '2' must be a whole number"),
        ({"delay": 1.5}, "delay 1.5 must be a whole number"),
        ({"warmup": 0.2}, "warmup 0.2 must be a whole number"),
        ({"outer": 0.7}, r"outer 0\.7 must be hulk\.Outer\(rate, momentum\), or a function"),
        ({"outer": (0.7, 0.9)}, r"outer \(0\.7, 0\.9\) must be hulk\.Outer\(rate, momentum\), or a function"),
    ],
)
def test_what_cannot_be_is_refused_with_the_numbers(settings: dict[str, Any], words: str) -> None:
    net = model()
    with pytest.raises(ValueError, match=words):
        hulk.DiLoCo(net, sgd(net), **settings)


def test_numpys_counts_are_whole_numbers() -> None:
    net = model()
    counts = {"sync_every": np.int64(4), "fragments": np.int32(2), "delay": np.uint8(1)}
    held = hulk.DiLoCo(net, sgd(net), **counts).state_dict()
    assert len(held["fragments"]) == 2


def test_an_outer_step_has_a_learning_rate_and_a_momentum() -> None:
    with pytest.raises(ValueError, match=r"learning rate 0\.0 must be > 0, momentum 0\.9"):
        hulk.Outer(0.0, 0.9)
    with pytest.raises(ValueError, match=r"momentum 1\.0 in \[0, 1\)"):
        hulk.Outer(0.7, 1.0)


def test_other_optimizers_are_refused() -> None:
    net, other = model(), model()
    with pytest.raises(ValueError, match="2 inner optimizers: DiLoCo counts the steps of one"):
        hulk.DiLoCo(net, [sgd(net), sgd(net)])
    with pytest.raises(ValueError, match="trains 4 parameters, of which the model has 0"):
        hulk.DiLoCo(net, sgd(other))
    with pytest.raises(ValueError, match="inner_optimizer is Sequential"):
        hulk.DiLoCo(net, net)
    with pytest.raises(ValueError, match=r"fragments of \[2, 2\] parameters: each of 4 must be in one"):
        hulk.DiLoCo(net, sgd(net), fragments=[net[0], net[0]])
    optimizer = sgd(net)
    with hulk.DiLoCo(net, optimizer), pytest.raises(ValueError, match="in a DiLoCo context already"):
        hulk.DiLoCo(net, optimizer).__enter__()


def test_parameters_that_thaw_are_found() -> None:
    net = model()
    net[1].requires_grad_(False)
    optimizer = sgd(net)
    diloco = hulk.DiLoCo(net, optimizer, sync_every=1)
    diloco.__enter__()
    net[1].requires_grad_(True)
    with pytest.raises(ValueError, match="has 4 parameters that require gradients, it had 2"):
        optimizer.step()


def test_states_of_another_model_are_refused() -> None:
    net, other = model(), model(3)
    saved = hulk.DiLoCo(other, sgd(other)).state_dict()
    with pytest.raises(ValueError, match=r"state of 6 parameters for 4: 2\.bias, 2\.weight"):
        hulk.DiLoCo(net, sgd(net)).load_state_dict(saved)
    with pytest.raises(ValueError, match="state of 1 fragments for 2"):
        hulk.DiLoCo(net, sgd(net), fragments=2).load_state_dict(saved)


def test_a_digest_is_of_every_bit_that_replicas_have_in_common() -> None:
    one, other = torch.zeros(5000), torch.zeros(5000)
    other[2500] = 1e-9
    held = [digest([tensor, {"velocity": tensor, "rates": [0.7]}]) for tensor in (one, one.clone())]
    assert held[0] == held[1] != digest([one, {"velocity": other, "rates": [0.7]}])
    assert held[0] != digest([one, {"velocity": one, "rates": [0.8]}])


def test_half_precision_parameters_have_wide_anchors() -> None:
    """Outer steps of a thousandth of a bf16's last digit add up."""
    net = torch.nn.Linear(1, 1, bias=False).bfloat16()
    torch.nn.init.ones_(net.weight)
    diloco = hulk.DiLoCo(net, sgd(net), outer=hulk.Outer(0.01, 0.0))
    assert diloco.state_dict()["fragments"][0]["global"]["weight"].dtype is torch.float32


def test_a_names_module_is_imported_when_it_is_used() -> None:
    assert set(dir(hulk)) >= {"DiLoCo", "Outer", "report"}
    assert callable(hulk.report)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hulk.nothing
