"""The one thread of a rank that moves chunks, and what it does by the clock and when a peer is lost."""
