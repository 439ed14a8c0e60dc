"""`python -m bench [QUESTION ...] [--short]`: one table per question.

    ring         what the order of a ring is worth, measured in the geo lab
    predict      predicted against observed step time, measured in the geo lab
    deploy       1,000 ranks on simulated nodes beside a bare client and an Indexed Job; 100 jobs at once; memory
    light        CPU of commands and memory of the operator at rest and with 1,000 simulated pods
    scale        memory, event loop, requests and seconds of the operator with 500, 2,000 and 5,000 nodes
    change       one node replaced, the job shrunk, on simulated nodes
    replan       what a lost node costs a training in the geo lab; planning after a loss in simulated clusters
    checkpoints  what digest and signature add to saving a state and to resuming from it, on this machine's disk
    start        real pods: from a job to connected ranks; one worker that starts many ranks
    allreduce    Hulk's all-reduce over the emulated WAN beside gloo's, the physical bound and the prediction
    ddp          a step of torch's DDP over the emulated WAN, with gloo and with Hulk's all-reduce
    trainers     a step of plain torch scripts, DDP and HSDP, over the emulated WAN: by gloo, and instrumented;
                 streaming DiLoCo by torchft and by Hulk, to the same loss
    gil          whether the all-reduce's thread slows the backward pass, and at which rate Python is the limit
    convergence  what local SGD and compression do to the loss; ranks are threads of one process
    diloco       what DiLoCo, in fragments too and quantised, does to the loss of a model of 10 M parameters
    streaming    a step of replicas that train apart, as planned, over the emulated WAN: predicted beside measured
    crossover    from which link speed on a synchronous step pays, local SGD below; predictions only, nothing measured
    solve        how good and how quick planning is, and what its time earns; predictions only, nothing measured
    planner      how good and how quick searches over any layout are; predictions only, nothing measured
    families     the layout search beside layouts that people draw, on boxes in zones in regions; predictions only
    moves        how many changed layouts a second the compiled annealing prices; predictions only, nothing measured
    placements   planned machines beside those that others choose, measured on real trainings in three labs
    gnn          whether the value network helps to divide machines among jobs; predictions only, nothing measured
    step_model   the evaluator's closed form beside its simulation of a step, and what each takes; nothing is run
    closed_form  the closed form beside the simulation over boxes in zones in regions, where searches go; nothing is run
    gloo_model   prices of gloo's all-reduces beside measured ones and beside the event simulation; nothing is run
    memory       predicted peaks of memory beside published ones; nothing is run
    schedules    how short the schedules of pipelines are that a search finds; nothing is executed
    pipelines    a step of a pipeline by Hulk's runtime beside torch.distributed.pipelining, on this machine
    stages       pipelines over regions in the geo lab: GPipe, 1F1B and the searched order, predicted and observed
    shapes       searched schedules on their placements beside usual pipelines and tensor parallel, on this machine
    fleet        many jobs: the fleet's decisions beside baselines, a bound and published figures; simulated
    queue        five arriving jobs on six nodes of the geo lab: the worth of their work by GADGET, FIFO and DRF
    sharp        several models on shared devices: SHARP beside other ways, measured and simulated; plans of sweeps
    flows        how good and how quick planning Hulk's own all-reduce is; predictions only, nothing measured

Without a question all are answered. --short takes minutes instead of hours and says what it left out. Figures are
medians; ratios compare runs of one invocation on one machine, and each aim is said to be met or missed. Raw rows:
build/bench/QUESTION.jsonl.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable

from rich.console import Console

from bench import (
    bench_solve,
    change,
    checkpoints,
    collective_plans,
    convergence,
    crossover,
    deployment,
    light,
    many_jobs,
    moves,
    predict,
    queue,
    ring_order,
    schedules,
    starting,
)
from bench.allreduce import whole as all_reduces
from bench.closed_form import question as closed_form
from bench.diloco import question as diloco
from bench.families import question as families
from bench.fleet import question as fleet
from bench.gil import question as gil
from bench.gloo_model import question as gloo_model
from bench.gnn import question as gnn
from bench.memory_peaks import question as memory_peaks
from bench.pipelines import question as pipelines
from bench.placements import question as placements
from bench.planner import question as planner
from bench.replanning import question as replanning
from bench.scale import question as scale
from bench.shapes import question as shapes
from bench.sharp import question as sharp
from bench.stages import question as stages
from bench.step_model import question as step_model
from bench.streaming import question as streaming
from bench.trainers import question as trainers


def _deploy(num_runs: int) -> None:
    """One large job, then many small ones."""
    deployment.main(num_runs)
    many_jobs.main(min(num_runs, 5))


QUESTIONS: dict[str, Callable[[bool], None]] = {
    "ring": lambda short: ring_order.run(("A",) if short else ("A", "B"), short),
    "predict": predict.run,
    "deploy": lambda short: _deploy(3 if short else 20),
    "light": light.run,
    "scale": scale.run,
    "change": lambda short: change.main(1 if short else 20),
    "replan": replanning.run,
    "checkpoints": checkpoints.run,
    "start": lambda short: starting.run(1 if short else 5),
    "allreduce": all_reduces.run,
    "ddp": all_reduces.run_ddp,
    "trainers": trainers.run,
    "gil": gil.run,
    "convergence": convergence.run,
    "diloco": diloco.run,
    "streaming": streaming.run,
    "crossover": lambda short: crossover.run(factors=crossover.FACTORS[::2] if short else crossover.FACTORS),
    "solve": bench_solve.run,
    "planner": planner.run,
    "families": families.run,
    "moves": moves.run,
    "placements": placements.run,
    "gnn": gnn.run,
    "memory": memory_peaks.run,
    "step_model": step_model.run,
    "closed_form": closed_form.run,
    "gloo_model": gloo_model.run,
    "schedules": schedules.run,
    "pipelines": pipelines.run,
    "shapes": shapes.run,
    "stages": stages.run,
    "fleet": fleet.run,
    "queue": queue.run,
    "sharp": sharp.run,
    "flows": lambda short: collective_plans.run(num_regions=(3, 4, 6) if short else collective_plans.NUM_REGIONS),
}


def main() -> int:
    """Answer the questions in turn; 1 when one could not be answered."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question", nargs="*", choices=[*QUESTIONS, "all"], default="all")
    parser.add_argument("--short", action="store_true", help="minutes instead of hours")
    options = parser.parse_args()
    asked = [options.question] if isinstance(options.question, str) else options.question
    console, failed = Console(highlight=False), 0
    for question in QUESTIONS if "all" in asked else asked:
        console.rule(f"{question}{' (short)' if options.short else ''}")
        try:
            QUESTIONS[question](options.short)
        except Exception as error:  # noqa: BLE001 - hours of other answers do not depend on what this one lacked
            traceback.print_exc()
            console.print(f"{question} was not answered: {error}", markup=False)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
