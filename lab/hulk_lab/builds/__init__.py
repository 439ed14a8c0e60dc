"""What the lab is made of, built from pinned sources and kept by content: Go programs, wheels, images."""
