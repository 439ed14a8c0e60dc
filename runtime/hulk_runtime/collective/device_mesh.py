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
from hulk_runtime.whole_numbers import whole_number


def device_mesh(*names: str, device_type: str | None = None, **sizes: int) -> DeviceMesh:
    """The planned mesh, over all ranks; torch's default process group is made where there is none yet.

    `names` (and those of `sizes` behind them) are the mesh's dimensions; none: those above 1. In a run by hand, without
    a plan, `sizes` are the degrees, and what they leave is dp_replicate, which is named too. Raises ConfigurationError
    where the plan has no such mesh, or the world is another one.
    """
    if unnamed := [name for name in names if not isinstance(name, str)]:
        raise ConfigurationError(
            f"a mesh of {', '.join(map(repr, unnamed))}: dimensions have names, as in "
            'hulk.device_mesh("dp_replicate", dp_shard=2)'
        )
    whole = {name: whole_number(f"a mesh's {name}", size, ConfigurationError) for name, size in sizes.items()}
    num_ranks = dist.get_world_size() if dist.is_initialized() else environment.read(os.environ).world_size
    found = _mesh(names, whole, num_ranks)
    if len(found.ranks) != num_ranks:
        raise ConfigurationError(f"a mesh of {len(found.ranks)} ranks in a world of {num_ranks}")
    kind = device_type or ("cuda" if torch.cuda.is_available() else "cpu")
    return DeviceMesh(kind, torch.tensor(found.ranks).view(found.shape), mesh_dim_names=found.names)


def _mesh(names: tuple[str, ...], sizes: dict[str, int], num_ranks: int) -> mesh.Mesh:
    planned = planned_sums.plan()
    if planned is None:
        return mesh.by_hand(num_ranks, names, sizes)
    degrees = dict(planned.layout.mesh)
    return mesh.mesh(degrees, (*names, *sizes) or mesh.usual_names(degrees), sizes)
