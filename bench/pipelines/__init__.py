"""The runtime's pipelines beside those of torch."""
