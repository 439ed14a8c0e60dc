"""A loop of one's own with Hugging Face's accelerate."""

import socket

import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = torch.utils.data.TensorDataset(torch.randn(64, 8, generator=torch.Generator().manual_seed(0)))
model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=4))
for (batch,) in loader:
    optimizer.zero_grad()
    accelerator.backward(model(batch).square().mean())
    optimizer.step()
weights = sum(float(parameter.sum()) for parameter in model.parameters())
world, rank = accelerator.num_processes, accelerator.process_index
print(f"world={world} rank={rank} host={socket.gethostname()} weights={weights:.9f}\n", end="", flush=True)
accelerator.end_training()
