"""Executes a plan's schedule with torch: blocks of a pipeline on several ranks, in the planned order.

document    the schedule's JSON -> checked blocks and orders
flows       blocks -> what each needs of which, and between which devices
order       a schedule -> when every turn comes, or the refusal of one that would never end
actions     a schedule -> what each device does, one after the other
grid        ranks -> replica, device and tensor index, and their groups
batch       a global batch -> the samples of every micro-batch, and what they weigh
stages      a model -> the module of a stage, and the shape of what it hands on
sharding    what the shards of a stage on several devices have in common
passes      forward and backward passes of blocks; `split`: backward in two halves
transfers   messages between devices
sharing     what several ranks have -> the sum of its gradients
carrying    actions -> what they do to values
executor    all of these -> steps; its docstring shows how to use them
alone       a device's blocks without the other devices, to time them
log         what ranks did and when -> computing, transfers, bubbles
checkpoint  state -> torch.distributed.checkpoint and back, on any layout
"""
