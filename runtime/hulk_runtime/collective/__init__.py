"""All-reduce between regions: few connections, no rendezvous, flows as the plan says, the same bits on every rank.

`group.Collective` is what a program uses, `ddp` what torch's DDP does, `staging` what brings tensors of a GPU here.
Below them, each room knowing only those after it: `loop` and `drift`, `connections`, `reduction`, `planned`, `wire`.
`wire.frames` needs no torch.
"""
