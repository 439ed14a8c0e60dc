"""Every label, environment variable, port and path that the inside of a pod shares with the operator.

`hulk_operator.names` holds the same values for the outside. The two packages import nothing from each other: a pod
may run an image that is older or newer than the operator, and what they then disagree about is caught by the plan's
wire version (`hulk_runtime.plan.wire`).
"""

from typing import Final

# What the agent writes, and as whom.
API_VERSION: Final = "hulk.dev/v1alpha1"
AGENT_FIELD_MANAGER: Final = "hulk-agent"

# Rendezvous: torch's own variables.
ENV_RANK: Final = "RANK"
ENV_WORLD_SIZE: Final = "WORLD_SIZE"
ENV_LOCAL_RANK: Final = "LOCAL_RANK"
ENV_LOCAL_WORLD_SIZE: Final = "LOCAL_WORLD_SIZE"
ENV_GROUP_RANK: Final = "GROUP_RANK"
ENV_NODE_RANK: Final = "NODE_RANK"
ENV_MASTER_ADDR: Final = "MASTER_ADDR"
ENV_MASTER_PORT: Final = "MASTER_PORT"
ENV_PET_NNODES: Final = "PET_NNODES"
ENV_PET_NPROC_PER_NODE: Final = "PET_NPROC_PER_NODE"
ENV_PET_NODE_RANK: Final = "PET_NODE_RANK"
ENV_PET_MASTER_ADDR: Final = "PET_MASTER_ADDR"
ENV_PET_MASTER_PORT: Final = "PET_MASTER_PORT"
ENV_GLOO_INTERFACE: Final = "GLOO_SOCKET_IFNAME"
ENV_NCCL_INTERFACE: Final = "NCCL_SOCKET_IFNAME"
ENV_OMP_THREADS: Final = "OMP_NUM_THREADS"

# The job.
ENV_JOB: Final = "HULK_JOB"
ENV_JOB_UID: Final = "HULK_JOB_UID"
ENV_ATTEMPT: Final = "HULK_ATTEMPT"
ENV_WORKER: Final = "HULK_WORKER"
ENV_PLAN: Final = "HULK_PLAN"
ENV_GANG: Final = "HULK_GANG"
ENV_GRACE_SECONDS: Final = "HULK_GRACE_SECONDS"
ENV_END_SECONDS: Final = "HULK_END_SECONDS"  # for the ranks of the attempt before: they have nothing to save
ENV_METRICS_PORT: Final = "HULK_METRICS_PORT"
ENV_START_DIGEST: Final = "HULK_START_DIGEST"  # what the operator's order to begin is known by
ENV_INSTRUMENTATION: Final = "HULK_INSTRUMENTATION"
INSTRUMENTATION_AUTO: Final = "auto"  # a program's own process groups sum as planned
ENV_PYTHON_PATH: Final = "PYTHONPATH"
ENV_PEER_SECRET: Final = "HULK_PEER_SECRET"  # the path of a file
ENV_CHECKPOINT_URL: Final = "HULK_CHECKPOINT_URL"
ENV_CHECKPOINT_EVERY_STEPS: Final = "HULK_CHECKPOINT_EVERY_STEPS"
ENV_CHECKPOINT_KEEP: Final = "HULK_CHECKPOINT_KEEP"
ENV_CHECKPOINT_STORES: Final = "HULK_CHECKPOINT_STORES"  # JSON: a region -> its own store
ENV_CHECKPOINT_STEP: Final = "HULK_CHECKPOINT_STEP"  # the last one that the operator knows to be committed
ENV_CHECKPOINT_TRUST_STORE: Final = "HULK_CHECKPOINT_TRUST_STORE"  # 1 = also of what the job has not signed

# Set by whoever wants another bound than the default (a user's template, a test).
ENV_PIPELINE_LOG: Final = "HULK_PIPELINE_LOG"  # a folder for what each rank of a pipeline did when
ENV_COLLECTIVE_PORT: Final = "HULK_COLLECTIVE_PORT"
ENV_RENDEZVOUS_SECONDS: Final = "HULK_RENDEZVOUS_SECONDS"
ENV_SILENCE_SECONDS: Final = "HULK_SILENCE_SECONDS"
ENV_START_SECONDS: Final = "HULK_START_SECONDS"
ENV_STAY_SECONDS: Final = "HULK_STAY_SECONDS"

# The object store's credentials (a Secret in the pod's environment).
ENV_S3_ENDPOINT: Final = "AWS_ENDPOINT_URL"

# The agent.
ENV_NODE_NAME: Final = "NODE_NAME"

# Ports.
MASTER_PORT: Final = 29400
COLLECTIVE_PORT: Final = 29401  # of a pod's first rank; each further one has the next
WORKER_METRICS_PORT: Final = 9400
AGENT_METRICS_PORT: Final = 9402
AGENT_ECHO_PORT: Final = 9403
AGENT_BANDWIDTH_PORT: Final = 9404

# Of the agent's log.
ENV_LOG_FORMAT: Final = "HULK_LOG_FORMAT"
ENV_LOG_LEVEL_FILE: Final = "HULK_LOG_LEVEL_FILE"

# Paths inside a pod.
PLAN_KEY: Final = "plan.json.gz"
PLAN_PATH: Final = f"/etc/hulk/plan/{PLAN_KEY}"
PEER_SECRET_PATH: Final = "/etc/hulk/peers/secret"
GANG_ENVIRONMENT_KEY: Final = "environment.json"
GANG_ATTEMPT_FILE: Final = "attempt"
GANG_WORKER_FILE: Final = "worker"
TRIALS_DIRECTORY: Final = "/etc/hulk/trials"  # of a worker of a sweep whose trials share devices
TERMINATION_LOG: Final = "/dev/termination-log"
