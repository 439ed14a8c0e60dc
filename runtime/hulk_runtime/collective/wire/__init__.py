"""What ranks say to each other: who they are, frames, figures of a connection, losses (docs/collective-wire.md)."""
