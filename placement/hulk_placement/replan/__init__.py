"""Re-planning: a plan that is carried out, and the cluster as it is now -> whether to move to another plan, and why.

basis     what a plan was made of, to be kept with it
changes   what is different now: machines lost and added, links that drifted
starts    the plan as it could go on, and mended; where the search for another one begins
moving    what a move costs: the checkpoint over the links, the restart
decide    gain against cost, with hysteresis
replan    all of it
"""
