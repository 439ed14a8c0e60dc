"""PyTorch Lightning, told what its users tell it: as many nodes as there are workers."""

import os
import socket

import lightning
import torch


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


data = torch.utils.data.TensorDataset(torch.randn(64, 8, generator=torch.Generator().manual_seed(0)))
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=1,
    num_nodes=int(os.environ["WORLD_SIZE"]),
    strategy="ddp",
    max_steps=4,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Model()
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=4))
weights = sum(float(parameter.sum()) for parameter in model.parameters())
world, rank = trainer.world_size, trainer.global_rank
print(f"world={world} rank={rank} host={socket.gethostname()} weights={weights:.9f}\n", end="", flush=True)
