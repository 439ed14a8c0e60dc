"""All-reduce between regions: few connections, no rendezvous, flows as the plan says, the same bits on every rank.

`group.Collective` is what a program uses, `ddp` what torch's DDP does. `plan`, `document` and `frames` need no torch.
"""
