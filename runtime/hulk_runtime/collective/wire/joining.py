"""The name by which scripts import the address of a rank."""

from hulk_runtime.collective.wire.rendezvous import Address

__all__ = ["Address"]
