"""hulk-launch counts the steps of programs that know nothing of it, and these run as under plain python."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from hulk_runtime import errors
from hulk_runtime.job.step_server import Served, WorkerSteps

LAUNCH = ("-m", "hulk_runtime.job.launcher")
PATIENCE_S = 240.0
# Its own names, and what a class of it becomes in pickles and in children, which import it again.
PROGRAM = """
import multiprocessing, pickle, sys
class Thing:
    pass
def of_child(queue):
    queue.put((sorted(vars(sys.modules["__main__"])), __name__))
if __name__ == "__main__":
    found = {name: value for name, value in globals().items() if name.startswith("__") and name != "__loader__"}
    print({**found, "__builtins__": type(found["__builtins__"]), "__spec__": getattr(found["__spec__"], "name", None)})
    print(sys.argv, sys.path, sys.flags, sys.orig_argv[1:], pickle.dumps(Thing()), "torch" in sys.modules)
    for method in sys.argv[1:]:
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        child = context.Process(target=of_child, args=(queue,))
        child.start()
        print(queue.get())
        child.join()
"""
# Two optimizers, one in a wrapper, children with optimizers of their own, a loss that is told; then it hangs, and
# holds every lock.
TRAINING = """
import multiprocessing, os, signal, sys, time
import torch
class Around(torch.optim.Optimizer):
    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner = inner
    def step(self):
        self.inner.step()
def train(steps):
    model = torch.nn.Linear(10, 10)
    optimizers = [torch.optim.SGD([one]) for one in model.parameters()]
    optimizers[0] = Around(optimizers[0])
    for _ in range(steps):
        model(torch.ones(1, 10)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
if __name__ == "__main__":
    train(5)
    child = multiprocessing.get_context("fork").Process(target=train, args=(7,))
    child.start()
    child.join()
    assert child.exitcode == 0
    import hulk_runtime
    hulk_runtime.report(loss=torch.tensor(0.5))
    print("hangs", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""
# Two ranks by torch's or Hulk's class; a forward pass takes 50 ms on rank 0, and it waits 300 ms more for rank 1's.
DATA_PARALLEL = """
import os, sys, time
import torch, torch.distributed as dist
if sys.argv[1] == "torch":
    from torch.nn.parallel import DistributedDataParallel
else:
    from hulk_runtime.collective.ddp import DistributedDataParallel
class Slow(torch.nn.Linear):
    def forward(self, batch):
        time.sleep(0.05 + 0.3 * dist.get_rank())
        return super().forward(batch)
dist.init_process_group("gloo")
model = DistributedDataParallel(Slow(10, 10))
optimizer = torch.optim.SGD(model.parameters())
for _ in range(13):
    model(torch.ones(1, 10)).sum().backward()
    optimizer.step()
print("trained", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("how", ["script", "module", "folder"])
def test_a_program_runs_as_under_plain_python(job, make_plan, tmp_path: Path, how: str) -> None:
    name = "__main__.py" if how == "folder" else "program.py"
    (tmp_path / name).write_text(PROGRAM)
    by_name = {"script": [str(tmp_path / name)], "module": ["-m", "program"], "folder": [str(tmp_path)]}
    arguments = [*by_name[how], "fork", *([] if how == "folder" else ["spawn"])]  # which python cannot do of a folder
    job.write_plan(make_plan((1,)))
    launched = job.start(*LAUNCH, *arguments, PYTHONPATH=str(tmp_path))
    assert launched.wait() == 0, launched.output
    plain = subprocess.run(
        [sys.executable, "-u", *arguments], env=launched.environment, capture_output=True, text=True, check=True
    )
    assert launched.output == plain.stdout


@pytest.mark.parametrize("arguments", [["nosuch.py"], ["-m", "nosuch"]])
def test_a_program_that_is_not_there_ends_as_under_plain_python(job, make_plan, arguments: list[str]) -> None:
    job.write_plan(make_plan((1,)))
    launched = job.start(*LAUNCH, *arguments)
    code = launched.wait()
    plain = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    assert (code, launched.output) == (plain.returncode, plain.stderr)


def test_steps_are_served_also_while_the_rank_hangs(job, make_plan, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    job.write_plan(make_plan((1, 1), attempt=3))
    other = tmp_path / "other.py"
    other.write_text("import hulk_runtime, time; hulk_runtime.report(step=5, loss=7.0); time.sleep(1000)")
    workers = [job.start(*LAUNCH, str(path), HULK_WORKER=str(at)) for at, path in enumerate((script, other))]
    workers[0].wait_for("hangs")
    first, second = (metrics(worker) for worker in workers)
    assert first["hulk_worker_step"] == first['hulk_worker_own_step{attempt="3"}'] == 5
    assert first["hulk_worker_loss"] == 0.5
    assert 0 < first["hulk_worker_step_seconds"] < 10
    assert 0 < first["hulk_worker_step_seconds_last"] < 10
    assert (first["hulk_worker_parameters"], first["hulk_worker_gradient_bytes"]) == (110, 440)
    assert any(name.startswith("hulk_worker_info{") and 'attempt="3"' in name for name in first)
    of_job = {name for name in second if not name.startswith("hulk_worker_background_failures_total")}
    assert of_job == {'hulk_worker_own_step{attempt="3"}'}, "only rank 0's worker speaks for the job"
    assert second['hulk_worker_own_step{attempt="3"}'] == 5
    for worker in workers:
        worker.popen.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("by", ["torch", pytest.param("hulk", marks=pytest.mark.whole)])  # a kind of torch's class
def test_what_a_rank_computes_is_told_apart_from_its_wait_for_others(job, make_plan, tmp_path: Path, by: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(DATA_PARALLEL)
    job.write_plan(make_plan((2,)))
    worker = job.start(*LAUNCH, str(script), by)
    worker.wait_for("trained")
    found = metrics(worker)
    assert 0.05 <= found['hulk_worker_compute_seconds{rank="0"}'] < found["hulk_worker_step_seconds"] - 0.1
    worker.popen.send_signal(signal.SIGTERM)
    worker.wait()


def test_a_taken_port_costs_only_the_series(job, make_plan, tmp_path: Path) -> None:
    script = tmp_path / "serves.py"
    script.write_text(
        "import http.server, os, hulk_runtime, time\n"
        "taken = http.server.HTTPServer(('', int(os.environ['HULK_METRICS_PORT'])), None)\n"
        "hulk_runtime.report(step=1)\n"
        "time.sleep(1000)\n"
    )
    job.write_plan(make_plan((1,)))
    worker = job.start(*LAUNCH, str(script))
    worker.wait_for("hulk-launch: steps are not shown, port")
    worker.popen.send_signal(signal.SIGTERM)
    worker.wait()


def test_a_program_that_serves_its_progress_is_left_alone(job, make_plan, make_training) -> None:
    job.write_plan(make_plan((1,), training=make_training(1, steps=1_000_000)))
    worker = job.start(*LAUNCH, "-m", "hulk_runtime.examples.gpt")
    worker.wait_for("step=3")
    assert 'hulk_worker_compute_seconds{rank="0"}' in metrics(worker)
    assert "steps are not shown" not in worker.output


def test_the_last_step_is_told_at_the_end_where_the_program_tells_nothing(tmp_path: Path) -> None:
    """As the operator reads it; a message of the program's own stays."""
    steps = WorkerSteps(1, Served(attempt=3, port=0, speaks=True))
    assert steps.last_words() == ""
    steps.records[0].told(40, None)
    words = steps.last_words()
    assert words == "ended attempt=3 step=40 checkpoint_bytes=0"
    steps.records[0].told(41, 2.5)
    steps.records[0].saved(40, 9, "s3://eu/u/40")
    assert steps.last_words() == "ended attempt=3 step=41 loss=2.5 checkpoint_bytes=0"
    steps.records[0].saved(41, 9, "s3://eu/u/41")
    assert steps.last_words() == "ended attempt=3 step=41 loss=2.5 checkpoint_bytes=9 where=s3://eu/u/41"
    log = tmp_path / "termination-log"
    errors.add_termination_message(words, str(log))
    assert not log.exists()
    log.write_text("")
    errors.add_termination_message(words, str(log))
    errors.add_termination_message("another", str(log))
    assert log.read_text() == words
    steps.records[0].serve()
    assert steps.last_words() == ""


def metrics(worker) -> dict[str, float]:
    """The worker's series, once it serves some."""
    url = f"http://127.0.0.1:{worker.environment['HULK_METRICS_PORT']}/metrics"
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urlopen(url, timeout=PATIENCE_S) as answer:
                text = answer.read().decode()
            break
        except OSError:
            assert time.monotonic() < deadline, worker.output
            time.sleep(0.05)
    return {name: float(value) for name, value in re.findall(r"^(hulk_\S+) (\S+)$", text, re.MULTILINE)}
