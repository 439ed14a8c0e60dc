"""Commands and resources by which a program would train apart from the others."""

import pytest
from hulk_operator.inputs.launch import launch_notes, refuse_other_accelerators, refuse_standalone
from hulk_operator.inputs.placement_constraints import UnusableJobError
from views import job


@pytest.mark.parametrize(
    ("command", "accelerators", "note"),
    [
        ("torchrun --standalone train.py", 1, "waits for the other workers"),
        ("bash -c torchrun --standalone train.py", 1, "waits for the other workers"),
        ("torchrun --nnodes=2 --nproc-per-node=4 train.py", 4, "--nnodes, --nproc-per-node win over"),
        ("python -m torch.distributed.run --rdzv_endpoint=head:1 train.py", 1, "--rdzv_endpoint win over"),
        ("python train.py", 8, "starts one process for a worker's 8 accelerators"),
        ("python train.py", 1, ""),
        ("torchrun train.py", 8, ""),
        ("hulk-launch train.py", 8, ""),
        ("python -m hulk_runtime.examples.gpt", 2, ""),
        ("accelerate launch train.py", 8, ""),
        ("sh -c cd /app && python train.py", 8, "starts one process for a worker's 8 accelerators"),
        ("/usr/bin/env python3 train.py", 2, "starts one process for a worker's 2 accelerators"),
        ("sh -c python prepare.py && torchrun train.py", 8, ""),
        ("./train.sh", 8, ""),
    ],
)
def test_a_command_that_finds_another_world_is_told(command: str, accelerators: int, note: str) -> None:
    container = {"name": "worker", "image": "hulk:0.1.0", "command": command.split()}
    one = job(workers={"max": 3, "acceleratorsPerWorker": accelerators}, template={"spec": {"containers": [container]}})
    notes = launch_notes(one.spec)
    assert [note in found for found in notes] == [True] * bool(note), notes


def test_a_template_with_another_number_of_accelerators_is_refused() -> None:
    resources = {"limits": {"nvidia.com/gpu": 8}}
    container = {"name": "worker", "image": "hulk:0.1.0", "resources": resources}
    one = job(template={"spec": {"containers": [container]}})
    with pytest.raises(UnusableJobError, match=r"ask for 8 nvidia\.com/gpu; a worker gets .* = 1"):
        refuse_other_accelerators(one.spec)
    same = job(workers={"max": 3, "acceleratorsPerWorker": 8}, template={"spec": {"containers": [container]}})
    refuse_other_accelerators(same.spec)


@pytest.mark.parametrize(
    ("command", "workers", "is_refused"),
    [
        ("torchrun --standalone train.py", 2, True),
        ("/usr/bin/torchrun --standalone --nnodes=1 train.py", 2, True),
        ("python3 -m torch.distributed.run --standalone train.py", 2, True),
        ("torchrun --nnodes=1 train.py", 2, True),
        ("torchrun --nproc-per-node 2 --nnodes 1:1 train.py", 2, True),
        ("torchrun --nnodes=10 train.py", 12, False),
        ("torchrun train.py --nnodes=1", 2, False),
        ("torchrun --standalone train.py", 1, False),
        ("torchrun train.py --standalone", 2, False),
        ("bash -c torchrun --standalone prepare.py && hulk-launch train.py", 2, False),
    ],
)
def test_a_torchrun_that_cannot_find_the_others_is_refused(command: str, workers: int, is_refused: bool) -> None:
    container = {"name": "worker", "image": "hulk:0.1.0", "command": command.split()}
    one = job(workers={"max": workers}, template={"spec": {"containers": [container]}})
    if is_refused:
        with pytest.raises(UnusableJobError, match="does not find the other workers: torchrun --") as refused:
            refuse_standalone(one.spec)
        assert refused.value.reason == "CommandStandsAlone"
    else:
        refuse_standalone(one.spec)
