"""One rank of the bundled GPT in every case of a folder: shards, tensor ranks, stages of both, in float64."""

import os
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from hulk_runtime.collective import init_process_group, replica_groups
from hulk_runtime.examples import gpt_divided
from hulk_runtime.examples.gpt_model import initialized
from hulk_runtime.examples.gpt_stages import gpt_layers
from hulk_runtime.job import environment
from hulk_runtime.plan.document import read
from hulk_runtime.plan.wire import Model, Plan
from hulk_runtime.training.layered_model import LayeredModel
from hulk_runtime.training.pipeline_stepper import StageStepper
from hulk_runtime.training.sharded_stepper import ShardedStepper
from pipeline_cases import given, keep

MODEL = Model(layers=2, hidden=16, heads=8, sequence_length=5, vocabulary=13, feed_forward=24)
DEEP = replace(MODEL, layers=6)
"""For more stages than the other one has layers."""
BATCH, STEPS, LEARNING_RATE = 21, 3, 0.05


class Tokens:
    """A task of drawn tokens."""

    def __init__(self, model):
        self._model = model

    learning_rate = LEARNING_RATE
    divided_layer = staticmethod(gpt_divided.divided_layer)
    parts_of = staticmethod(gpt_divided.parts_of)

    def whole(self):
        gpt = initialized(self._model).double()
        of = gpt_layers(gpt)
        return LayeredModel(gpt, of, (((0, "token.weight"), (len(of) - 1, "weight")),))

    def divided(self, mesh):
        return gpt_divided.divided(initialized(self._model).double(), mesh)

    def inputs(self, step, sequences):
        return (tokens(step)[sequences.start : sequences.stop, :-1],)

    def loss_of(self, step, outputs, sequences):
        targets = tokens(step)[sequences.start : sequences.stop, 1:]
        return torch.nn.functional.cross_entropy(outputs[0].flatten(0, 1), targets.flatten())


def tokens(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randint(MODEL.vocabulary, (BATCH, MODEL.sequence_length + 1), generator=generator)


def model_of(num_stages):
    return MODEL if num_stages <= MODEL.layers + 2 else DEEP


def train_stages(plan, world):
    stepper = StageStepper(plan, world, Tokens(model_of(plan.layout.pipeline)), 0, silence_s=120.0)
    stepper.alone()
    losses = [stepper.together(step, stop=False, save=False)[1].loss for step in range(1, STEPS + 1)]
    parameters = list(stepper.divided.gathered(stepper.optimizer.vector(0), stepper.names))
    stepper.pipeline.close()
    return {"losses": losses, "stage": dict(zip(stepper.names, parameters, strict=False))}


def train(here, plan, world):
    if plan.pipeline:
        return train_stages(plan, world)
    with replica_groups.connect(here, plan, world) as groups:
        stepper = ShardedStepper(plan, world, groups, Tokens(MODEL), 0)
        stepper.alone()
        losses = [stepper.together(step, stop=False, save=False)[1].loss for step in range(1, STEPS + 1)]
        state = {name: whole(values) for name, values in stepper.optimizer.state_dict().items()}
        names = [name for name, _ in stepper.names]
        gathered = list(stepper.divided.gathered(stepper.optimizer.vector(0), names))
    return {"losses": losses, "state": state, "gathered": gathered}


def whole(values):
    return (values.full_tensor() if hasattr(values, "full_tensor") else values).clone()


def main():
    folder = Path(sys.argv[1])
    here, device = environment.read(os.environ), torch.device("cpu")
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    world = init_process_group.introduce(here, "gloo", device)
    found = {}
    for name, document in given(folder).items():
        print(f"case {name} {time.monotonic():.1f} {time.process_time():.1f}", flush=True)
        found[name] = train(here, read(Plan, document), world)
    keep(folder, found)


if __name__ == "__main__":
    main()
