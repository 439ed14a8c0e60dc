"""Every label, annotation, environment variable, port, path and derived name of the operator, in one place.

`hulk_runtime.names` holds the same values for the inside of a pod. A derived name is always a job's name and at most
two numbers, so one limit on the job's name (`MAX_JOB_NAME_LENGTH`, enforced by CEL) makes all of them fit:

>>> len(pod("j" * MAX_JOB_NAME_LENGTH, MAX_ATTEMPT, MAX_WORKERS - 1))
63
>>> pod("demo", 2, 0), service("demo", 2), plan_config_map("demo", 2), gang_config_map("demo")
('demo-2-0', 'demo-2', 'demo-plan-2', 'demo-gang')
"""

from typing import Final

GROUP: Final = "hulk.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "hulk.dev/v1alpha1"

JOB_KIND: Final = "HulkJob"
JOB_PLURAL: Final = "hulkjobs"
JOB_SHORT: Final = "hj"
PROFILE_KIND: Final = "NodeProfile"
PROFILE_PLURAL: Final = "nodeprofiles"
PROFILE_SHORT: Final = "np"
TOPOLOGY_KIND: Final = "HulkTopology"
TOPOLOGY_PLURAL: Final = "hulktopologies"
TOPOLOGY_SHORT: Final = "ht"
TOPOLOGY_NAME: Final = "cluster"  # the one HulkTopology that is read
SWEEP_KIND: Final = "HulkSweep"
SWEEP_PLURAL: Final = "hulksweeps"
SWEEP_SHORT: Final = "hs"

# Limits. A pod's name is also its host name, so it must be a DNS label.
DNS_LABEL_LENGTH: Final = 63
MAX_WORKERS: Final = 4096
MAX_ATTEMPT: Final = 99_999
MAX_REGIONS: Final = 64
MAX_JOB_NAME_LENGTH: Final = DNS_LABEL_LENGTH - len(f"-{MAX_ATTEMPT}-{MAX_WORKERS - 1}")
MAX_TRIALS: Final = 1_000
MAX_SWEEP_NAME_LENGTH: Final = MAX_JOB_NAME_LENGTH - len("-shared")  # its HulkJobs are named after it
JOB_NAME_PATTERN: Final = "^[a-z]([-a-z0-9]*[a-z0-9])?$"  # a Service's name starts with a letter

# Who writes.
MANAGER: Final = "hulk"  # value of LABEL_MANAGED_BY
FIELD_MANAGER: Final = "hulk-operator"
CONTROLLER: Final = "hulk.dev/operator"  # the value of spec.managedBy that means "this operator"
SCHEDULER: Final = "default-scheduler"  # where the template names none
LEASE: Final = "hulk-operator"
ORDER_SECRET: Final = "hulk-operator-orders"  # in the operator's own namespace
ORDER_SECRET_KEY: Final = "key"

# How the chart installs Hulk: the release's usual namespace, and its pods in there.
DEFAULT_NAMESPACE: Final = "hulk-system"
AGENT_SELECTOR: Final = "app.kubernetes.io/name=hulk,app.kubernetes.io/component=agent"
OPERATOR_LABELS: Final = {"app.kubernetes.io/name": "hulk", "app.kubernetes.io/component": "operator"}
LABEL_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"  # of every namespace, by Kubernetes

# Labels and annotations Hulk writes. A user's template may use no key under RESERVED_PREFIX.
RESERVED_PREFIX: Final = f"{GROUP}/"
LABEL_JOB: Final = f"{RESERVED_PREFIX}job"
LABEL_ATTEMPT: Final = f"{RESERVED_PREFIX}attempt"
LABEL_WORKER: Final = f"{RESERVED_PREFIX}worker"
LABEL_SWEEP: Final = f"{RESERVED_PREFIX}sweep"  # of a HulkJob: the sweep that it belongs to
LABEL_TRIAL: Final = f"{RESERVED_PREFIX}trial"  # of a HulkJob: the trial's number
LABEL_RUNG: Final = f"{RESERVED_PREFIX}rung"  # of a trial: how often it was promoted
LABEL_TRIALS: Final = f"{RESERVED_PREFIX}trials"  # of a shared job: the version of its trials' plan
LABEL_STOPPED: Final = f"{RESERVED_PREFIX}stopped"  # of a trial that is not to go on: why
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_PLACEHOLDER: Final = f"{RESERVED_PREFIX}placeholder"  # of a pod that asks for nodes: the job's generation
ANNOTATION_PLAN_DIGEST: Final = f"{RESERVED_PREFIX}plan-digest"
ANNOTATION_CONTAINER: Final = f"{RESERVED_PREFIX}container"  # of a worker's pod: which container is the worker
ANNOTATION_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"  # kept where the user sets it

# Kueue's words, as far as Hulk reads or writes them.
KUEUE_GROUP: Final = "kueue.x-k8s.io"
KUEUE_VERSION: Final = "v1beta2"
LABEL_QUEUE: Final = f"{KUEUE_GROUP}/queue-name"  # of a HulkJob: its LocalQueue
LABEL_WORKLOAD_PRIORITY: Final = f"{KUEUE_GROUP}/priority-class"  # of a HulkJob: its WorkloadPriorityClass
LABEL_MAX_EXECUTION: Final = f"{KUEUE_GROUP}/max-exec-time-seconds"  # of a HulkJob
LABEL_OWNER_UID: Final = f"{KUEUE_GROUP}/job-uid"  # of a Workload
LABEL_POD_SET: Final = f"{KUEUE_GROUP}/podset"  # of a pod
LABEL_LOCAL_QUEUE: Final = f"{KUEUE_GROUP}/local-queue-name"  # of a pod
LABEL_CLUSTER_QUEUE: Final = f"{KUEUE_GROUP}/cluster-queue-name"  # of a pod
ANNOTATION_WORKLOAD: Final = f"{KUEUE_GROUP}/workload"  # of a pod
ANNOTATION_REQUIRED_TOPOLOGY: Final = f"{KUEUE_GROUP}/podset-required-topology"
ANNOTATION_PREFERRED_TOPOLOGY: Final = f"{KUEUE_GROUP}/podset-preferred-topology"
ANNOTATION_ANY_TOPOLOGY: Final = f"{KUEUE_GROUP}/podset-unconstrained-topology"
ANNOTATION_POD_SETS_DIGEST: Final = f"{RESERVED_PREFIX}pod-sets-digest"  # of a Workload: what it was made of
POD_SET: Final = "main"

# What asks for nodes: pods of this class, or requests of Cluster Autoscaler's.
PLACEHOLDER_CLASS: Final = "hulk-placeholder"  # PriorityClass of the chart: such a pod gives way to any other
PLACEHOLDER_IMAGE: Final = "registry.k8s.io/pause:3.10"
AUTOSCALING_GROUP: Final = "autoscaling.x-k8s.io"
PROVISIONING_CLASS: Final = f"best-effort-atomic-scale-up.{AUTOSCALING_GROUP}"

# What brings the all-reduce into images that lack it, where the chart names no other.
INSTRUMENTATION_IMAGE: Final = "hulk:0.1.0"
INSTRUMENTATION_SOURCE: Final = "/opt/hulk/instrumentation"  # inside that image

# Labels of nodes that Hulk reads.
NODE_REGION: Final = "topology.kubernetes.io/region"
NODE_HOST_NAME: Final = "kubernetes.io/hostname"
NODE_ZONE: Final = "topology.kubernetes.io/zone"
NODE_PRODUCT: Final = "nvidia.com/gpu.product"
NODE_ACCELERATOR_MEMORY: Final = "nvidia.com/gpu.memory"  # MiB
UNKNOWN_REGION: Final = "unknown"  # a node without a region label
UNKNOWN_PRODUCT: Final = "unknown"
DEFAULT_RESOURCE: Final = "nvidia.com/gpu"

# Environment of the worker container.
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
ENV_PET_RDZV_BACKEND: Final = "PET_RDZV_BACKEND"  # kept where the user sets it, as are the next two
ENV_PET_RDZV_ENDPOINT: Final = "PET_RDZV_ENDPOINT"
ENV_PET_RDZV_ID: Final = "PET_RDZV_ID"
ENV_GLOO_INTERFACE: Final = "GLOO_SOCKET_IFNAME"  # the user's
ENV_JOB: Final = "HULK_JOB"
ENV_JOB_UID: Final = "HULK_JOB_UID"
ENV_ATTEMPT: Final = "HULK_ATTEMPT"
ENV_WORKER: Final = "HULK_WORKER"
ENV_PLAN: Final = "HULK_PLAN"
ENV_GANG: Final = "HULK_GANG"  # only where Hulk's launcher runs
ENV_METRICS_PORT: Final = "HULK_METRICS_PORT"
ENV_COLLECTIVE_PORT: Final = "HULK_COLLECTIVE_PORT"  # kept where the user sets it
ENV_PEER_SECRET: Final = "HULK_PEER_SECRET"  # the path of a file
ENV_START_DIGEST: Final = "HULK_START_DIGEST"  # what the operator's order to begin is known by
ENV_GRACE_SECONDS: Final = "HULK_GRACE_SECONDS"
ENV_END_SECONDS: Final = "HULK_END_SECONDS"  # for the ranks of the attempt before: they have nothing to save
ENV_DP_REPLICATE: Final = "HULK_DP_REPLICATE"  # the mesh of the ranks
ENV_DP_SHARD: Final = "HULK_DP_SHARD"
ENV_TP: Final = "HULK_TP"
ENV_PP: Final = "HULK_PP"
ENV_ACCELERATE_MESH: Final = "ACCELERATE_USE_PARALLELISM_CONFIG"  # Accelerate's, as the next three; the user's win
ENV_ACCELERATE_DP_REPLICATE: Final = "PARALLELISM_CONFIG_DP_REPLICATE_SIZE"
ENV_ACCELERATE_DP_SHARD: Final = "PARALLELISM_CONFIG_DP_SHARD_SIZE"
ENV_ACCELERATE_TP: Final = "PARALLELISM_CONFIG_TP_SIZE"
ENV_CHECKPOINT_URL: Final = "HULK_CHECKPOINT_URL"
ENV_CHECKPOINT_EVERY_STEPS: Final = "HULK_CHECKPOINT_EVERY_STEPS"
ENV_CHECKPOINT_KEEP: Final = "HULK_CHECKPOINT_KEEP"
ENV_CHECKPOINT_STORES: Final = "HULK_CHECKPOINT_STORES"  # JSON: a region -> its own store
ENV_CHECKPOINT_STEP: Final = "HULK_CHECKPOINT_STEP"  # the last one that the operator knows to be committed
ENV_CHECKPOINT_TRUST_STORE: Final = "HULK_CHECKPOINT_TRUST_STORE"  # 1 = also of what the job has not signed
ENV_INSTRUMENTATION: Final = "HULK_INSTRUMENTATION"  # absent: none
INSTRUMENTATION_AUTO: Final = "auto"
ENV_PYTHON_PATH: Final = "PYTHONPATH"  # Hulk's folder goes before the user's
ENV_TEMPLATE_PYTHON_PATH: Final = "HULK_TEMPLATE_PYTHONPATH"  # the user's, where it is no plain value
# Set by Hulk alone: a template that sets one of these in its first container is refused.
RESERVED_ENV: Final = (
    ENV_RANK,
    ENV_WORLD_SIZE,
    ENV_LOCAL_RANK,
    ENV_LOCAL_WORLD_SIZE,
    ENV_GROUP_RANK,
    ENV_NODE_RANK,
    ENV_MASTER_ADDR,
    ENV_MASTER_PORT,
    ENV_PET_NNODES,
    ENV_PET_NPROC_PER_NODE,
    ENV_PET_NODE_RANK,
    ENV_PET_MASTER_ADDR,
    ENV_PET_MASTER_PORT,
    ENV_JOB,
    ENV_JOB_UID,
    ENV_ATTEMPT,
    ENV_WORKER,
    ENV_PLAN,
    ENV_GANG,
    ENV_GRACE_SECONDS,
    ENV_END_SECONDS,
    ENV_METRICS_PORT,
    ENV_PEER_SECRET,
    ENV_START_DIGEST,
    ENV_DP_REPLICATE,
    ENV_DP_SHARD,
    ENV_TP,
    ENV_PP,
    ENV_CHECKPOINT_URL,
    ENV_CHECKPOINT_EVERY_STEPS,
    ENV_CHECKPOINT_KEEP,
    ENV_CHECKPOINT_STORES,
    ENV_CHECKPOINT_STEP,
    ENV_CHECKPOINT_TRUST_STORE,
    ENV_INSTRUMENTATION,
)

# Environment of the operator.
ENV_NAMESPACE: Final = "HULK_NAMESPACE"  # set: single-namespace mode
ENV_LEASE_NAMESPACE: Final = "HULK_LEASE_NAMESPACE"
ENV_LEASE_SECONDS: Final = "HULK_LEASE_SECONDS"
ENV_LOG_FORMAT: Final = "HULK_LOG_FORMAT"  # text or json; also the agent's
ENV_LOG_LEVEL_FILE: Final = "HULK_LOG_LEVEL_FILE"  # read again and again; also the agent's
ENV_PROBING_MAX_TESTS: Final = "HULK_PROBING_MAX_TESTS"
ENV_PROBING_BYTES_PER_TEST: Final = "HULK_PROBING_BYTES_PER_TEST"
ENV_PROBING_BYTES_PER_HOUR: Final = "HULK_PROBING_BYTES_PER_HOUR"
ENV_PROBING_REFRESH_SECONDS: Final = "HULK_PROBING_REFRESH_SECONDS"
ENV_PROMETHEUS_NAMESPACES: Final = "HULK_PROMETHEUS_NAMESPACES"  # separated by commas
ENV_POD_GROUPS: Final = "HULK_POD_GROUPS"  # "true"
ENV_PLANNER_IDLE_SECONDS: Final = "HULK_PLANNER_IDLE_SECONDS"
ENV_PLACEHOLDER_IMAGE: Final = "HULK_PLACEHOLDER_IMAGE"
ENV_PROVISIONING_CLASS: Final = "HULK_PROVISIONING_CLASS"
ENV_INSTRUMENTATION_IMAGE: Final = "HULK_INSTRUMENTATION_IMAGE"
ENV_INSTRUMENTATION_PULL_POLICY: Final = "HULK_INSTRUMENTATION_PULL_POLICY"
ENV_QUEUE_POLICY: Final = "HULK_QUEUE_POLICY"
ENV_QUEUE_QUOTAS: Final = "HULK_QUEUE_QUOTAS"  # as JSON: accelerators by namespace
ENV_QUEUE_SHARES: Final = "HULK_QUEUE_SHARES"  # as JSON: weight by namespace
ENV_QUEUE_SETTLE_SECONDS: Final = "HULK_QUEUE_SETTLE_SECONDS"

# Ports.
MASTER_PORT: Final = 29400
WORKER_METRICS_PORT: Final = 9400
OPERATOR_METRICS_PORT: Final = 9401
AGENT_METRICS_PORT: Final = 9402
AGENT_BANDWIDTH_PORT: Final = 9404

# Ports of attempts whose pods are on their nodes' own network: below what Linux hands out to clients by itself (32768),
# and below NodePorts (30000).
FIRST_HOST_PORT: Final = 20_000
LAST_HOST_PORT: Final = 29_399

# Inside a pod.
SHARED_MEMORY_DIRECTORY: Final = "/dev/shm"
SHARED_MEMORY_VOLUME: Final = "hulk-shared-memory"
PLAN_KEY: Final = "plan.json.gz"
PLAN_BASIS_KEY: Final = "made-of.json.gz"  # what the plan was made of
PLAN_WHY_KEY: Final = "why"  # the plan's reasons, one sentence a line
PLAN_DIRECTORY: Final = "/etc/hulk/plan"
PLAN_PATH: Final = f"{PLAN_DIRECTORY}/{PLAN_KEY}"
PLAN_VOLUME: Final = "hulk-plan"
PEER_SECRET_KEY: Final = "secret"
PEER_SECRET_BYTES: Final = 32
PEER_SECRET_DIRECTORY: Final = "/etc/hulk/peers"
PEER_SECRET_PATH: Final = f"{PEER_SECRET_DIRECTORY}/{PEER_SECRET_KEY}"
PEER_SECRET_VOLUME: Final = "hulk-peers"
LAUNCHER: Final = "hulk-launch"
# Beside the plan where the launcher runs: what the pod is now. Together they change when it is taken over.
GANG_ENVIRONMENT_KEY: Final = "environment.json"
GANG_ATTEMPT_FILE: Final = "attempt"
GANG_WORKER_FILE: Final = "worker"
TRIALS_DIRECTORY: Final = "/etc/hulk/trials"
TRIALS_VOLUME: Final = "hulk-trials"
TRIALS_PLAN_KEY: Final = "plan.json"
INSTRUMENTATION_DIRECTORY: Final = "/opt/hulk-instrumentation"
INSTRUMENTATION_VOLUME: Final = "hulk-instrumentation"  # and the init container that fills it
RESTRICTED_USER: Final = 65532  # of a worker whose template says none: the usual "nonroot"
CHECKPOINT_DIRECTORY: Final = "/var/hulk/checkpoint"
CHECKPOINT_VOLUME: Final = "hulk-checkpoint"

# Exit codes of the runtime.
EXIT_WIRE_MISMATCH: Final = 64  # never retried
EXIT_USER_ERROR: Final = 65
EXIT_LOST_PEER: Final = 69  # another rank closed its connection: the cause is in that rank's pod
EXIT_FENCED: Final = 75  # a newer attempt has begun
EXIT_CHECKPOINTED: Final = 143  # SIGTERM, after a committed checkpoint


def pod(job: str, attempt: int, worker: int) -> str:
    """Name and host name of a pod that was made for one worker. A pod that stays for a later attempt keeps it."""
    return f"{job}-{attempt}-{worker}"


def placeholder(job: str, number: int) -> str:
    """Name of a pod that asks for a node.

    >>> placeholder("demo", 0)
    'demo-scaleup-0'
    """
    return f"{job}-scaleup-{number}"


def provisioning_request(job: str, generation: int) -> str:
    """Name of the ProvisioningRequest of a job as it is in a generation, and of its PodTemplate: neither may change."""
    return f"{job}-scaleup-{generation}"


def service(job: str, attempt: int) -> str:
    """Name of an attempt's headless Service."""
    return f"{job}-{attempt}"


def network_policy(job: str, attempt: int) -> str:
    """Name of an attempt's NetworkPolicy."""
    return f"{job}-{attempt}"


def pod_group(job: str, attempt: int) -> str:
    """Name of the PodGroup of the pods that are made for an attempt."""
    return f"{job}-{attempt}"


def plan_config_map(job: str, attempt: int) -> str:
    """Name of the ConfigMap that holds an attempt's full plan."""
    return f"{job}-plan-{attempt}"


def gang_config_map(job: str) -> str:
    """Name of the ConfigMap that tells pods which stay from one attempt to the next what the present one is."""
    return f"{job}-gang"


def peer_secret(job: str, uid: str) -> str:
    """Name of the Secret by which a job's workers know each other.

    With the job's uid, because the operator may not look whose a Secret is: the one of a deleted job of the same name
    may still be there.

    >>> peer_secret("demo", "6f1c")
    'demo-peers-6f1c'
    """
    return f"{job}-peers-{uid}"


def trial(sweep: str, number: int) -> str:
    """Name of the HulkJob that runs one trial of a sweep.

    >>> trial("rates", 7)
    'rates-t7'
    """
    return f"{sweep}-t{number}"


def shared_job(sweep: str) -> str:
    """Name of the HulkJob whose workers' devices the trials of a sweep share.

    >>> len(shared_job("s" * MAX_SWEEP_NAME_LENGTH)) == MAX_JOB_NAME_LENGTH
    True
    """
    return f"{sweep}-shared"


def trials_key(worker: int) -> str:
    """Key of that ConfigMap with the trials of one worker."""
    return f"worker-{worker}.json"


def trials_config_map(sweep: str, version: int) -> str:
    """Name of the ConfigMap that tells each worker of a shared job its trials, by one plan."""
    return f"{sweep}-trials-{version}"


def master_address(namespace: str, job: str, attempt: int) -> str:
    """Stable DNS name of the attempt's rank 0, whichever pod that is: its Service's own.

    >>> master_address("research", "demo", 2)
    'demo-2.research.svc'
    """
    return f"{service(job, attempt)}.{namespace}.svc"


def key(namespace: str, job: str) -> str:
    """A job's key everywhere outside Kubernetes: `namespace/name`."""
    return f"{namespace}/{job}"


def namespace_of(job_key: str) -> str:
    """The namespace of a job's key."""
    return job_key.partition("/")[0]


def job_labels(job: str) -> dict[str, str]:
    """Labels of what belongs to a job and to no attempt."""
    return {LABEL_JOB: job, LABEL_MANAGED_BY: MANAGER}


def placeholder_labels(job: str, generation: int) -> dict[str, str]:
    """Labels of what asks for nodes; no attempt has them."""
    return {**job_labels(job), LABEL_PLACEHOLDER: str(generation)}


def attempt_labels(job: str, attempt: int) -> dict[str, str]:
    """Labels of everything that belongs to one attempt; also the selector of its NetworkPolicy."""
    return {LABEL_JOB: job, LABEL_ATTEMPT: str(attempt), LABEL_MANAGED_BY: MANAGER}


def worker_labels(job: str, attempt: int, worker: int) -> dict[str, str]:
    """Labels of one worker's pod; which pod is which worker is told by these, never by its name."""
    return {**attempt_labels(job, attempt), LABEL_WORKER: str(worker)}
