"""Prices of NCCL's operations beside what others measured."""
