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

use super::arrays::{Schedule, max};
use super::progress::Progress;
use crate::windows::INITIAL_PACKETS;

/// What one micro-batch takes on the way over a boundary between stages, in one direction.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Way {
    /// Seconds for which a transfer keeps it.
    pub send_s: f64,
    pub latency_s: f64,
    /// Packets on each connection; 0 where windows are open.
    pub packets: f64,
}

/// What one micro-batch takes on a stage, and on the ways to the next stage and back; these count for none but the last.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Stage {
    pub forward_s: f64,
    pub backward_s: f64,
    pub there: Way,
    pub back: Way,
}

impl Stage {
    /// Seconds there and back over the boundary, without what is sent.
    #[inline]
    pub fn trip_s(&self) -> f64 {
        self.there.latency_s + self.back.latency_s
    }

    /// Seconds that one micro-batch is on the way behind the stage, there and back.
    #[inline]
    fn way_s(&self) -> f64 {
        self.there.send_s + self.there.latency_s + self.back.send_s + self.back.latency_s
    }

    /// Packets of the direction that has more of them.
    fn packets(&self) -> f64 {
        max(self.there.packets, self.back.packets)
    }
}

/// Writes when each stage's last of `num` equal passes ends that wait only for the stage before, or, back, behind it.
///
/// The first stage begins at `begin_s`. A flow shop of equal jobs: the last one meets every stage and way once, and has
/// waited for all others at the slowest so far (Johnson 1954).
fn chain_ends(begin_s: f64, num: usize, is_back: bool, chain: &[Stage], overlap: bool, ends_s: &mut [f64]) {
    let last = chain.len() - 1;
    let (mut passed_s, mut slowest_s) = (begin_s, 0.0);
    for k in 0..=last {
        let s = if is_back { last - k } else { k };
        let block_s = if is_back {
            chain[s].backward_s
        } else {
            chain[s].forward_s
        };
        let (mut sent_s, mut alone_s) = (0.0, 0.0);
        if k < last {
            let way = if is_back { chain[s - 1].back } else { chain[s].there };
            (sent_s, alone_s) = (way.send_s, way.latency_s);
        }
        slowest_s = max(slowest_s, if overlap { block_s } else { block_s + sent_s + alone_s });
        ends_s[s] = passed_s + block_s + if num > 1 { (num - 1) as f64 * slowest_s } else { 0.0 };
        passed_s += block_s + sent_s + alone_s;
        slowest_s = max(slowest_s, sent_s);
    }
}

/// Writes when each stage's last forward pass ends under GPipe, windows being open; when the last stage's does.
pub fn forward_ends(num: usize, chain: &[Stage], overlap: bool, ends_s: &mut [f64]) -> f64 {
    chain_ends(0.0, num, false, chain, overlap, ends_s);
    ends_s[chain.len() - 1]
}

/// Writes when each stage's last backward pass ends to `ends_s` (P), and returns the latest of them, in seconds.
pub fn pipeline_ends(
    schedule: Schedule,
    num: usize,
    chain: &[Stage],
    overlap: bool,
    ends_s: &mut [f64],
    progress: &mut Progress,
) -> f64 {
    let ways = &chain[..chain.len() - 1];
    let is_cold = ways.iter().any(|stage| stage.packets() > 0.0);
    // more micro-batches than the windows of silent connections let through at once
    let must_grow = is_cold && ways.iter().any(|stage| num as f64 * stage.packets() > INITIAL_PACKETS);
    match (schedule, is_cold) {
        (Schedule::OneForwardOneBackward, false) => {
            progress.one_forward_one_backward::<false>(num, chain, overlap, ends_s);
        }
        (Schedule::OneForwardOneBackward, true) => {
            progress.one_forward_one_backward::<true>(num, chain, overlap, ends_s);
        }
        (Schedule::Gpipe, _) if must_grow => progress.gpipe(num, chain, overlap, ends_s),
        (Schedule::Gpipe, _) => {
            let begin_s = forward_ends(num, chain, overlap, ends_s);
            chain_ends(begin_s, num, true, chain, overlap, ends_s);
        }
    }
    ends_s.iter().copied().fold(0.0, max)
}

/// Seconds that no pipeline of these stages ends before, however cold its windows; found sooner than its end.
///
/// The first micro-batch meets every stage and way, there and back. Then, under GPipe, the others follow it at the
/// slowest stage or way, there and back. Under 1F1B a turn goes from a backward pass of stage a through stages a .. b
/// and back, while each computes b - a + 1 micro-batches, until all have gone forward; what is left at stage a are
/// backward passes.
pub fn least_s(schedule: Schedule, num: usize, chain: &[Stage]) -> f64 {
    let last = chain.len() - 1;
    let mut whole_s = 0.0;
    for (s, stage) in chain.iter().enumerate() {
        let way_s = if s < last { stage.way_s() } else { 0.0 };
        whole_s += stage.forward_s + stage.backward_s + way_s;
    }
    if schedule == Schedule::Gpipe {
        return whole_s + (num - 1) as f64 * slowest_s(chain);
    }
    let (mut most_s, num) = (0.0, num as u32);
    for (a, first) in chain.iter().enumerate() {
        let mut turn_s = 0.0;
        for (size, (b, stage)) in (1..).zip(chain.iter().enumerate().skip(a)) {
            turn_s += stage.forward_s + stage.backward_s;
            let num_turns = (num - 1).saturating_sub((last - b) as u32) / size;
            let left = num - 1 - num_turns * size;
            most_s = max(
                most_s,
                f64::from(num_turns) * turn_s + f64::from(left) * first.backward_s,
            );
            turn_s += stage.way_s();
        }
    }
    whole_s + most_s
}

/// Seconds from micro-batch to micro-batch at the slowest stage or way forward, and at the slowest one back.
fn slowest_s(chain: &[Stage]) -> f64 {
    let (mut there_s, mut back_s) = (0.0, 0.0);
    for (s, stage) in chain.iter().enumerate() {
        there_s = max(there_s, stage.forward_s);
        back_s = max(back_s, stage.backward_s);
        if s + 1 < chain.len() {
            there_s = max(there_s, stage.there.send_s);
            back_s = max(back_s, stage.back.send_s);
        }
    }
    there_s + back_s
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(forward_s: &[f64], send_s: f64, latency_s: &[f64]) -> Vec<Stage> {
        let way = |s: usize| Way {
            send_s,
            latency_s: latency_s.get(s).copied().unwrap_or(0.0),
            packets: 0.0,
        };
        let stage = |(s, &forward_s)| Stage {
            forward_s,
            backward_s: 2.0 * forward_s,
            there: way(s),
            back: way(s),
        };
        forward_s.iter().enumerate().map(stage).collect()
    }

    fn end_s(schedule: Schedule, num: usize, chain: &[Stage], overlap: bool) -> f64 {
        pipeline_ends(
            schedule,
            num,
            chain,
            overlap,
            &mut vec![0.0; chain.len()],
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
        for stage in &mut two {
            stage.backward_s = 1.0;
        }
        assert_eq!(end_s(Schedule::Gpipe, 2, &two, true), 7.0);
        assert_eq!(end_s(Schedule::Gpipe, 2, &two, false), 8.0);
    }

    #[test]
    fn cold_windows_let_less_through_at_once() {
        let mut two = chain(&[1.0, 1.0], 0.0, &[0.5]);
        let warm_s = end_s(Schedule::Gpipe, 4, &two, true);
        two[0].there.packets = 10.0;
        // of four messages of ten packets the second and the third wait for a round trip, the fourth for two
        assert_eq!(end_s(Schedule::Gpipe, 4, &two, true), warm_s);
        two[0].there.packets = 80.0;
        assert!(end_s(Schedule::Gpipe, 4, &two, true) > warm_s);
    }
}
