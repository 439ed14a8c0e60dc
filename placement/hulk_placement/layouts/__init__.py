"""Plans of any layout (data x pipeline x tensor): arrays, the compiled evaluator, and the searches over it."""
