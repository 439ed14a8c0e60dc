"""Which single change of a plan's inputs would help most: tried one by one on the evaluator, ranked by what they save.

`inputs` changes a topology or workload, `changes` names the changes worth trying on a plan, `rank` predicts them, with
the same plan and, where a search is given, with a new one.
"""

from hulk_placement.advice.rank import Advice, Advised, advise

__all__ = ["Advice", "Advised", "advise"]
