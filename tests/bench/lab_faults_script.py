"""A rank of the lab's fault tests: sums until a fault ends that, then writes down what it was told, and when.

Arguments: folder for the outcomes, `restart` or `continue`, and what rank 3 does after some sums: `kill` or `stop`
itself, or `nothing` (the test cuts links meanwhile).
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from hulk_runtime.collective.group import Collective, Settings
from hulk_runtime.collective.wire.rendezvous import Address
from hulk_runtime.errors import PeerLostError
from hulk_runtime.plan.flows import CollectivePlan, Flow, LinkFigures, SizeClass

PORT, BOUND_S, PATIENCE_S = 29600, 10.0, 60.0
folder, on_region_loss, fault = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
rank, names = int(os.environ["RANK"]), os.environ["REGIONS"].split(",")
regions = list(dict.fromkeys(names))
flows = (Flow(0.5, (0, 1), ((2, 0),), ((2, 1),)), Flow(0.5, (0, 1, 2)))
plan = CollectivePlan(
    tuple(tuple(r for r, name in enumerate(names) if name == region) for region in regions),
    {
        (regions.index(a), regions.index(b)): LinkFigures(rate, one_way_s)
        for a, b, rate, one_way_s in json.loads(os.environ["LINKS"])
    },
    (SizeClass(1 << 40, 1 << 14, flows),),
    on_region_loss=on_region_loss,
)
addresses = [Address(host, PORT) for host in os.environ["ADDRESSES"].split(",")]
group = Collective.connect(rank, addresses, plan, bytes(32), "lab/1", Settings(bound_s=BOUND_S, connect_s=PATIENCE_S))
group.warm()
sums = 0


def outcome() -> dict[str, object]:
    """Sums until one fails; then, where the others go on, one more among them."""
    global sums
    while True:
        started = time.monotonic()
        if sums == 3:
            (folder / f"began-{rank}").write_text(str(started))
            if rank == 3 and fault != "nothing":
                os.kill(os.getpid(), signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
        values = torch.ones(250_000)
        try:
            group.all_reduce(values).wait(PATIENCE_S)
        except PeerLostError as error:
            return {"error": f"{type(error).__name__}: {error}", "at": time.monotonic()}
        sums += 1


found = outcome()
if "MembershipChanged" in str(found["error"]):
    group.adopt()
    values = torch.ones(250_000)
    group.all_reduce(values).wait(PATIENCE_S)
    found["sum"] = float(values.min())
(folder / f"outcome-{rank}").write_text(json.dumps(found))
group.close()
print(json.dumps(found))
