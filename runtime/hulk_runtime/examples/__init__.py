"""Training programs that run as they are in a HulkJob's pods."""
