//! How long a pipeline takes: the exact times of one replica's blocks under a schedule's order, alone on its links.
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

use super::arrays::{Schedule, max};
use crate::windows::{INITIAL_PACKETS, opened_s};

/// Of the time passed: how far two steps may be from alike, for rounding.
const ALIKE: f64 = 1e-13;

/// One direction of the ways between a replica's stages, for one micro-batch; entry s is the boundary between stage s
/// and stage s + 1.
#[derive(Clone, Default)]
pub struct Ways {
    /// Seconds for which a transfer keeps its way.
    pub send_s: Vec<f64>,
    pub latency_s: Vec<f64>,
    /// Packets on each connection; 0 where windows are open.
    pub packets: Vec<f64>,
}

/// The stages of one replica and the ways between them, for one micro-batch.
#[derive(Clone, Default)]
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

    fn num_stages(&self) -> usize {
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

/// What is known of a stage while its pipeline is timed, in seconds.
#[derive(Clone, Copy, Default)]
struct Known {
    /// When it is free.
    free_s: f64,
    /// When its next activation has arrived.
    arrived_s: f64,
    /// When the way to the next stage is free.
    link_s: f64,
    /// When its next gradient has arrived.
    back_arrived_s: f64,
    /// When the way to the stage before is free.
    back_link_s: f64,
}

/// The windows of one direction's connections, by the stage that sends.
#[derive(Clone, Default)]
struct Windows {
    sent: Vec<f64>,
    room: Vec<f64>,
    opened_s: Vec<f64>,
}

impl Windows {
    fn clear(&mut self, num_stages: usize) {
        for row in [&mut self.sent, &mut self.room, &mut self.opened_s] {
            row.clear();
            row.resize(num_stages, 0.0);
        }
    }

    /// When a transfer has left that begins at `begin_s` and takes `send_s` if all windows are open.
    #[inline]
    fn left_s(&mut self, s: usize, packets: f64, trip_s: f64, begin_s: f64, send_s: f64) -> f64 {
        let end_s = begin_s + send_s;
        if packets == 0.0 {
            return end_s;
        }
        let Self {
            sent,
            room,
            opened_s: opened,
        } = self;
        max(end_s, opened_s(sent, room, opened, s, packets, trip_s, begin_s))
    }

    /// Whether none holds back what follows a stage's transfers, the last of which left at `link_s`, at one micro-batch
    /// in `pace_s`: from then on as much again as has been sent takes a round trip at least, after which it may be twice
    /// as much.
    #[inline]
    fn is_open(&self, s: usize, packets: f64, trip_s: f64, link_s: f64, pace_s: f64) -> bool {
        packets <= 0.0 || (self.sent[s] * pace_s >= packets * trip_s && self.opened_s[s] + trip_s <= link_s)
    }
}

/// Scratch of the recurrences.
#[derive(Clone, Default)]
pub struct Progress {
    now: Vec<Known>,
    /// As `now`, of an earlier step.
    kept: Vec<Known>,
    there: Windows,
    back: Windows,
}

impl Progress {
    fn clear(&mut self, num_stages: usize) {
        self.now.clear();
        self.now.resize(num_stages, Known::default());
        self.kept.clone_from(&self.now);
        self.there.clear(num_stages);
        self.back.clear(num_stages);
    }

    /// The next forward pass of stages high .. low, and its transfer; each waits for the one before, a call ago.
    #[inline]
    fn forward(&mut self, low: usize, high: usize, chain: &Chain, overlap: bool) {
        for s in (low..=high).rev() {
            let known = &mut self.now[s];
            let mut end_s = max(known.free_s, known.arrived_s) + chain.forward_s[s];
            if s + 1 < chain.num_stages() {
                let begin_s = max(end_s, known.link_s);
                let ways = &chain.there;
                let left_s = self
                    .there
                    .left_s(s, ways.packets[s], chain.trip_s(s), begin_s, ways.send_s[s]);
                let arrived_s = left_s + ways.latency_s[s];
                known.link_s = left_s;
                self.now[s + 1].arrived_s = arrived_s;
                if !overlap {
                    end_s = arrived_s;
                }
            }
            self.now[s].free_s = end_s;
        }
    }

    /// The next backward pass of all stages, from the last to the first, and its transfer.
    #[inline]
    fn backward(&mut self, chain: &Chain, overlap: bool, ends_s: &mut [f64]) {
        for s in (0..chain.num_stages()).rev() {
            let known = &mut self.now[s];
            let mut end_s = max(known.free_s, known.back_arrived_s) + chain.backward_s[s];
            ends_s[s] = end_s;
            if s > 0 {
                let begin_s = max(end_s, known.back_link_s);
                let (ways, before) = (&chain.back, s - 1);
                let trip_s = chain.trip_s(before);
                let left_s = self
                    .back
                    .left_s(s, ways.packets[before], trip_s, begin_s, ways.send_s[before]);
                let arrived_s = left_s + ways.latency_s[before];
                known.back_link_s = left_s;
                self.now[before].back_arrived_s = arrived_s;
                if !overlap {
                    end_s = arrived_s;
                }
            }
            self.now[s].free_s = end_s;
        }
    }

    /// Whether no window holds back what follows, at one micro-batch in `pace_s`.
    fn are_open(&self, chain: &Chain, pace_s: f64) -> bool {
        (0..chain.num_stages() - 1).all(|s| {
            let trip_s = chain.trip_s(s);
            self.there
                .is_open(s, chain.there.packets[s], trip_s, self.now[s].link_s, pace_s)
                && self.back.is_open(
                    s + 1,
                    chain.back.packets[s],
                    trip_s,
                    self.now[s + 1].back_link_s,
                    pace_s,
                )
        })
    }

    /// Seconds by which all that is known of the stages is later than what was kept of an earlier step; 0 if not alike.
    ///
    /// Then the steps go round: what follows is the same again, so much later. What no stage waits for does not matter.
    #[inline]
    fn later_s(&self) -> f64 {
        let last = self.now.len() - 1;
        let passed_s = self.now[0].free_s - self.kept[0].free_s;
        let slack_s = ALIKE * self.now[0].free_s;
        let is_alike = |now_s: f64, kept_s: f64| (now_s - kept_s - passed_s).abs() <= slack_s;
        for (s, (now, kept)) in self.now.iter().zip(&self.kept).enumerate() {
            if !is_alike(now.free_s, kept.free_s)
                || (s > 0 && !is_alike(now.arrived_s, kept.arrived_s))
                || (s < last && !is_alike(now.link_s, kept.link_s))
                || (s < last && !is_alike(now.back_arrived_s, kept.back_arrived_s))
                || (s > 0 && !is_alike(now.back_link_s, kept.back_link_s))
            {
                return 0.0;
            }
        }
        passed_s
    }

    fn wait(&mut self, seconds: f64) {
        for known in &mut self.now {
            known.free_s += seconds;
            known.arrived_s += seconds;
            known.link_s += seconds;
            known.back_arrived_s += seconds;
            known.back_link_s += seconds;
        }
    }

    /// In step j each stage s computes forward pass j - s; then all backward passes follow, one after the other.
    fn gpipe(&mut self, num: usize, chain: &Chain, overlap: bool, ends_s: &mut [f64]) {
        let last = chain.num_stages() - 1;
        for j in 0..num + last {
            self.forward((j + 1).saturating_sub(num), last.min(j), chain, overlap);
        }
        for _ in 0..num {
            self.backward(chain, overlap, ends_s);
        }
    }

    /// Steps in which all that a block waits for is known: step j - (P - 1) computes forward pass j - s on each stage s,
    /// which waits for the step before of the stage before it, then backward pass j - (P - 1) from the last stage to the
    /// first.
    ///
    /// Once all stages are as they were some steps ago, only later, what lies between is repeated without being computed;
    /// the earlier step they are compared with is the 1st, the 2nd, the 4th, ... (Brent 1980).
    fn one_forward_one_backward(&mut self, num: usize, chain: &Chain, overlap: bool, ends_s: &mut [f64]) {
        let last = chain.num_stages() - 1;
        for j in 0..last {
            self.forward((j + 1).saturating_sub(num), j, chain, overlap);
        }
        // the last steps write the ends
        let (mut j, mut since, mut until, mut num_alike) = (0, 0, 1, num.saturating_sub(last.max(1)));
        while j < num {
            self.forward((j + 1 + last).saturating_sub(num), last, chain, overlap);
            self.backward(chain, overlap, ends_s);
            j += 1;
            if j >= num_alike {
                continue;
            }
            let passed_s = if j > 1 { self.later_s() } else { 0.0 };
            if passed_s > 0.0 && self.are_open(chain, passed_s / (j - since) as f64) {
                let repeats = (num_alike - j) / (j - since);
                self.wait(repeats as f64 * passed_s);
                (j, num_alike) = (j + repeats * (j - since), 0);
            } else if j == until {
                self.kept.copy_from_slice(&self.now);
                (since, until) = (j, 2 * j);
            }
        }
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
        chain_ends(0.0, num, false, chain, overlap, ends_s);
        let begin_s = ends_s[chain.num_stages() - 1];
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

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(forward_s: &[f64], send_s: f64, latency_s: &[f64]) -> Chain {
        let mut made = Chain::of(forward_s.len());
        made.forward_s.copy_from_slice(forward_s);
        made.backward_s = forward_s.iter().map(|seconds| 2.0 * seconds).collect();
        for ways in [&mut made.there, &mut made.back] {
            ways.send_s.fill(send_s);
            ways.latency_s[..latency_s.len()].copy_from_slice(latency_s);
        }
        made
    }

    fn end_s(schedule: Schedule, num: usize, chain: &Chain, overlap: bool) -> f64 {
        pipeline_ends(
            schedule,
            num,
            chain,
            overlap,
            &mut vec![0.0; chain.num_stages()],
            &mut Progress::default(),
        )
    }

    #[test]
    fn two_stages_end_when_the_last_gradient_has_come_back() {
        let two = chain(&[1.0, 1.0], 0.0, &[0.0]);
        assert_eq!(end_s(Schedule::OneForwardOneBackward, 2, &two, true), 9.0);
    }

    #[test]
    fn one_forward_one_backward_waits_for_a_way_with_each_turn_and_gpipe_once_there_and_back() {
        let four = chain(&[10.0; 4], 0.0, &[0.0, 40.0, 0.0]);
        assert_eq!(
            end_s(Schedule::OneForwardOneBackward, 8, &four, true),
            330.0 + 8.0 * 40.0
        );
        assert_eq!(end_s(Schedule::Gpipe, 8, &four, true), 330.0 + 2.0 * 40.0);
    }

    #[test]
    fn steps_that_are_repeated_are_those_that_are_computed_one_by_one() {
        let uneven = chain(&[1.0, 1.7, 0.3], 0.1, &[0.4, 2.0]);
        for num in 1..60 {
            let mut one_by_one = Progress::default();
            one_by_one.clear(3);
            let mut ends_s = [0.0; 3];
            for j in 0..2 {
                one_by_one.forward((j + 1_usize).saturating_sub(num), j, &uneven, true);
            }
            for j in 0..num {
                one_by_one.forward((j + 3).saturating_sub(num), 2, &uneven, true);
                one_by_one.backward(&uneven, true, &mut ends_s);
            }
            let found_s = end_s(Schedule::OneForwardOneBackward, num, &uneven, true);
            let expected_s = ends_s.iter().copied().fold(0.0, max);
            assert!(
                (found_s / expected_s - 1.0).abs() < 1e-12,
                "{num}: {found_s} is not {expected_s}"
            );
        }
    }

    #[test]
    fn no_pipeline_ends_before_its_bound_and_equal_stages_end_at_it() {
        let equal = chain(&[1.0; 5], 0.0, &[]);
        let uneven = chain(&[1.0, 7.0, 0.3], 0.4, &[2.0, 0.1]);
        for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
            assert!((least_s(schedule, 40, &equal) / 132.0 - 1.0).abs() < 1e-12);
            for num in 1..40 {
                assert!(least_s(schedule, num, &uneven) <= end_s(schedule, num, &uneven, true) * (1.0 + 1e-12));
            }
        }
    }

    #[test]
    fn a_stage_that_cannot_overlap_waits_for_what_it_sends() {
        let mut two = chain(&[1.0, 1.0], 0.5, &[]);
        two.backward_s.fill(1.0);
        assert_eq!(end_s(Schedule::Gpipe, 2, &two, true), 7.0);
        assert_eq!(end_s(Schedule::Gpipe, 2, &two, false), 8.0);
    }
}
