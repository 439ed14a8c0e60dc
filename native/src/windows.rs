//! How often a message over silent TCP connections waits until their windows have grown (slow start, RFC 5681, 3.1).
//!
//! A connection begins with `INITIAL_PACKETS`; what was sent is confirmed a round trip later, and then twice as much may
//! be under way. After k round trips so many packets have left it:
//!
//! ```text
//! room_k = INITIAL_PACKETS (2^(k+1) - 1)
//! ```
//!
//! Beside each piece goes a packet that says what is expected in return. Measured, eight activations of 98 KB by GPipe: 80
//! packets on each connection, ten of them such; ten left at once, twenty a round trip later, forty after two.

use pyo3::pyfunction;

/// The window of a connection that was never used (RFC 6928), and the least after silence.
pub const INITIAL_PACKETS: f64 = 10.0;

/// Bytes of a packet's payload at an MTU of 1500 with timestamps: 1500 - 20 - 20 - 12.
pub const PACKET_BYTES: f64 = 1448.0;

/// Pieces of a message at most, each over a connection of its own.
pub const MOST_PIECES: f64 = 8.0;

/// A message is sent in as many pieces of so many bytes, if these are not too many.
pub const AT_ONCE_BYTES: f64 = 10_000.0;

/// Packets on each connection that has a piece of a message, and the one beside it; 0 of an empty message.
///
/// ```text
/// pieces  = min(MOST_PIECES, ceil(bytes / AT_ONCE_BYTES))
/// packets = 1 + ceil(bytes / pieces / PACKET_BYTES)
/// ```
#[pyfunction]
#[must_use]
pub fn packets_of(num_bytes: f64) -> f64 {
    if num_bytes <= 0.0 {
        return 0.0;
    }
    let num_pieces = MOST_PIECES.min((num_bytes / AT_ONCE_BYTES).ceil());
    1.0 + (num_bytes / num_pieces / PACKET_BYTES).ceil()
}

/// When a message of so many packets may have left a way that it is given to at `begin_s`; then where none hold it.
///
/// Of each way, all 0 before its first message: packets that were `sent`, packets that may have left by now (`room`),
/// and when the last of these could (`opened`, seconds).
pub fn opened_s(
    sent: &mut [f64],
    room: &mut [f64],
    opened: &mut [f64],
    way: usize,
    packets: f64,
    trip_s: f64,
    begin_s: f64,
) -> f64 {
    if packets == 0.0 {
        return begin_s;
    }
    if sent[way] == 0.0 {
        room[way] = INITIAL_PACKETS;
        opened[way] = begin_s;
    }
    sent[way] += packets;
    while sent[way] > room[way] {
        room[way] = 2.0 * room[way] + INITIAL_PACKETS;
        opened[way] += trip_s;
    }
    opened[way]
}

#[cfg(test)]
mod tests {
    use super::{opened_s, packets_of};

    /// 98 KB in eight pieces of 12,250 bytes are nine packets each, and one beside; 2,000 bytes are two packets.
    #[test]
    fn a_message_is_cut_into_pieces() {
        assert_eq!([98e3, 2e3, 0.0].map(packets_of), [10.0, 3.0, 0.0]);
    }

    /// Of eighty packets ten leave at once, twenty a round trip later, forty after two and the last ten after three.
    #[test]
    fn a_window_doubles_each_round_trip() {
        let (mut sent, mut room, mut opened) = ([0.0], [0.0], [0.0]);
        let mut give = |begin_s| opened_s(&mut sent, &mut room, &mut opened, 0, 10.0, 0.5, begin_s);
        let found: Vec<f64> = (0..8).map(|_| give(1.0)).collect();
        assert_eq!(found, [1.0, 1.5, 1.5, 2.0, 2.0, 2.0, 2.0, 2.5]);
    }

    #[test]
    fn an_empty_message_waits_for_nothing() {
        let (mut sent, mut room, mut opened) = ([70.0], [70.0], [3.0]);
        assert_eq!(opened_s(&mut sent, &mut room, &mut opened, 0, 0.0, 0.5, 1.0), 1.0);
        assert_eq!(sent, [70.0]);
    }
}
