"""What ranks see of the links, what they believe for it, and how they change shares and paces together."""
