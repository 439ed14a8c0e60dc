"""How good and how quick searches over layouts are."""
