"""The value of a node's product label -> what a training process takes of an accelerator besides its tensors.

Only accelerators that a driver serves from their own memory have such a part: a product that is not known, or a CPU,
takes nothing. Every figure is of torch 2 with kernels that are loaded when first used (the default since CUDA 11.7);
older stacks load all of them, 0.8 to 1.3 GiB, and such a job states its own figure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from hulk_placement.accelerators.table import look_up

MIB = 1 << 20

_ARCHITECTURES = (
    ("blackwell", r"GB?[23]00|RTX-PRO-\d+|(GeForce-)?RTX-?50\d\d"),
    ("hopper", r"G?H[12]00|H20|H800"),
    ("ada", r"L4|L40S?|L20|RTX-\d+-Ada|(GeForce-)?RTX-?40\d\d"),
    ("ampere", r"A[13]00?|A800|A10G?|A[24]0?|A16|RTX-A\d+|(GeForce-)?RTX-?30\d\d"),
    ("turing", r"T4|TITAN-RTX|Quadro-RTX-\d+|(GeForce-)?(RTX-?20|GTX-?16)\d\d"),
    ("volta", r"V100S?|TITAN-V"),
    ("pascal", r"P100|P40|P4|TITAN-Xp?|(GeForce-)?GTX-?10\d\d"),
    ("cdna", r"MI\d{2,3}X?"),
)
"""Parts of products' names, as drivers and people write them."""

_CONTEXT_MIB = {
    "blackwell": 700,
    "hopper": 550,
    "ada": 450,
    "ampere": 450,
    "turing": 300,
    "volta": 320,
    "pascal": 300,
    "cdna": 500,
}
"""The driver's context of one process and the kernels that a training loads.

Measured: 320 MiB on a Titan V without torch's kernels (pytorch issue 28394, 2019), about 300 MiB with kernels loaded
lazily (pytorch issue 107667, 2023), 543 MiB with CUDA 11.5 (pytorch issue 81257, 2022). It grows with the number
of multiprocessors, of which Hopper has 132 for Volta's 80. Blackwell's and CDNA's are assumed.
"""

_WORKSPACE_MIB = {"hopper": 64, "blackwell": 64}
_SMALL_WORKSPACE_MIB = 9
"""cuBLAS's and cuBLASLt's, which torch takes from its own allocator: 32 MiB each on Hopper and later, else 8 and 1 MiB
(torch's CUDAContext, `CUBLAS_WORKSPACE_CONFIG` and `CUBLASLT_WORKSPACE_SIZE`)."""

_CONNECTION_MIB = 10
"""NCCL's buffers of one connection of one channel: 4 MiB of the simple protocol, 4.7 of LL128, 0.5 of LL and rounding.

NCCL_BUFFSIZE is 4 MiB (NCCL's environment variables); allocations of 10 MiB a channel and peer are counted in NCCL
issue 1685 (2025).
"""

_CHANNELS = {"nvlink": 16, "other": 2}
"""Of a communicator inside a machine: as many as NVLink's rings take on one of eight, and NCCL's least on PCIe.

Assumed; NCCL chooses at run time between 1 and 32 or 64 (NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS). A ring receives over
one connection a channel (NCCL connects algorithms when they are first used, from 2.22 on).
"""

RESERVE_SHARE = 0.05
"""What torch's caching allocator holds beyond what tensors take at their peak.

Blocks of several sizes do not fill its segments (torch's notes on CUDA memory management). Three published runs
of one llama in three layouts hold 1.0, 1.5 and 5.3 % more than they use (nanotron's benchmark logs, 2024).
"""

_NVIDIA = re.compile(r"(NVIDIA|Tesla|Quadro|GeForce)[-_ ].*")
_SHORTEST_ALONE = 4
"""Characters of a name that means a GPU without its vendor's: V100 does, T4 might be anything."""


@dataclass(frozen=True, slots=True)
class FrameworkMemory:
    """Bytes of one accelerator: the context's, the libraries' workspaces, NCCL's buffers of one channel.

    `inside_channels`: of a communicator inside a machine. `reserve_share`: of what tensors take, what the allocator
    holds besides.
    """

    context_bytes: int = 0
    workspace_bytes: int = 0
    channel_bytes: int = 0
    inside_channels: int = 0
    reserve_share: float = 0.0


NO_FRAMEWORK = FrameworkMemory()


@lru_cache(maxsize=1024)
def framework_memory(product: str) -> FrameworkMemory:
    """What a process takes of an accelerator of this product.

    >>> framework_memory("NVIDIA-H100-80GB-HBM3").context_bytes // MIB
    550
    >>> framework_memory("unknown") == NO_FRAMEWORK
    True
    """
    architecture = _architecture(product)
    if not architecture:
        return NO_FRAMEWORK
    known = look_up(product)
    is_switched = known is not None and known.inside.startswith(("NVLink", "Infinity"))
    return FrameworkMemory(
        context_bytes=_CONTEXT_MIB[architecture] * MIB,
        workspace_bytes=_WORKSPACE_MIB.get(architecture, _SMALL_WORKSPACE_MIB) * MIB,
        channel_bytes=_CONNECTION_MIB * MIB,
        inside_channels=_CHANNELS["nvlink" if is_switched else "other"],
        reserve_share=RESERVE_SHARE,
    )


def _architecture(product: str) -> str:
    """The generation of a product; Ampere's of one of NVIDIA's that no pattern knows; "" of what is no GPU.

    >>> [_architecture(name) for name in ("Tesla-V100-SXM2-16GB", "A100-MIG-1g.5gb", "rtx-3090", "T4", "lab-cpu")]
    ['volta', 'ampere', 'ampere', '', '']
    """
    is_nvidia = _NVIDIA.fullmatch(product) is not None
    for architecture, pattern in _ARCHITECTURES:
        found = re.search(rf"(?:^|[-_ ])({pattern})(?=$|[-_ ])", product, re.IGNORECASE)
        if found and (is_nvidia or len(found[1]) >= _SHORTEST_ALONE):
            return architecture
    return "ampere" if is_nvidia else ""
