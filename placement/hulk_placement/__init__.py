"""Pure planning: which machines train which model, in which order, and how long a step takes.

    workloads + topology --solve--> plans        (frozen data to frozen data; no Kubernetes, no clock, no I/O)

The public names live in `topology`, `workload`, `model`, `plan`, `solve`, `cost` and `wire`; `cost`, `ring` and
`search` are the rooms behind `solve`.
"""
