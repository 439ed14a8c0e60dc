//! Which layers each stage of a pipeline gets: the split whose period is shortest.
//!
//! Under 1F1B a micro-batch goes forward and back over stages a .. b while each computes b - a + 1 micro-batches. So the
//! period, seconds from micro-batch to micro-batch, is the longest mean of such windows: what a micro-batch meets in
//! one, computing and transfers forward and back, by the window's number of stages. Beside a slow link stages must
//! compute less than the period, to leave time for the way. Under GPipe, whose forward passes do not wait for backward
//! ones, only computing counts.

use crate::closed_form::arrays::{Grid, Layout, Schedule, Setting, max, min};
use crate::closed_form::memory::memory_bytes;
use crate::closed_form::shares::num_batches;

/// From one period that is too short to the next that is tried.
const GROWTH: f64 = 1.5;

/// Of what lies between the last two: half a thousandth of the period is left.
const HALVINGS: usize = 10;

/// In place of seconds that are left: there is no such split.
const NEVER: f64 = -1.0;

/// Of the way behind each stage, forward and back, means of replicas; (P). 0 where a stage does not wait for it.
pub struct RoundTrips {
    pub seconds: Vec<f64>,
    pub seconds_per_byte: Vec<f64>,
}

impl RoundTrips {
    /// Those of replicas on these machines, row after row: none under GPipe, and none behind the last stage.
    pub fn of(setting: &Setting, machines: &[usize], num_stages: usize) -> Self {
        let mut found = Self {
            seconds: vec![0.0; num_stages],
            seconds_per_byte: vec![0.0; num_stages],
        };
        if setting.schedule == Schedule::Gpipe {
            return found;
        }
        let num_replicas = (machines.len() / num_stages) as f64;
        for stage in 0..num_stages - 1 {
            for row in machines.chunks_exact(num_stages) {
                let (here, there) = (row[stage], row[stage + 1]);
                for (source, target) in [(here, there), (there, here)] {
                    let (latency_s, flow) = setting.pair(source, target);
                    if flow > 0.0 {
                        found.seconds[stage] += latency_s / num_replicas;
                        found.seconds_per_byte[stage] += 1.0 / flow / num_replicas;
                    }
                }
            }
        }
        found
    }
}

/// Seconds that a machine of a kind computes layers `first .. last` of one micro-batch, forward and back.
pub fn micro_batch_seconds(setting: &Setting, kind: usize, first: usize, last: usize) -> f64 {
    let forward_s = setting.forward_kj.at(kind, last) - setting.forward_kj.at(kind, first);
    let backward_s = setting.backward_kj.at(kind, last) - setting.backward_kj.at(kind, first);
    backward_s + if setting.recompute { 2.0 * forward_s } else { forward_s }
}

/// Splits the layers so that the period is shortest, by the mean speed and links of each stage's machines.
///
/// Where memory lacks whatever the split, it is split as if there were enough.
pub fn split_layers(setting: &Setting, layout: &mut Layout) {
    let num_layers = setting.num_layers();
    let mut stages = Stages::of(setting, layout);
    if !stages.is_held() {
        stages.last_pj.values.fill(num_layers);
    }
    let whole_p: Vec<f64> = (0..layout.num_stages)
        .map(|stage| stages.seconds_pj.at(stage, num_layers))
        .collect();
    let (mut low_s, mut high_s) = (0.0, 1.0 / whole_p.iter().map(|seconds| 1.0 / seconds).sum::<f64>());
    while !stages.fits(setting, &mut layout.first, high_s) && high_s < f64::INFINITY {
        let longer_s = if high_s > 0.0 {
            GROWTH * high_s
        } else {
            whole_p.iter().copied().fold(0.0, max)
        };
        (low_s, high_s) = (high_s, longer_s);
    }
    for _ in 0..if low_s > 0.0 { HALVINGS } else { 0 } {
        let middle_s = f64::midpoint(low_s, high_s);
        if stages.fits(setting, &mut layout.first, middle_s) {
            high_s = middle_s;
        } else {
            low_s = middle_s;
        }
    }
}

/// What a split is looked for by, and scratch.
struct Stages {
    /// Of each stage's machines the mean seconds of the first j layers; (P, J).
    seconds_pj: Grid,
    /// The layer up to which each stage's memory holds those from each first one on, not included; (P, J).
    last_pj: Grid<usize>,
    ways: RoundTrips,
    /// The first layer of the stage whose layers end at j, in the best split of all stages up to it; (P, J).
    before_pj: Grid<usize>,
    /// What the worst window that ends before a stage, the way to it included, leaves of the stage's period, by the
    /// stage's first layer: the most of all splits before. (J)
    left_j: Vec<f64>,
    next_j: Vec<f64>,
}

impl Stages {
    fn of(setting: &Setting, layout: &Layout) -> Self {
        let (num_stages, width) = (layout.num_stages, setting.num_layers() + 1);
        let (seconds_pj, memory_p) = means(setting, layout);
        Self {
            seconds_pj,
            last_pj: last_held(setting, &memory_p, num_batches(setting, layout, 0)),
            ways: RoundTrips::of(setting, &layout.machines, num_stages),
            before_pj: Grid::filled(num_stages, width, 0),
            left_j: vec![NEVER; width],
            next_j: vec![NEVER; width],
        }
    }

    /// Whether the stages hold all layers: each, one after another, as many as it can, one at least.
    fn is_held(&self) -> bool {
        let (num_stages, num_layers) = (self.last_pj.num_rows(), self.last_pj.width() - 1);
        let mut first = 0;
        for stage in 0..num_stages {
            let last = self.last_pj.at(stage, first).min(num_layers - (num_stages - 1 - stage));
            if last <= first {
                return false;
            }
            first = last;
        }
        first == num_layers
    }

    /// Whether a split has at most this period and fits the memory; then `first_p` becomes it.
    ///
    /// Each stage gets one layer at least.
    fn fits(&mut self, setting: &Setting, first_p: &mut [usize], period_s: f64) -> bool {
        let (num_stages, num_layers) = (self.last_pj.num_rows(), self.last_pj.width() - 1);
        self.left_j.fill(NEVER);
        self.left_j[0] = period_s;
        let (mut low, mut high) = (0, 0);
        for stage in 0..num_stages {
            let reached = self.extend(setting, stage, low..=high, period_s);
            if reached == 0 {
                return false;
            }
            (low, high) = (undominated(&mut self.next_j, stage + 1, reached), reached);
            std::mem::swap(&mut self.left_j, &mut self.next_j);
        }
        if self.left_j[num_layers] < 0.0 {
            return false;
        }
        first_p[num_stages] = num_layers;
        for stage in (0..num_stages).rev() {
            first_p[stage] = self.before_pj.at(stage, first_p[stage + 1]);
        }
        true
    }

    /// Gives a stage layers behind each first one that is open; the farthest layer it ends at, 0 where there is none.
    fn extend(
        &mut self,
        setting: &Setting,
        stage: usize,
        firsts: std::ops::RangeInclusive<usize>,
        period_s: f64,
    ) -> usize {
        let (num_stages, num_layers) = (self.last_pj.num_rows(), self.last_pj.width() - 1);
        let most = num_layers - (num_stages - 1 - stage);
        let (way_s, way_s_per_byte) = (self.ways.seconds[stage], self.ways.seconds_per_byte[stage]);
        let (seconds_j, before_j) = (self.seconds_pj.row(stage), self.before_pj.row_mut(stage));
        self.next_j.fill(NEVER);
        let mut reached = 0;
        for first in firsts {
            if self.left_j[first] < 0.0 {
                continue;
            }
            for last in first + 1..=most.min(self.last_pj.at(stage, first)) {
                let over_s = self.left_j[first] - (seconds_j[last] - seconds_j[first]);
                if over_s < 0.0 {
                    break;
                }
                let left_s = min(
                    period_s,
                    period_s + over_s - way_s - way_s_per_byte * setting.output_l[last - 1],
                );
                if left_s > self.next_j[last] {
                    self.next_j[last] = left_s;
                    before_j[last] = first;
                }
                reached = reached.max(last);
            }
        }
        reached
    }
}

/// The layer up to which each stage's memory holds those from each first one on, not included; (P, J).
///
/// With one layer less in front it holds as many at least.
fn last_held(setting: &Setting, memory_p: &[f64], num: usize) -> Grid<usize> {
    let (num_stages, num_layers) = (memory_p.len(), setting.num_layers());
    let mut last_pj = Grid::filled(num_stages, num_layers + 1, num_layers);
    for (stage, &memory) in memory_p.iter().enumerate() {
        let mut last = 0;
        for first in 0..num_layers {
            last = last.max(first);
            while last < num_layers && memory_bytes(setting, first, last + 1, stage, num_stages, num) <= memory {
                last += 1;
            }
            *last_pj.at_mut(stage, first) = last;
        }
    }
    last_pj
}

/// Of each stage's machines the mean seconds of the first j layers, (P, J), and the least memory in bytes, (P).
fn means(setting: &Setting, layout: &Layout) -> (Grid, Vec<f64>) {
    let (num_replicas, num_stages) = (layout.num_replicas(), layout.num_stages);
    let mut seconds_pj = Grid::filled(num_stages, setting.num_layers() + 1, 0.0);
    let mut memory_p = vec![f64::INFINITY; num_stages];
    let num_forward = if setting.recompute { 2.0 } else { 1.0 };
    let mut share_k = vec![0.0; setting.memory_k.len()];
    for stage in 0..num_stages {
        share_k.fill(0.0);
        for replica in 0..num_replicas {
            share_k[setting.kind(layout.machine(replica, stage))] += 1.0 / num_replicas as f64;
        }
        for (kind, &share) in share_k.iter().enumerate() {
            if share > 0.0 {
                memory_p[stage] = min(memory_p[stage], setting.memory_k[kind]);
                let both_j = setting.forward_kj.row(kind).iter().zip(setting.backward_kj.row(kind));
                for (seconds, (forward_s, backward_s)) in seconds_pj.row_mut(stage).iter_mut().zip(both_j) {
                    *seconds += share * (num_forward * forward_s + backward_s);
                }
            }
        }
    }
    (seconds_pj, memory_p)
}

/// Strikes out whoever has fewer layers behind it, and no more time left, than another; the first of those that are left.
fn undominated(left_j: &mut [f64], low: usize, high: usize) -> usize {
    let (mut most, mut lowest) = (NEVER, high);
    for j in (low..=high).rev() {
        if left_j[j] > most && left_j[j] >= 0.0 {
            (most, lowest) = (left_j[j], j);
        } else {
            left_j[j] = NEVER;
        }
    }
    lowest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed_form::testing::World;

    #[test]
    fn layers_go_by_the_speed_of_machines() {
        let world = World {
            speeds: vec![1.0, 3.0],
            ..World::of(2)
        };
        let mut layout = world.layout(1, 2);
        split_layers(&world.setting(), &mut layout);
        assert_eq!(layout.first, [0, 2, 8]);
    }

    #[test]
    fn those_that_leave_no_more_time_for_fewer_layers_are_struck_out() {
        let mut left_j = [NEVER, 1.0, 3.0, 2.0, NEVER];
        assert_eq!(undominated(&mut left_j, 1, 4), 2);
        assert_eq!(left_j, [NEVER, NEVER, 3.0, 2.0, NEVER]);
    }
}
