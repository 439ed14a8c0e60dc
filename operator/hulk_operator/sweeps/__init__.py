"""HulkSweeps: which trials there are, which of them run now, which of them are good; a room beside `reconcile`."""
