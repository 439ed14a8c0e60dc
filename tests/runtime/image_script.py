"""A user's program in a user's image: torch alone, and of other packages what the image has. Prints what it found."""

import importlib
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

OTHERS = ("cryptography", "_cffi_backend", "numpy", "pydantic")


def found(name: str) -> str:
    """A package's version as the program finds it; `none` where it does not."""
    try:
        return str(importlib.import_module(name).__version__)
    except ImportError:
        return "none"


if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    before = [found(name) for name in OTHERS] if rank == 0 else []  # the other imports them afterwards
    had = set(sys.modules)
    dist.init_process_group("gloo")
    values = torch.arange(3000.0) + rank
    dist.all_reduce(values)
    assert torch.equal(values, 2 * torch.arange(3000.0) + 1)
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    model(torch.full((1, 8), float(rank))).sum().backward()
    assert model.module.weight.grad.tolist() == [[0.5] * 8]

    import hulk_runtime
    from hulk_runtime.collective.wire import ciphers
    from hulk_runtime.plan import wire

    shown = {name.partition(".")[0] for name in set(sys.modules) - had} & set(OTHERS)
    after = [found(name) for name in OTHERS]
    assert not before or before == after
    cipher, record = ciphers.AESGCM(bytes(32)), bytearray(17)
    cipher.encrypt_into(bytes(12), b"a", None, record)
    try:
        cipher.decrypt_into(bytes(12), bytes(17), None, bytearray(1))
    except ciphers.InvalidTag:
        print("what was changed does not open")
    print("shown", sorted(shown), [folder for folder in sys.path if "dependencies" in folder])
    print("found", *after)
    print("runtime", hulk_runtime.__file__, wire.runtime_version())
    print("group", type(dist.group.WORLD).__mro__[1].__name__, flush=True)
    dist.barrier()
    dist.destroy_process_group()
