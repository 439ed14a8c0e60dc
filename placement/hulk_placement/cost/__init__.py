"""What a step costs: `predict` is the one evaluator that searches, the CLI and the operator share.

`simulate` is its slower speed, event by event, and `where` says where a simulated step goes. `foresee` says what a step
takes by whichever of the two holds.
"""

from hulk_placement.cost.foresee import foresee
from hulk_placement.cost.predict import predict, step_seconds
from hulk_placement.cost.simulate import simulate
from hulk_placement.cost.where import where

__all__ = ["foresee", "predict", "simulate", "step_seconds", "where"]
