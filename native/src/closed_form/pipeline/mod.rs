//! How long a pipeline takes: the exact times of one replica's blocks under a schedule's order, its transfers of one
//! rate each (`sharing` says which).
//!
//! Stage s of P computes a forward pass of each of M micro-batches after stage s - 1's has arrived, and a backward pass
//! after stage s + 1's has. The order on every stage is the schedule's:
//!
//! ```text
//! gpipe   all forward passes, then all backward passes (Huang et al. 2019, arXiv 1811.06965)
//! 1f1b    P - 1 - s forward passes, then forward and backward in turn, then the backward passes that are left
//!         (Narayanan et al. 2021, arXiv 2104.04473, figure 4)
//! ```
//!
//! A transfer keeps its way over one boundary for `send_s` and arrives `latency_s` after that; over a way whose
//! connections were silent it does not leave before their windows have grown (`windows`). With overlap the stage goes on
//! computing meanwhile; without, it waits until what it sent has arrived. Every block begins as early as that allows, so
//! the times are those of the longest path in the graph of blocks: of 1F1B's a recurrence over micro-batches, of GPipe's
//! a formula, or a recurrence where windows must grow; no simulation.

mod progress;
#[cfg(test)]
mod tests;

pub use progress::Progress;

use super::arrays::{Schedule, max};
use crate::windows::INITIAL_PACKETS;

/// One direction of the ways between a replica's stages, for one micro-batch; entry s is the boundary between stage s
/// and stage s + 1.
#[derive(Clone, Default, PartialEq)]
pub struct Ways {
    /// Seconds for which a transfer keeps its way.
    pub send_s: Vec<f64>,
    pub latency_s: Vec<f64>,
    /// Packets on each connection; 0 where windows are open.
    pub packets: Vec<f64>,
}

/// The stages of one replica and the ways between them, for one micro-batch.
#[derive(Clone, Default, PartialEq)]
pub struct Chain {
    pub forward_s: Vec<f64>,
    pub backward_s: Vec<f64>,
    pub there: Ways,
    pub back: Ways,
}

impl Chain {
    /// Room for so many stages.
    pub fn of(num_stages: usize) -> Self {
        let row = || vec![0.0; num_stages];
        let ways = || Ways {
            send_s: row(),
            latency_s: row(),
            packets: row(),
        };
        Self {
            forward_s: row(),
            backward_s: row(),
            there: ways(),
            back: ways(),
        }
    }

    pub fn num_stages(&self) -> usize {
        self.forward_s.len()
    }

    /// Seconds there and back over a boundary, without what is sent.
    #[inline]
    fn trip_s(&self, s: usize) -> f64 {
        self.there.latency_s[s] + self.back.latency_s[s]
    }

    /// Seconds that one micro-batch is on the way behind a stage, there and back.
    #[inline]
    fn way_s(&self, s: usize) -> f64 {
        if s + 1 == self.num_stages() {
            return 0.0;
        }
        self.there.send_s[s] + self.there.latency_s[s] + self.back.send_s[s] + self.back.latency_s[s]
    }
}

/// Writes when each stage's last of `num` equal passes ends that wait only for the stage before, or, back, behind it.
///
/// The first stage begins at `begin_s`. A flow shop of equal jobs: the last one meets every stage and way once, and has
/// waited for all others at the slowest so far (Johnson 1954).
fn chain_ends(begin_s: f64, num: usize, is_back: bool, chain: &Chain, overlap: bool, ends_s: &mut [f64]) {
    let last = chain.num_stages() - 1;
    let (block_s, ways) = if is_back {
        (&chain.backward_s, &chain.back)
    } else {
        (&chain.forward_s, &chain.there)
    };
    let (mut passed_s, mut slowest_s) = (begin_s, 0.0);
    for k in 0..=last {
        let s = if is_back { last - k } else { k };
        let (mut sent_s, mut alone_s) = (0.0, 0.0);
        if k < last {
            let way = if is_back { s - 1 } else { s };
            (sent_s, alone_s) = (ways.send_s[way], ways.latency_s[way]);
        }
        slowest_s = max(
            slowest_s,
            if overlap {
                block_s[s]
            } else {
                block_s[s] + sent_s + alone_s
            },
        );
        ends_s[s] = passed_s + block_s[s] + if num > 1 { (num - 1) as f64 * slowest_s } else { 0.0 };
        passed_s += block_s[s] + sent_s + alone_s;
        slowest_s = max(slowest_s, sent_s);
    }
}

/// Writes when each stage's last forward pass ends under GPipe, windows being open; when the last stage's does.
pub fn forward_ends(num: usize, chain: &Chain, overlap: bool, ends_s: &mut [f64]) -> f64 {
    chain_ends(0.0, num, false, chain, overlap, ends_s);
    ends_s[chain.num_stages() - 1]
}

/// Whether so many micro-batches are more than the windows of silent connections let through at once.
fn must_grow(num: usize, chain: &Chain) -> bool {
    let both = chain
        .there
        .packets
        .iter()
        .zip(&chain.back.packets)
        .take(chain.num_stages() - 1);
    both.into_iter()
        .any(|(&there, &back)| num as f64 * max(there, back) > INITIAL_PACKETS)
}

/// Writes when each stage's last backward pass ends to `ends_s` (P), and returns the latest of them, in seconds.
pub fn pipeline_ends(
    schedule: Schedule,
    num: usize,
    chain: &Chain,
    overlap: bool,
    ends_s: &mut [f64],
    progress: &mut Progress,
) -> f64 {
    if schedule == Schedule::OneForwardOneBackward {
        progress.clear(chain.num_stages());
        progress.one_forward_one_backward(num, chain, overlap, ends_s);
    } else if must_grow(num, chain) {
        progress.clear(chain.num_stages());
        progress.gpipe(num, chain, overlap, ends_s);
    } else {
        let begin_s = forward_ends(num, chain, overlap, ends_s);
        chain_ends(begin_s, num, true, chain, overlap, ends_s);
    }
    ends_s.iter().copied().fold(0.0, max)
}

/// Seconds that no pipeline of these stages ends before, however cold its windows; found sooner than its end.
///
/// The first micro-batch meets every stage and way, there and back. Then, under GPipe, the others follow it at the
/// slowest stage or way, there and back. Under 1F1B a turn goes from a backward pass of stage a through stages a .. b
/// and back, while each computes b - a + 1 micro-batches, until all have gone forward; what is left at stage a are
/// backward passes.
pub fn least_s(schedule: Schedule, num: usize, chain: &Chain) -> f64 {
    let last = chain.num_stages() - 1;
    let mut whole_s = 0.0;
    for s in 0..=last {
        whole_s += chain.forward_s[s] + chain.backward_s[s] + chain.way_s(s);
    }
    if schedule == Schedule::Gpipe {
        return whole_s + (num - 1) as f64 * slowest_s(chain);
    }
    let (mut most_s, num) = (0.0, num as u32);
    for a in 0..=last {
        let (mut turn_s, backward_s) = (0.0, chain.backward_s[a]);
        for (size, b) in (1..).zip(a..=last) {
            turn_s += chain.forward_s[b] + chain.backward_s[b];
            let num_turns = (num - 1).saturating_sub((last - b) as u32) / size;
            let left = num - 1 - num_turns * size;
            most_s = max(most_s, f64::from(num_turns) * turn_s + f64::from(left) * backward_s);
            turn_s += chain.way_s(b);
        }
    }
    whole_s + most_s
}

/// Seconds from micro-batch to micro-batch at the slowest stage or way forward, and at the slowest one back.
fn slowest_s(chain: &Chain) -> f64 {
    let num_ways = chain.num_stages() - 1;
    let slowest = |block_s: &[f64], send_s: &[f64]| block_s.iter().chain(&send_s[..num_ways]).copied().fold(0.0, max);
    slowest(&chain.forward_s, &chain.there.send_s) + slowest(&chain.backward_s, &chain.back.send_s)
}
