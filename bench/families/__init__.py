"""Layout searches beside the layouts that people would draw, on clusters of boxes in zones in regions."""
