//! The recurrences over micro-batches: when blocks of a pipeline end, and what leaves over its ways.

use super::super::arrays::max;
use super::Chain;
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
    pub fn clear(&mut self, num_stages: usize) {
        self.now.clear();
        self.now.resize(num_stages, Known::default());
        self.kept.clone_from(&self.now);
        self.there.clear(num_stages);
        self.back.clear(num_stages);
    }

    /// The next forward pass of stages high .. low, and its transfer; each waits for the one before, a call ago.
    #[inline]
    pub fn forward(&mut self, low: usize, high: usize, chain: &Chain, overlap: bool) {
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
    pub fn backward(&mut self, chain: &Chain, overlap: bool, ends_s: &mut [f64]) {
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
    pub fn gpipe(&mut self, num: usize, chain: &Chain, overlap: bool, ends_s: &mut [f64]) {
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
    pub fn one_forward_one_backward(&mut self, num: usize, chain: &Chain, overlap: bool, ends_s: &mut [f64]) {
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
