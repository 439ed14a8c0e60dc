"""Steps and latencies of placements and schedules on real ranks, each with an emulated accelerator."""
