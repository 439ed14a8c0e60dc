"""What a step costs: `predict` is the one evaluator that searches, the CLI and the operator share."""

from hulk_placement.cost.predict import predict

__all__ = ["predict"]
