"""What a step costs: `predict.predict` is the one evaluator that searches, the CLI and the operator share.

`simulate` is its slower speed, event by event, and `where` says where a simulated step goes. `foresee` says what a step
takes by whichever of the two holds. Nothing is imported here: who only counts money or memory need not load a compiler.
"""
