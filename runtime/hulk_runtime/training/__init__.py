"""The training of one rank: the loop, optimizer updates, state, and what rank 0 reports of them.

loop                 the whole run: join, measure, resume, train, stop
stepper              one update of a whole model; `pipeline_stepper`: of a model in stages; `local_sgd`: outer steps
data_parallel        buckets of gradients, and the numbers that ranks exchange in each step; `bulletin`: in pipelines
optimizers           AdamW, SGD and Nesterov's momentum on flat vectors
layered_model        a model as a list of layers -> the stages of a plan
state                trained state as bytes; `pipeline_state`: of stages
preflight            measured compute seconds of each rank
region_loss          the ranks that are left share the batch anew
rank0_reporter       log lines, metrics and checkpoints of the job
metrics              every metric of a worker; `all_reduce_report`: all-reduces beside their predictions
progress_server      the HTTP server that the operator polls
"""
