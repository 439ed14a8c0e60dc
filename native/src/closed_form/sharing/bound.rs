//! What a replica's pipeline cannot end before because what its transfers draw on carries no more a second.
//!
//! ```text
//! end >= until the first byte comes + bytes of those that share it / bytes a second + from the last byte on
//! ```
//!
//! Of n replicas that share, the one looked at waits for as many bytes of each other as it sends itself, at most.

use super::super::arrays::{Schedule, max, min};
use super::super::pipeline::Stage;
use super::super::resources::{Flow, Resources};

/// Forward, then back: under GPipe one follows the other.
const PHASES: usize = 2;

/// What is known of a scarce resource in one phase, or in a step under 1F1B.
#[derive(Clone, Copy)]
struct Use {
    /// When its first byte comes, at the earliest, in seconds from the phase's beginning.
    begin_s: f64,
    bytes: f64,
    num_replicas: u32,
    /// Of the replica that is looked at: its own bytes, and seconds from its last byte to the phase's end, at least.
    own_bytes: f64,
    drain_s: f64,
}

const NOTHING: Use = Use {
    begin_s: f64::INFINITY,
    bytes: 0.0,
    num_replicas: 0,
    own_bytes: 0.0,
    drain_s: f64::INFINITY,
};

/// Seconds before and after a replica's transfers, by boundary.
#[derive(Default)]
struct Around {
    before_there: Vec<f64>,
    after_there: Vec<f64>,
    before_back: Vec<f64>,
    after_back: Vec<f64>,
}

impl Around {
    /// Of one micro-batch on its way through all stages and back; under GPipe of either phase for itself.
    fn update(&mut self, chain: &[Stage], schedule: Schedule) {
        let last = chain.len() - 1;
        for row in [
            &mut self.before_there,
            &mut self.after_there,
            &mut self.before_back,
            &mut self.after_back,
        ] {
            row.clear();
            row.resize(last, 0.0);
        }
        let mut passed_s = 0.0;
        for s in 0..last {
            passed_s += chain[s].forward_s;
            self.before_there[s] = passed_s;
            passed_s += chain[s].there.send_s + chain[s].there.latency_s;
        }
        let forward_s = passed_s + chain[last].forward_s;
        let mut back_s = 0.0;
        for s in (0..last).rev() {
            back_s += chain[s + 1].backward_s;
            self.before_back[s] = back_s;
            back_s += chain[s].back.send_s + chain[s].back.latency_s;
        }
        back_s += chain[0].backward_s;
        let is_apart = schedule == Schedule::Gpipe;
        for s in 0..last {
            let sent_s = chain[s].there.send_s;
            self.after_there[s] = forward_s - self.before_there[s] - sent_s + if is_apart { 0.0 } else { back_s };
            self.after_back[s] = back_s - self.before_back[s] - chain[s].back.send_s;
            if !is_apart {
                self.before_back[s] += forward_s;
            }
        }
    }

    fn before_s(&self, flow: &Flow) -> f64 {
        let before_s = [&self.before_there, &self.before_back];
        before_s[usize::from(flow.is_back)][flow.boundary]
    }

    fn after_s(&self, flow: &Flow) -> f64 {
        let after_s = [&self.after_there, &self.after_back];
        after_s[usize::from(flow.is_back)][flow.boundary]
    }
}

/// Bounds of all replicas, and scratch.
#[derive(Default)]
pub struct Bounds {
    uses: Vec<[Use; PHASES]>,
    around: Around,
}

impl Bounds {
    /// Nothing is known of any resource.
    pub fn clear(&mut self, num_resources: usize) {
        self.uses.clear();
        self.uses.resize(num_resources, [NOTHING; PHASES]);
    }

    /// Puts a replica's transfers on what they draw on.
    pub fn load(&mut self, schedule: Schedule, chain: &[Stage], flows: &[Flow], resources: &Resources) {
        self.around.update(chain, schedule);
        self.each(schedule, flows, resources, |used, flow, around| {
            used.begin_s = min(used.begin_s, around.before_s(flow));
            used.bytes += flow.step_bytes;
            used.num_replicas += u32::from(used.own_bytes == 0.0);
            used.own_bytes += flow.step_bytes;
        });
        self.each(schedule, flows, resources, |used, _, _| used.own_bytes = 0.0);
    }

    /// Seconds that a replica's forward and backward phases take at least; under 1F1B the first are those of the step.
    pub fn least_s(
        &mut self,
        schedule: Schedule,
        chain: &[Stage],
        flows: &[Flow],
        resources: &Resources,
    ) -> [f64; PHASES] {
        self.around.update(chain, schedule);
        self.each(schedule, flows, resources, |used, flow, around| {
            used.own_bytes += flow.step_bytes;
            used.drain_s = min(used.drain_s, around.after_s(flow));
        });
        let mut least_s = [0.0; PHASES];
        for flow in flows {
            for r in flow.used().filter(|&r| resources.resources[r].is_scarce()) {
                for (used, least_s) in self.uses[r].iter_mut().zip(&mut least_s) {
                    if used.own_bytes > 0.0 {
                        let bytes = min(used.bytes, f64::from(used.num_replicas) * used.own_bytes);
                        let busy_s = bytes / resources.resources[r].bytes_per_s;
                        *least_s = max(*least_s, used.begin_s + busy_s + used.drain_s);
                        (used.own_bytes, used.drain_s) = (0.0, f64::INFINITY);
                    }
                }
            }
        }
        least_s
    }

    /// Visits what is scarce of all that transfers draw on.
    fn each(
        &mut self,
        schedule: Schedule,
        flows: &[Flow],
        resources: &Resources,
        mut visit: impl FnMut(&mut Use, &Flow, &Around),
    ) {
        for flow in flows {
            let phase = usize::from(flow.is_back && schedule == Schedule::Gpipe);
            for r in flow.used().filter(|&r| resources.resources[r].is_scarce()) {
                visit(&mut self.uses[r][phase], flow, &self.around);
            }
        }
    }
}
