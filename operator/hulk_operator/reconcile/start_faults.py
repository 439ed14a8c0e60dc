"""Whose fault it is that a container does not start, by the words of the kubelet, the runtime and the scheduler.

One node's word convicts nobody else, however many pods it holds: only clear words, or the same words from several
nodes that hold the whole gang, are the job's own fault.

    words                                      a peer of it runs    peers still start    stuck on every node
    the node's or the registry's (no DNS)      the node             the node             the registry
    an image that is refused (not found)       the job              the job              the job
    clear ones of a container (no command)     the node             the job              the job
    its CPU architecture (no such platform)    the node             the node             the job
    any other                                  the node             the node             the job
"""

import re
from typing import Final

from hulk_operator.pods import INIT_RUNS, SIDECAR_NOT_STARTED, Reason

_REGISTRY: Final = re.compile(
    r"i/o timeout|connection (refused|reset)|TLS handshake timeout|deadline exceeded|Client\.Timeout exceeded|"
    r"unexpected EOF|too ?many ?requests|internal server error|bad gateway|service unavailable|gateway time-?out|"
    r"no such host|server misbehaving|name resolution|network is unreachable|no route to host|x509: |proxyconnect",
    re.IGNORECASE,
)
"""What container runtimes say where a registry does not answer, or a node does not reach it."""
_NODE: Final = re.compile(
    r"no space left on device|disk quota exceeded|input/output error|read-only file system|QPS exceeded|"
    r"failed to sync (secret|configmap) cache",
    re.IGNORECASE,
)
"""What they say where a node is full, broken or behind."""
_ARCHITECTURE: Final = re.compile(r"no (match for platform|matching manifest)|exec format error", re.IGNORECASE)
"""What they say of an image that is not for the node's CPU."""
_OF_TEMPLATE: Final = frozenset({"CreateContainerConfigError", "InvalidImageName"})
_OF_IMAGE: Final = frozenset({"ErrImagePull", "ImagePullBackOff"})
_CLEAR: Final = re.compile(
    r"not found|unauthorized|denied|forbidden|(manifest|name) unknown|invalid reference|authorization failed|"
    r"authentication required|no basic auth credentials|insufficient_scope|does not exist|no such image|exec: \"",
    re.IGNORECASE,
)
"""Words that no other node would change."""
_MISSING: Final = re.compile(
    r'(secret|configmap|persistentvolumeclaim|serviceaccount)s? "[^"]+" not found|non-existent (secret|config) key',
    re.IGNORECASE,
)
"""What kubelets and the scheduler say where the template names something that is not there."""
_NO_VOLUME: Final = re.compile(
    r'unbound (immediate )?persistentvolumeclaims|storageclass[.a-z0-9]* "[^"]+" not found|'
    r"non-existent persistentvolume|multi-attach error",
    re.IGNORECASE,
)
"""What the scheduler says where a claim has no volume, whichever node it looks at, and the attach controller of one
that another node has."""

_FOR_ARCHITECTURE: Final = (
    "the image is not for this node's CPU architecture: build it for that too, "
    "or set a nodeSelector for kubernetes.io/arch in the template"
)
_ADVICE: Final = {
    "Multi-Attach error": "a ReadWriteOnce volume is attached to one node at a time: "
    "give the workers a ReadWriteMany claim, or delete the pod that holds it",
    INIT_RUNS: "read what it waits for with kubectl logs -c, or raise runPolicy.startTimeoutSeconds",
    SIDECAR_NOT_STARTED: "the worker starts after it: mend the sidecar or its startupProbe",
    "CrashLoopBackOff": "the worker starts after it: read why it crashes with kubectl logs -c",
}


def is_missing(text: str) -> bool:
    """Whether something that the template names is not there.

    >>> is_missing('MountVolume.SetUp failed for volume "keys" : secret "keys" not found')
    True
    """
    return bool(_MISSING.search(text))


def has_no_volume(text: str) -> bool:
    """Whether a pod waits for a claim that has no volume on any node, or one that another node has."""
    return bool(_NO_VOLUME.search(text))


def advice(text: str) -> str:
    """What to do about a failed start, by the words about it; empty where they say it themselves."""
    if _ARCHITECTURE.search(text):
        script = "; or its command is a script without a #! line" if "exec format" in text else ""
        return f"; {_FOR_ARCHITECTURE}{script}"
    return next((f"; {todo}" for words, todo in _ADVICE.items() if words in text), "")


def is_of_registry(why: Reason) -> bool:
    """Whether a registry does not answer, or a node does not reach it."""
    return why.reason == "RegistryUnavailable" or bool(_REGISTRY.search(why.message))


def is_passing(why: Reason) -> bool:
    """Whether a node or a registry is the cause, and the job never.

    >>> is_passing(Reason("ImagePullBackOff", 'dial tcp: lookup r.example: no such host'))
    True
    """
    return is_of_registry(why) or bool(_NODE.search(why.message))


def is_of_job(why: Reason, *, runs_elsewhere: bool, everywhere: bool) -> bool:
    """Whether the job's own template is the cause: of a container that runs elsewhere, or that is stuck everywhere.

    >>> is_of_job(Reason("ImagePullBackOff", "manifest unknown"), runs_elsewhere=True, everywhere=False)
    True
    """
    if is_missing(why.message):
        return True
    if is_passing(why):
        return False
    if _ARCHITECTURE.search(why.message):
        return everywhere
    if why.reason in _OF_TEMPLATE:
        return True
    is_clear = bool(_CLEAR.search(why.message))
    if why.reason in _OF_IMAGE and is_clear:
        return True
    return not runs_elsewhere and (is_clear or everywhere)
