"""The plan as torch's DeviceMesh, for FSDP2, tensor parallelism and whatever else takes one.

mesh = device_mesh()  # the dimensions above 1: pp, dp_replicate, dp_shard, tp
fully_shard(model, mesh=mesh["dp_replicate", "dp_shard"])

device_mesh("dp_replicate", "dp_shard", "tp")  # these, be they 1
device_mesh(dp_replicate=2, dp_shard=4)        # refused where the plan has other ones
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from hulk_runtime.collective import planned_sums
from hulk_runtime.errors import ConfigurationError
from hulk_runtime.job import environment
from hulk_runtime.plan import mesh


def device_mesh(*names: str, device_type: str | None = None, **sizes: int) -> DeviceMesh:
    """The planned mesh, over all ranks; torch's default process group is made where there is none yet.

    `names` (and those of `sizes` behind them) are the mesh's dimensions; none: those above 1. In a run by hand, without
    a plan, `sizes` are the degrees, and what they leave is dp_replicate. Raises ConfigurationError where the plan has
    no such mesh, or the world is another one.
    """
    num_ranks = dist.get_world_size() if dist.is_initialized() else environment.read(os.environ).world_size
    degrees = _degrees(sizes, num_ranks)
    found = mesh.mesh(degrees, (*names, *sizes) or mesh.usual_names(degrees), sizes)
    if len(found.ranks) != num_ranks:
        raise ConfigurationError(f"a mesh of {len(found.ranks)} ranks in a world of {num_ranks}")
    kind = device_type or ("cuda" if torch.cuda.is_available() else "cpu")
    return DeviceMesh(kind, torch.tensor(found.ranks).view(found.shape), mesh_dim_names=found.names)


def _degrees(sizes: dict[str, int], num_ranks: int) -> dict[str, int]:
    """The plan's; by hand what is asked for, of so many ranks."""
    planned = planned_sums.plan()
    if planned is not None:
        return dict(planned.layout.mesh)
    degrees = {name: sizes.get(name, 1) for name in mesh.NAMES}
    others = degrees["pp"] * degrees["dp_shard"] * degrees["tp"]
    if others < 1 or num_ranks % others:
        raise ConfigurationError(f"a mesh of {', '.join(f'{n} {s}' for n, s in sizes.items())} of {num_ranks} ranks")
    return {**degrees, "dp_replicate": num_ranks // others}
