"""The closed form that searches go by beside the simulation, over boxes in zones in regions."""
