"""The steps of the recipe: each a pure function View -> Outcome, one subject per file."""
