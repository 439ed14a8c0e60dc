"""What ranks say to each other: identities, frames, figures, losses (docs/reference/collective-wire.md)."""
