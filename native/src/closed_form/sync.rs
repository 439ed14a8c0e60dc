//! How long the replicas' all-reduces take: of all stages at the same time, by the quickest way there is.

use super::arrays::{GLOO, Layout, Setting};
use super::groups::Groups;
use super::rings::Rings;
use super::wan::wan_seconds;

/// What is known of a layout's all-reduces.
pub struct Sums {
    pub groups: Groups,
    /// Seconds of each stage's.
    pub sync_p: Vec<f64>,
    /// Whether they are Hulk's own.
    pub is_wan: bool,
    rings: Rings,
    two_p: Vec<f64>,
}

impl Sums {
    pub fn of(num_stages: usize, num_regions: usize, num_machines: usize) -> Self {
        Self {
            groups: Groups::of(num_stages, num_regions, num_machines),
            sync_p: vec![0.0; num_stages],
            is_wan: false,
            rings: Rings::of(num_stages, num_regions, num_machines),
            two_p: vec![0.0; num_stages],
        }
    }

    /// Finds the seconds of each stage's all-reduce by whichever way makes the slowest of them quickest.
    ///
    /// gloo's rings in one bucket or, of a single stage, in two, or Hulk's own, where they may be used. Hulk's own is for
    /// replicas that are apart, in several regions, and have no stages. Infinite where there is no way.
    pub fn update(&mut self, setting: &Setting, layout: &Layout) {
        if layout.num_replicas() == 1 {
            self.sync_p.fill(0.0);
            return;
        }
        self.groups.update(setting, layout);
        self.rings.share(layout, &self.groups);
        let is_apart = self.groups.are_apart(setting, layout);
        let mut quickest_s = f64::INFINITY;
        self.is_wan = false;
        if setting.transports & GLOO != 0 || !is_apart {
            quickest_s = self.rings.seconds(setting, layout, &self.groups, 1, &mut self.sync_p);
            if layout.num_stages == 1 && !setting.sums_by_layer {
                let two_s = self.rings.seconds(setting, layout, &self.groups, 2, &mut self.two_p);
                if two_s < quickest_s {
                    quickest_s = two_s;
                    self.sync_p.copy_from_slice(&self.two_p);
                }
            }
        }
        if is_apart {
            let wan_s = wan_seconds(setting, &self.groups);
            if wan_s < quickest_s {
                quickest_s = wan_s;
                self.is_wan = true;
                self.sync_p[0] = wan_s;
            }
        }
        if quickest_s == f64::INFINITY {
            self.sync_p.fill(f64::INFINITY);
        }
    }
}
