"""What a support bundle holds: objects, logs and metrics of Hulk, bounded, and without what looks like a credential."""
