"""Every search side by side on a user's own files."""
