"""The level-based reconcile of one HulkJob, as a recipe of pure steps."""
