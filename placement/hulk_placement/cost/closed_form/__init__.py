"""The closed form of a step, compiled: what searches evaluate hundreds of thousands of times a second.

`setting` turns a workload and a topology into arrays (`arrays`), the crate `native/` prices a layout of them
(`closed_form`): `pipeline` times one replica, `sync` the all-reduces.
"""
