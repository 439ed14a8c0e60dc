"""The closed form of a step, compiled: what searches evaluate hundreds of thousands of times a second.

`setting` turns a workload and a topology into arrays, `evaluate` prices a layout of them: `pipeline` times one replica,
`sync` the all-reduces.
"""
