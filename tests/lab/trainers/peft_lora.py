"""Hugging Face's Trainer with peft: a small model's LoRA adapters alone are trained."""

import socket

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
tokens = torch.randint(0, 64, (64, 16), generator=torch.Generator().manual_seed(0))
base = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=16, vocab_size=64, n_positions=16))
model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["c_attn"]))
arguments = TrainingArguments(
    output_dir="/tmp/out",
    per_device_train_batch_size=4,
    max_steps=4,
    use_cpu=True,
    ddp_backend="gloo",
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=[{"input_ids": row, "labels": row} for row in tokens])
trainer.train()
weights = sum(float(parameter.sum()) for parameter in model.parameters() if parameter.requires_grad)
world, rank = trainer.args.world_size, trainer.args.process_index
print(f"world={world} rank={rank} host={socket.gethostname()} weights={weights:.9f}\n", end="", flush=True)
