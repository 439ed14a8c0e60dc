"""Names of other projects for what a HulkJob has under another name: for the reference, and where one is misplaced."""

from typing import Final

NONE: Final = "nothing: "
"""How the entry of a name begins that has no counterpart; why follows."""

ELSEWHERE: Final = {
    "numNodes": "workers.min and workers.max",
    "nnodes": "workers.min and workers.max",
    "replicas": "workers.min and workers.max",
    "minReplicas": "workers.min",
    "maxReplicas": "workers.max",
    "minAvailable": "workers.min; a gang starts as a whole",
    "completions": "workers.min and workers.max",
    "elasticPolicy": "workers.min and workers.max",
    "numProcPerNode": "workers.acceleratorsPerWorker",
    "nprocPerNode": "workers.acceleratorsPerWorker",
    "nproc_per_node": "workers.acceleratorsPerWorker",
    "gpusPerNode": "workers.acceleratorsPerWorker",
    "resourcesPerNode": "template.spec.containers[0].resources; accelerators: workers.acceleratorsPerWorker",
    "image": "template.spec.containers[0].image",
    "command": "template.spec.containers[0].command",
    "args": "template.spec.containers[0].args",
    "env": "template.spec.containers[0].env",
    "trainer": "template",
    "podTemplate": "template",
    "pytorchReplicaSpecs": "workers and template: all workers are alike, rank 0 is one of them",
    "runtimeRef": "template: there are no runtimes to refer to",
    "backoffLimit": "runPolicy.backoffLimit",
    "maxRestarts": "runPolicy.backoffLimit",
    "activeDeadlineSeconds": "runPolicy.activeDeadlineSeconds",
    "ttlSecondsAfterFinished": "runPolicy.ttlSecondsAfterFinished",
    "cleanPodPolicy": "nothing: only the pods of an attempt that succeeded stay, until the job is deleted",
    "priority": "priorityClassName",
    "nodeSelector": "template.spec.nodeSelector; regions: placement.regions",
    "globalBatchSize": "training.globalBatch",
    "perDeviceTrainBatchSize": "training.microBatch",
    "gradientAccumulationSteps": "nothing: it follows from training.globalBatch, training.microBatch and the plan",
    "maxSteps": "training.steps",
    "lora": "model.trainable.share: what PEFT prints as trainable%, divided by 100",
    "peft": "model.trainable.share: what PEFT prints as trainable%, divided by 100",
    "loraRank": "model.trainable.share: what PEFT prints as trainable%, divided by 100",
    "tensorParallelSize": "parallelism.tensor",
    "pipelineParallelSize": "parallelism.pipeline",
}
"""Fields of Kubeflow's TrainJob and PyTorchJob, JobSet, Volcano, torchrun and trainers -> fields of spec."""


def here(name: str) -> str:
    """What a name is called here, in any spelling of it; empty where it is none of other projects.

    >>> here("nproc-per-node"), here("max_steps"), here("workrs")
    ('workers.acceleratorsPerWorker', 'training.steps', '')
    """
    return _BY_LETTERS.get(_letters(name), "")


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


_BY_LETTERS: Final = {_letters(name): field for name, field in ELSEWHERE.items()}
