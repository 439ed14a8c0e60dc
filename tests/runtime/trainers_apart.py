"""Loops of trainers that know nothing of Hulk: `PACKAGES hf|lightning|pytorch_lightning|accelerate`.

Where they train apart, replicas differ within a round, as each has its own batches, and are the same at the end.
"""

import importlib
import os
import sys
from typing import Any

import torch
import torch.distributed as dist

sys.path.append(sys.argv[1])
NUM_STEPS = int(os.environ.get("STEPS", "8"))


class Data(torch.utils.data.Dataset):
    """Rows that differ."""

    def __len__(self) -> int:
        return dist.get_world_size() * NUM_STEPS

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        return {"x": torch.randn(3, generator=torch.Generator().manual_seed(number))}


def are_same(model: torch.nn.Module) -> bool:
    """Whether all ranks have these parameters."""
    mine = torch.cat([one.detach().flatten() for one in model.parameters()])
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return all(torch.equal(one, mine) for one in everyone)


def look(seen: list[bool], model: torch.nn.Module) -> None:
    """After each step."""
    seen.append(are_same(model))
    print(f"step {len(seen)} ended", flush=True)


def hf(seen: list[bool]) -> torch.nn.Module:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": super().forward(x).square().mean()}

    class Look(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            look(seen, model)

    arguments = TrainingArguments(
        output_dir="/tmp/unused",
        per_device_train_batch_size=1,
        max_steps=NUM_STEPS,
        use_cpu=True,
        ddp_backend="gloo",
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        optim="sgd",
        learning_rate=0.1,
    )
    model = Model(3, 3)
    Trainer(model=model, args=arguments, train_dataset=Data(), callbacks=[Look()]).train()
    return model


def by_lightning(seen: list[bool]) -> torch.nn.Module:
    lightning = importlib.import_module(sys.argv[2])

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Linear(3, 3)

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            return self.body(batch["x"]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def on_train_batch_end(self, *_: Any) -> None:
            look(seen, self)

    os.environ["NODE_RANK"] = os.environ["RANK"]  # as in a pod
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        num_nodes=int(os.environ["WORLD_SIZE"]),
        strategy="ddp",
        max_steps=NUM_STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Model()
    trainer.fit(model, torch.utils.data.DataLoader(Data(), batch_size=1, shuffle=False))
    return model


def accelerate(seen: list[bool]) -> torch.nn.Module:
    from accelerate import Accelerator

    accelerator, model = Accelerator(cpu=True), torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    wrapped, optimizer, batches = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(Data()))
    for batch in batches:
        optimizer.zero_grad()
        accelerator.backward(wrapped(batch["x"]).square().mean())
        optimizer.step()
        look(seen, model)
    return model


if __name__ == "__main__":
    torch.manual_seed(0)
    seen: list[bool] = []
    trained = {"hf": hf, "accelerate": accelerate}.get(sys.argv[2], by_lightning)(seen)
    print(f"same {are_same(trained)} within {seen}", flush=True)
