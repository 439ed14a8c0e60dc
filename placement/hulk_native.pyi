"""The extension that native/ builds: arrays in, arrays out."""

# windows of silent TCP connections

INITIAL_PACKETS: float
PACKET_BYTES: float
MOST_PIECES: float
AT_ONCE_BYTES: float

def packets_of(num_bytes: float) -> float: ...
