"""Orders of the blocks of a pipeline, found by search: which device computes what, when, and what crosses which link.

placement   one micro-batch's blocks, their devices, what they need, and transfers between them
shapes      ready-made placements: V, interleaved, wave, X, M, NN, K
links       transfers of a placement over links between devices
operations  blocks and transfers alike: what the searches order
memory      what one micro-batch holds of a device at least, and limits
timing      the earliest starts under given orders, and the check of every result
bounds      what no schedule is shorter than
packed      greedy schedules, found at once, and better rules for them (packing: their arrays)
exact       schedules of so many micro-batches, by constraint programming: proven, or the best with its bound
repetend    the repeating pattern with the shortest period
unrolled    a pattern, its warm-up and cool-down for any number of micro-batches
named       GPipe, 1F1B, interleaved and zero-bubble
search      all of these for so many seconds
found       what searches give back
wire        the order of every device's blocks as the ranks read it
"""
