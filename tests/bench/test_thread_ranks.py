"""Ranks as threads train what one rank with the whole batch trains; a compressed hop spares what must stay exact."""

import threading

import pytest
import torch
from hulk_runtime.examples import text

from bench.convergence import Method, Ordered, plan_of
from bench.thread_ranks import Meeting, train


def losses_after(method, share):
    """Loss of the step's batch by the trained parameters, after every step of all ranks."""
    plan = plan_of(method, steps=4, share=share)
    source = text.standard_library_source()
    judge = Ordered(plan, 0, source)
    found = {}

    def look(step, module):
        judge.module.load_state_dict(module.state_dict())
        with torch.no_grad():
            found[step] = float(judge.loss(1, range(plan.training.global_batch)))

    sent_bytes = train(plan, lambda: Ordered(plan, 0, source), method.compression, look)
    return found, sent_bytes


def test_threads_train_what_one_rank_trains():
    together, sent_bytes = losses_after(Method("together", num_ranks=3), share=2)
    alone, none = losses_after(Method("alone", num_ranks=1), share=6)
    assert together == pytest.approx(alone, abs=1e-4)
    assert sent_bytes > 0
    assert none == 0


def test_local_ranks_are_looked_at_only_where_all_are_equal():
    assert list(losses_after(Method("local", 2, num_ranks=2), share=1)[0]) == [2, 4]


def test_what_must_stay_exact_is_not_rounded():
    meeting = Meeting(2, "int8")
    handed_in = [torch.tensor([100.0, 0.1, 0.1]), torch.tensor([100.0, 0.1, 0.2])]
    other = threading.Thread(target=meeting.reduce, args=(1, handed_in[1], 1))
    other.start()
    meeting.reduce(0, handed_in[0], 1)
    other.join()
    assert torch.equal(handed_in[0], handed_in[1])
    assert handed_in[0][2] == torch.tensor(0.1) + torch.tensor(0.2)
    assert handed_in[0][1] == 0, "below a step of its block's scale; the residual has it"
    assert meeting.sent_bytes == 2 * (2 + 4)


def test_a_rank_that_fails_ends_the_others():
    plan = plan_of(Method("together", num_ranks=2), steps=1, share=1)
    source = text.standard_library_source()

    class Failing(Ordered):
        def loss(self, step, sequences):
            if sequences.start:
                raise RuntimeError("no data")
            return super().loss(step, sequences)

    with pytest.raises(RuntimeError, match="no data"):
        train(plan, lambda: Failing(plan, 0, source), "none", lambda step, module: None)
