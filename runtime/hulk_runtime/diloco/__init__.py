"""DiLoCo for any model whose optimizer is torch's: replicas train apart, and pieces of them come together in turn.

context        what a script enters: counts the optimizer's steps, begins and merges
settings       how often, in how many fragments, how late, how exact: as a script says, or its job
fragments      parameters -> fragments of about equal size
fragment       the parameters of one: where all replicas began, its outer gradient, the outer step
outer_step     Nesterov's momentum on a flat vector, or any of torch's optimizers
replicas       which ranks hold the same parameters; what they agree on before they begin
ddp_apart      what sums gradients over all replicas in every step does so inside a region meanwhile
warmup         gradients of the first steps, summed in each of them
sums           outer gradients over the replicas: exact, by planned flows, or as quantised payloads
state          what a checkpoint holds
in_lightning   what Lightning's Trainer calls
"""
