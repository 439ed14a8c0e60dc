"""The plan that the operator wrote, as the inside of a pod reads it. Needs no torch.

`wire` reads the whole file; `flows` and `flows_document` hold the all-reduce between regions, `pipeline_schedule` the
order of a pipeline's blocks.
"""
