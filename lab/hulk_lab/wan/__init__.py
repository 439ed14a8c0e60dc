"""The lab's network: namespaces, flat pod routing, and the emulated WAN between regions."""
