"""The trainers' own loops with DiLoCo, beside a loop by hand: `PACKAGES hf|lightning FOLDER`."""

import copy
import os
import sys
from typing import Any

import hulk
import torch
import torch.distributed as dist

sys.path.append(sys.argv[1])
SETTINGS = {"sync_every": 4, "fragments": 2, "delay": 1}
NUM_STEPS = 10


def vector(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in model.parameters()])


def expected(model: torch.nn.Module, batches: list[torch.Tensor]) -> torch.Tensor:
    """By hand, on this rank's batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hulk.DiLoCo(model, optimizer, **SETTINGS):
        for batch in batches:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    return vector(model)


def require_anchor(model: torch.nn.Module, diloco: hulk.DiLoCo, state: dict[str, Any]) -> None:
    """What is resumed begins where all replicas began."""
    assert diloco.step == state["step"] > 0
    named = {name: one for fragment in state["fragments"] for name, one in fragment["global"].items()}
    for name, one in model.named_parameters():
        assert torch.equal(one, named[f"body.{name}"]), name


class Data(torch.utils.data.Dataset):
    """Rows that differ."""

    def __len__(self) -> int:
        return 2 * NUM_STEPS

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        return {"x": torch.randn(3, generator=torch.Generator().manual_seed(number))}


def hf(folder: str) -> torch.Tensor:
    """Then another one resumes from its checkpoint of step 4, and a third ends with its best model."""
    from safetensors.torch import load_file
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            seen.append(x.detach().clone())
            return {"loss": self.body(x).square().mean()}

    def train(name: str, resume: str | None = None, **options: Any) -> Trainer:
        arguments = TrainingArguments(
            output_dir=os.path.join(folder, name),
            per_device_train_batch_size=1,
            max_steps=NUM_STEPS,
            use_cpu=True,
            ddp_backend="gloo",
            report_to=[],
            **{"save_steps": 4, **options},
            disable_tqdm=True,
            optim="sgd",
            learning_rate=0.1,
            lr_scheduler_type="constant",
            max_grad_norm=0.0,
            average_tokens_across_devices=False,
        )
        model = Model()
        trainer = Trainer(model=model, args=arguments, train_dataset=Data(), eval_dataset=Data())
        trainer.add_callback(hulk.hf.DiLoCoCallback(trainer, **SETTINGS))
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    seen: list[torch.Tensor] = []
    start = copy.deepcopy(Model().body)
    found = vector(train("first").model)
    torch.testing.assert_close(found, expected(start, seen))
    by_loss = {"eval_strategy": "steps", "metric_for_best_model": "loss", "label_names": ["x"]}
    best = train("best", save_steps=3, eval_steps=3, load_best_model_at_end=True, greater_is_better=True, **by_loss)
    assert best.state.best_model_checkpoint.endswith("checkpoint-3"), "where the loss was largest"
    for name, one in load_file(os.path.join(best.state.best_model_checkpoint, "model.safetensors")).items():
        assert torch.equal(best.model.state_dict()[name], one), name
    resumed = vector(train("resumed", os.path.join(folder, "first", "checkpoint-4")).model)
    assert torch.equal(resumed, found)
    return resumed


def by_lightning(folder: str) -> torch.Tensor:
    """With the strategy ddp; then it resumes from its checkpoint of step 8."""
    import lightning
    from hulk.lightning import DiLoCoCallback

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            seen.append(batch["x"].detach().clone())
            return self.body(batch["x"]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(path: str | None) -> torch.nn.Module:
        class Watched(DiLoCoCallback):
            def on_train_start(self, *arguments: Any) -> None:
                super().on_train_start(*arguments)
                if path:
                    state = torch.load(path)["callbacks"][self.state_key]
                    assert any("under_way" in fragment for fragment in state["fragments"])
                    require_anchor(model.body, self.diloco, state)

        os.environ["NODE_RANK"] = os.environ["RANK"]  # as in a pod, or each would write the checkpoints
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            num_nodes=dist.get_world_size(),
            strategy="ddp",
            max_steps=NUM_STEPS,
            logger=False,
            callbacks=[Watched(**SETTINGS), lightning.pytorch.callbacks.ModelCheckpoint(folder, every_n_train_steps=4)],
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        model = Model()
        trainer.fit(model, torch.utils.data.DataLoader(Data(), batch_size=1, shuffle=False), ckpt_path=path)
        return model.body

    seen: list[torch.Tensor] = []
    start = copy.deepcopy(Model().body)
    found = vector(fit(None))
    torch.testing.assert_close(found, expected(start, seen))
    return vector(fit(f"{folder}/epoch=0-step=8.ckpt"))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    mine = {"hf": hf, "lightning": by_lightning}[sys.argv[2]](sys.argv[3])
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    assert all(torch.equal(one, mine) for one in everyone), "replicas differ"
    print(f"{sys.argv[2]} is right", flush=True)
