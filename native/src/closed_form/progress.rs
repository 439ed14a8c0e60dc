//! A pipeline's passes one after another, as recurrences over micro-batches.

use super::arrays::max;
use super::pipeline::Stage;
use crate::windows::opened_s;

/// Of the time passed: how far two steps may be from alike, for rounding.
const ALIKE: f64 = 1e-13;

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

    /// When a transfer that begins at `begin_s` may have left a stage.
    fn opened_s(&mut self, s: usize, packets: f64, trip_s: f64, begin_s: f64) -> f64 {
        opened_s(
            &mut self.sent,
            &mut self.room,
            &mut self.opened_s,
            s,
            packets,
            trip_s,
            begin_s,
        )
    }

    /// Whether none holds back what follows a stage's transfers, the last of which left at `link_s`, at one micro-batch
    /// in `pace_s`: from then on as much again as has been sent takes a round trip at least, after which it may be twice
    /// as much.
    fn is_open(&self, s: usize, packets: f64, trip_s: f64, link_s: f64, pace_s: f64) -> bool {
        packets <= 0.0 || (self.sent[s] * pace_s >= packets * trip_s && self.opened_s[s] + trip_s <= link_s)
    }
}

/// Scratch of the recurrences. `COLD`: whether some ways have windows that must grow.
#[derive(Clone, Default)]
pub struct Progress {
    now: Vec<Known>,
    /// As `now`, of an earlier step.
    kept: Vec<Known>,
    there: Windows,
    back: Windows,
}

impl Progress {
    fn clear<const COLD: bool>(&mut self, num_stages: usize) {
        self.now.clear();
        self.now.resize(num_stages, Known::default());
        self.kept.resize(num_stages, Known::default());
        if COLD {
            self.there.clear(num_stages);
            self.back.clear(num_stages);
        }
    }

    /// The next forward pass of stages high .. low, and its transfer; each waits for the one before, a call ago.
    #[inline]
    fn forward<const COLD: bool>(&mut self, low: usize, high: usize, chain: &[Stage], overlap: bool) {
        let now = &mut self.now[..chain.len()];
        for s in (low..=high).rev() {
            let (known, stage) = (&mut now[s], &chain[s]);
            let end_s = max(known.free_s, known.arrived_s) + stage.forward_s;
            known.free_s = end_s;
            if s + 1 < chain.len() {
                let begin_s = max(end_s, known.link_s);
                let mut left_s = begin_s + stage.there.send_s;
                if COLD {
                    left_s = max(
                        left_s,
                        self.there.opened_s(s, stage.there.packets, stage.trip_s(), begin_s),
                    );
                }
                known.link_s = left_s;
                let arrived_s = left_s + stage.there.latency_s;
                if !overlap {
                    known.free_s = arrived_s;
                }
                now[s + 1].arrived_s = arrived_s;
            }
        }
    }

    /// The next backward pass of all stages, from the last to the first, and its transfer.
    #[inline]
    fn backward<const COLD: bool>(&mut self, chain: &[Stage], overlap: bool, ends_s: &mut [f64]) {
        let (now, ends_s) = (&mut self.now[..chain.len()], &mut ends_s[..chain.len()]);
        for s in (0..chain.len()).rev() {
            let known = &mut now[s];
            let end_s = max(known.free_s, known.back_arrived_s) + chain[s].backward_s;
            ends_s[s] = end_s;
            known.free_s = end_s;
            if s > 0 {
                let before = &chain[s - 1];
                let begin_s = max(end_s, known.back_link_s);
                let mut left_s = begin_s + before.back.send_s;
                if COLD {
                    left_s = max(
                        left_s,
                        self.back.opened_s(s, before.back.packets, before.trip_s(), begin_s),
                    );
                }
                known.back_link_s = left_s;
                let arrived_s = left_s + before.back.latency_s;
                if !overlap {
                    known.free_s = arrived_s;
                }
                now[s - 1].back_arrived_s = arrived_s;
            }
        }
    }

    /// Whether no window holds back what follows, at one micro-batch in `pace_s`.
    fn are_open(&self, chain: &[Stage], pace_s: f64) -> bool {
        chain.iter().enumerate().take(chain.len() - 1).all(|(s, stage)| {
            let trip_s = stage.trip_s();
            self.there
                .is_open(s, stage.there.packets, trip_s, self.now[s].link_s, pace_s)
                && self
                    .back
                    .is_open(s + 1, stage.back.packets, trip_s, self.now[s + 1].back_link_s, pace_s)
        })
    }

    /// Seconds by which all that is known of the stages is later than what was kept of an earlier step; 0 if not alike.
    ///
    /// Then the steps go round: what follows is the same again, so much later. What no stage waits for does not matter.
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

    /// Writes when each stage's last backward pass ends under GPipe: in step j each stage s computes forward pass j - s;
    /// then all backward passes follow, one after the other.
    pub fn gpipe(&mut self, num: usize, chain: &[Stage], overlap: bool, ends_s: &mut [f64]) {
        let last = chain.len() - 1;
        self.clear::<true>(chain.len());
        for j in 0..num + last {
            self.forward::<true>((j + 1).saturating_sub(num), last.min(j), chain, overlap);
        }
        for _ in 0..num {
            self.backward::<true>(chain, overlap, ends_s);
        }
    }

    /// Writes when each stage's last backward pass ends under 1F1B, by steps in which all that a block waits for is
    /// known: forward pass j + P - 1 - s on each stage s, which waits for the step before of the stage before it, then
    /// backward pass j from the last stage to the first.
    ///
    /// Once all stages are as they were some steps ago, only later, what lies between is repeated without being
    /// computed; the earlier step they are compared with is the 1st, the 2nd, the 4th, ... (Brent 1980).
    pub fn one_forward_one_backward<const COLD: bool>(
        &mut self,
        num: usize,
        chain: &[Stage],
        overlap: bool,
        ends_s: &mut [f64],
    ) {
        let last = chain.len() - 1;
        self.clear::<COLD>(chain.len());
        for j in 0..last {
            self.forward::<COLD>((j + 1).saturating_sub(num), j, chain, overlap);
        }
        // the last steps write the ends
        let (mut j, mut since, mut until, mut num_alike) = (0, 0, 1, num.saturating_sub(last.max(1)));
        while j < num {
            self.forward::<COLD>((j + 1 + last).saturating_sub(num), last, chain, overlap);
            self.backward::<COLD>(chain, overlap, ends_s);
            j += 1;
            if j >= num_alike {
                continue;
            }
            let passed_s = if j > 1 { self.later_s() } else { 0.0 };
            if passed_s > 0.0 && (!COLD || self.are_open(chain, passed_s / (j - since) as f64)) {
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

#[cfg(test)]
mod tests {
    use super::super::pipeline::Way;
    use super::*;

    #[test]
    fn steps_that_are_repeated_are_those_that_are_computed_one_by_one() {
        let way = |latency_s: f64| Way {
            send_s: 0.1,
            latency_s,
            packets: 0.0,
        };
        let uneven = [(1.0, 0.4), (1.7, 2.0), (0.3, 0.0)].map(|(forward_s, latency_s)| Stage {
            forward_s,
            backward_s: 2.0 * forward_s,
            there: way(latency_s),
            back: way(latency_s),
        });
        for num in 1..60 {
            let (mut one_by_one, mut expected_s) = (Progress::default(), [0.0; 3]);
            one_by_one.clear::<false>(3);
            for j in 0..num + 2 {
                one_by_one.forward::<false>((j + 1_usize).saturating_sub(num), j.min(2), &uneven, true);
                if j >= 2 {
                    one_by_one.backward::<false>(&uneven, true, &mut expected_s);
                }
            }
            let mut found_s = [0.0; 3];
            Progress::default().one_forward_one_backward::<false>(num, &uneven, true, &mut found_s);
            for (found_s, expected_s) in found_s.iter().zip(expected_s) {
                assert!(
                    (found_s / expected_s - 1.0).abs() < 1e-12,
                    "{num}: {found_s} is not {expected_s}"
                );
            }
        }
    }
}
