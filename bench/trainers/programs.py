"""Other projects' training loops as they come: `programs.py PROGRAM NUM_LAYERS COMPUTE_S`; prints as script.py does.

The model is that of script.py, on the same emulated accelerator. LoRA's adapters are a quarter of its bytes.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from bench.trainers.script import LEARNING_RATE, NUM_TIMED, NUM_WARMING, WIDTH, Layer, say_step, say_weights

NUM_STEPS, BATCH, LORA_RANK = NUM_WARMING + NUM_TIMED, 8, 64
LORA_BYTES = 2 * LORA_RANK * WIDTH * 4
"""Of a layer's adapters."""


class Steps:
    """Says how long each step took."""

    def __init__(self) -> None:
        self._number, self._started = 0, 0.0

    def begins(self) -> None:
        """A step, with its data at hand."""
        self._started = time.monotonic()

    def ends(self) -> None:
        """After the optimizer."""
        say_step(self._number, time.monotonic() - self._started)
        self._number += 1


class WithLoss(torch.nn.Module):
    """As transformers' Trainer wants a model."""

    def __init__(self, layers: torch.nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """The mean square of what comes out; `labels` are what tells the Trainer that there is a loss."""
        return {"loss": self.layers(x).square().mean()}


def layers(number: int, compute_s: float) -> torch.nn.Sequential:
    """The same on every rank."""
    torch.manual_seed(1)
    return torch.nn.Sequential(*(Layer(compute_s / 3 / number) for _ in range(number)))


def rows() -> torch.Tensor:
    """As many as all steps of all ranks read."""
    num_rows = NUM_STEPS * BATCH * int(os.environ["WORLD_SIZE"])
    return torch.randn(num_rows, WIDTH, generator=torch.Generator().manual_seed(2))


def lightning(model: torch.nn.Module) -> torch.nn.Module:
    """PyTorch Lightning with its DDP."""
    import lightning as pl

    class Module(pl.LightningModule):  # type: ignore[misc]  # of a package without types
        def __init__(self) -> None:
            super().__init__()
            self.model, self.steps = model, Steps()

        def training_step(self, batch: list[torch.Tensor], _: int) -> Any:
            return self.model(batch[0]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), LEARNING_RATE)

        def on_train_batch_start(self, *_: Any) -> None:
            self.steps.begins()

        def on_train_batch_end(self, *_: Any) -> None:
            self.steps.ends()

    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    world = int(os.environ["WORLD_SIZE"])
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        num_nodes=world,
        strategy="ddp",
        max_steps=NUM_STEPS,
        use_distributed_sampler=True,
        **quiet,
    )
    data = torch.utils.data.TensorDataset(rows())
    trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=BATCH))
    return model


def accelerate(model: torch.nn.Module) -> torch.nn.Module:
    """A loop with Hugging Face's accelerate."""
    from accelerate import Accelerator

    accelerator, steps = Accelerator(cpu=True), Steps()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows()), batch_size=BATCH)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    prepared, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for (x,) in loader:
        steps.begins()
        optimizer.zero_grad()
        accelerator.backward(prepared(x).square().mean())
        optimizer.step()
        steps.ends()
    return model


def transformers(model: torch.nn.Module) -> torch.nn.Module:
    """Hugging Face's Trainer."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Timed(TrainerCallback):  # type: ignore[misc]  # of a package without types
        steps = Steps()

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.steps.begins()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.steps.ends()

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=BATCH,
            max_steps=NUM_STEPS,
            optim="sgd",
            learning_rate=LEARNING_RATE,
            use_cpu=True,
            ddp_backend="gloo",
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        data = [{"x": row, "labels": torch.zeros(1)} for row in rows()]
        Trainer(model=WithLoss(model), args=arguments, train_dataset=data, callbacks=[Timed()]).train()
    return model


def peft(model: torch.nn.Module) -> torch.nn.Module:
    """The same, of a model whose LoRA adapters alone are trained."""
    from peft import LoraConfig, get_peft_model

    return transformers(get_peft_model(model, LoraConfig(r=LORA_RANK, target_modules=r"\d+")))


def fsdp_tensor(model: torch.nn.Module, *, is_alone: bool = False) -> torch.nn.Module:
    """FSDP2 over replicas and tensor parallelism inside a region, as torchtitan composes them.

    `is_alone`: replicas know nothing of each other.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    dist.init_process_group("gloo")
    num_regions = len(set(os.environ["REGIONS"].split(",")))
    shape = (num_regions, 1, dist.get_world_size() // num_regions)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp_replicate", "dp_shard", "tp"))
    styles = (ColwiseParallel, RowwiseParallel)
    parallelize_module(model, mesh["tp"], {name: styles[int(name) % 2]() for name, _ in model.named_children()})
    over = mesh["dp_shard"] if is_alone else mesh["dp_replicate", "dp_shard"]
    for layer in model.children():
        fully_shard(layer, mesh=over)
    fully_shard(model, mesh=over)
    optimizer, steps = torch.optim.SGD(model.parameters(), LEARNING_RATE), Steps()
    for x in batches(mesh["dp_replicate"].get_local_rank(), num_regions):
        steps.begins()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        steps.ends()
    return model


def batches(replica: int, num_replicas: int) -> Iterator[torch.Tensor]:
    """Of one replica."""
    mine = torch.split(rows(), BATCH)[replica::num_replicas]
    return iter(mine[:NUM_STEPS])


PROGRAMS: dict[str, Callable[[torch.nn.Module], torch.nn.Module]] = {
    "lightning": lightning,
    "accelerate": accelerate,
    "transformers": transformers,
    "peft-lora": peft,
    "fsdp-tensor": fsdp_tensor,
    "tensor": partial(fsdp_tensor, is_alone=True),
}


def main() -> None:
    """Train, and see that all ranks have the same weights, where all train one model."""
    name, num_layers, compute_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    os.environ |= {"NODE_RANK": os.environ["RANK"], "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}  # as in a pod
    trained = PROGRAMS[name](layers(num_layers, compute_s))
    if name == "tensor":
        dist.barrier()
        dist.destroy_process_group()
    else:
        say_weights([weights for weights in trained.parameters() if weights.requires_grad])


if __name__ == "__main__":
    main()
