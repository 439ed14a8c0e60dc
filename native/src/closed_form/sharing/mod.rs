//! Pipelines whose transfers share links: of several replicas, of several boundaries, in both directions.
//!
//! Alone each pipeline is timed exactly (`pipeline`). Beside others
//!
//! ```text
//! 1. a transfer is as slow as those of the same boundary and direction of all replicas make it, which go in step
//! 2. the pipeline is timed with these rates, as exactly
//! 3. it ends no sooner than what its transfers draw on has carried all that shares it in a step (`bound`)
//! ```
//!
//! Transfers of several boundaries take turns: where what they share is busy, 3 holds, and where it is idle, they hardly
//! meet. Where nothing is scarce (`resources`) a pipeline takes what it takes alone.

mod bound;
#[cfg(test)]
mod tests;

use super::arrays::{Grid, Layout, Schedule, Setting, max};
use super::pipeline::{Stage, forward_ends, pipeline_ends};
use super::progress::Progress;
use super::resources::Resources;
use super::shares::{filled, num_batches};
use bound::Bounds;

/// What was timed, and the schedule's figures that it was timed with.
#[derive(Clone, Default, PartialEq)]
struct Timed {
    chain: Vec<Stage>,
    num: usize,
    is_gpipe: bool,
    overlap: bool,
}

/// When cells end whose transfers share links, and scratch.
pub struct Sharing {
    /// When the last backward pass of each cell ends, in seconds; (D, P).
    pub ends_dp: Grid,
    resources: Resources,
    bounds: Bounds,
    /// By replica what was timed last with slowed transfers, and when its cells ended.
    timed: Vec<Timed>,
    timed_dp: Grid,
    /// By replica when its forward passes ended.
    forward_d: Vec<f64>,
    slowed: Vec<Timed>,
}

impl Sharing {
    pub fn of(num_replicas: usize, num_stages: usize, num_regions: usize, num_machines: usize) -> Self {
        let nothing = Grid::filled(num_replicas, num_stages, 0.0);
        Self {
            ends_dp: nothing.clone(),
            resources: Resources::of(num_regions, num_machines),
            bounds: Bounds::default(),
            timed: vec![Timed::default(); num_replicas],
            timed_dp: nothing,
            forward_d: vec![0.0; num_replicas],
            slowed: vec![Timed::default(); num_replicas],
        }
    }

    /// Finds what layouts have in common that are to be shared; whether anything that transfers share is scarce.
    pub fn is_any_scarce(&mut self, setting: &Setting, layout: &Layout) -> bool {
        layout.num_stages > 1
            && self.resources.update(setting, layout, |replica, boundary| {
                let output = setting.output_l[layout.first[boundary + 1] - 1];
                let batch = filled(setting, layout, replica) * output;
                (batch, batch * num_batches(setting, layout, replica) as f64)
            })
    }

    /// Times all replicas with what they share, after `is_any_scarce`; `chains`: each alone, `alone_dp`: when its cells
    /// end then.
    pub fn update(
        &mut self,
        setting: &Setting,
        layout: &Layout,
        chains: &[Vec<Stage>],
        alone_dp: &Grid,
        progress: &mut Progress,
    ) {
        self.resources.share();
        let num_flows = 2 * (layout.num_stages - 1);
        self.bounds.clear(self.resources.resources.len());
        for replica in 0..layout.num_replicas() {
            let flows = &self.resources.flows[replica * num_flows..][..num_flows];
            let slowed = &mut self.slowed[replica];
            slowed.chain.clone_from(&chains[replica]);
            for flow in flows.iter().filter(|flow| flow.batch_bytes > 0.0 && flow.rate > 0.0) {
                let stage = &mut slowed.chain[flow.boundary];
                let way = if flow.is_back {
                    &mut stage.back
                } else {
                    &mut stage.there
                };
                way.send_s = flow.batch_bytes / flow.rate;
            }
            slowed.num = num_batches(setting, layout, replica);
            (slowed.is_gpipe, slowed.overlap) = (setting.schedule == Schedule::Gpipe, setting.overlap);
            self.bounds
                .load(setting.schedule, &slowed.chain, flows, &self.resources);
        }
        for replica in 0..layout.num_replicas() {
            self.time(setting, replica, &chains[replica], alone_dp, progress);
            let flows = &self.resources.flows[replica * num_flows..][..num_flows];
            let slowed = &self.slowed[replica];
            let [forward_s, back_s] = self
                .bounds
                .least_s(setting.schedule, &slowed.chain, flows, &self.resources);
            let (end_s, forward_end_s) = (self.ends_dp.at(replica, 0), self.forward_d[replica]);
            let late_s = if slowed.is_gpipe {
                max(0.0, forward_s - forward_end_s) + max(0.0, back_s - (end_s - forward_end_s))
            } else {
                max(0.0, forward_s - end_s)
            };
            for cell_s in self.ends_dp.row_mut(replica) {
                *cell_s += late_s;
            }
        }
    }

    /// Times a replica with its slowed transfers, unless that is known: of itself, or of the replica before.
    fn time(&mut self, setting: &Setting, replica: usize, alone: &[Stage], alone_dp: &Grid, progress: &mut Progress) {
        let slowed = &self.slowed[replica];
        if self.timed[replica] != *slowed {
            let width = self.timed_dp.width();
            if replica > 0 && self.timed[replica - 1] == *slowed {
                let before = (replica - 1) * width..replica * width;
                self.timed_dp.values.copy_within(before, replica * width);
                self.forward_d[replica] = self.forward_d[replica - 1];
            } else {
                let ends_s = self.timed_dp.row_mut(replica);
                if slowed.is_gpipe {
                    self.forward_d[replica] = forward_ends(slowed.num, &slowed.chain, slowed.overlap, ends_s);
                }
                if slowed.chain == alone {
                    ends_s.copy_from_slice(alone_dp.row(replica));
                } else {
                    pipeline_ends(
                        setting.schedule,
                        slowed.num,
                        &slowed.chain,
                        slowed.overlap,
                        ends_s,
                        progress,
                    );
                }
            }
            self.timed[replica].clone_from(slowed);
        }
        self.ends_dp.copy_row(replica, &self.timed_dp);
    }
}
