"""What labels of a node say of the accelerators that a resource name counts, by who writes them.

| resource | product | memory of one | written by |
|---|---|---|---|
| `nvidia.com/gpu` | `nvidia.com/gpu.product` | `nvidia.com/gpu.memory`, MiB | GPU feature discovery |
| `nvidia.com/mig-1g.10gb` | its own `.product`, else by its name | its own `.memory`, else by its name | the same |
| `amd.com/gpu` | `amd.com/gpu.product-name` | `amd.com/gpu.vram`, like 192G | AMD's node labeller |
| `gpu.intel.com/xe`, `i915` | `gpu.intel.com/product` | `gpu.intel.com/memory.max`, of all | Intel's device plugins |
| another | its own `.product` | its own `.memory`, MiB | whoever |

Where several pods take turns on one accelerator, the product ends in `-SHARED` and a pod counts on its part of the
memory. What no label of the vendor's says is not known, and is never taken from another vendor's labels.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

Labels = Mapping[str, Any]

_MIG: Final = re.compile(r"nvidia\.com/mig-(?P<profile>[1-7]g\.(?P<memory_gb>[1-9][0-9]*)gb.*)")
_SHARED: Final = ("-SHARED", ".shared")  # of a product's label, of a resource's name
_AMD_WHOLE: Final = "spx_nps1"
_AMD_PARTITION: Final = re.compile(r"[a-z]+_nps[1-9]")
_INTEL_MEMORY_GB: Final = {"Max_1550": 128, "Max_1100": 48, "Flex_170": 16}
"""By data sheets: newer plugins write no label of it."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """One accelerator as labels have it; "" and 0 are not known."""

    product: str = ""
    memory_bytes: int = 0


def labelled(labels: Labels, resource: str, num_allocatable: int = 0) -> Labelled:
    """One of a node's accelerators, of which it offers so many."""
    vendor = resource.partition("/")[0]
    return _VENDORS.get(vendor, _others)(labels, resource, num_allocatable)


def _nvidia(labels: Labels, resource: str, _: int) -> Labelled:
    """A resource that is renamed because it is shared keeps the labels of its former name."""
    is_renamed, resource = resource.endswith(_SHARED[1]), resource.removesuffix(_SHARED[1])
    product = labels.get(f"{resource}.product") or ""
    memory_bytes = _whole(labels.get(f"{resource}.memory")) << 20
    instance = _MIG.fullmatch(resource)
    if instance and not product:
        whole = (labels.get("nvidia.com/gpu.product") or "").removesuffix(_SHARED[0])
        product = f"{whole}-MIG-{instance['profile']}" if whole else ""
    if instance and not memory_bytes:
        memory_bytes = int(instance["memory_gb"]) * 10**9
    if product and is_renamed and not product.endswith(_SHARED[0]):
        product += _SHARED[0]
    num_sharing = _whole(labels.get(f"{resource}.replicas"))
    if is_renamed or product.endswith(_SHARED[0]):
        memory_bytes = memory_bytes // num_sharing if num_sharing > 1 else 0
    return Labelled(product, memory_bytes)


def _amd(labels: Labels, resource: str, _: int) -> Labelled:
    """Partitions have resource names of their own or not, and labels tell of them where all of a node are alike."""
    name = resource.partition("/")[2]
    there = str(labels.get("amd.com/compute-memory-partition") or "").lower()
    partition = name if _AMD_PARTITION.fullmatch(name) else there
    found = Labelled(_amd_label(labels, "product-name"), _whole(_amd_label(labels, "vram").removesuffix("G")) << 30)
    if partition in ("", _AMD_WHOLE):
        return found
    product = f"{found.product}-{partition}" if found.product else ""
    return Labelled(product, found.memory_bytes if partition == there else 0)


def _amd_label(labels: Labels, what: str) -> str:
    """Its value; in older releases the value is a part of the name, once for each kind of accelerator of the node."""
    for prefix in (f"amd.com/gpu.{what}", f"beta.amd.com/gpu.{what}"):
        if labels.get(prefix):
            return str(labels[prefix])
        values = [name.removeprefix(f"{prefix}.") for name in labels if name.startswith(f"{prefix}.")]
        if len(values) == 1:
            return values[0]
    return ""


def _intel(labels: Labels, _: str, num_allocatable: int) -> Labelled:
    """Its plugins offer a GPU several times over where pods may share it, and do not say so."""
    product = str(labels.get("gpu.intel.com/product") or "")
    num_there = _whole(labels.get("gpu.intel.com/millicores")) // 1000 or _whole(
        labels.get("gpu.intel.com/device.count")
    )
    total_bytes = _whole(labels.get("gpu.intel.com/memory.max"))
    each_bytes = total_bytes // num_there if num_there else 0
    found = Labelled(product, each_bytes or _INTEL_MEMORY_GB.get(product, 0) * 10**9)
    if not num_there or num_allocatable <= num_there:
        return found
    product = f"{product}{_SHARED[0]}" if product else ""
    return replace(found, product=product, memory_bytes=found.memory_bytes * num_there // num_allocatable)


def _others(labels: Labels, resource: str, _: int) -> Labelled:
    memory_bytes = _whole(labels.get(f"{resource}.memory")) << 20
    return Labelled(str(labels.get(f"{resource}.product") or ""), memory_bytes)


def _whole(stated: object) -> int:
    """A label's whole number, 0 where it is none."""
    text = str(stated or "")
    return int(text) if text.isdecimal() and len(text) < 20 else 0


_VENDORS: Final[Mapping[str, Callable[[Labels, str, int], Labelled]]] = {
    "nvidia.com": _nvidia,
    "amd.com": _amd,
    "gpu.intel.com": _intel,
}
