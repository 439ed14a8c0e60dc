"""What DiLoCo, its fragments and its quantised outer gradients do to the loss."""
