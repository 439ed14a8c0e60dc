//! What crosses links between regions in a step, and how long that keeps them busy.

use super::arrays::{Grid, Layout, Setting, max};

/// Bytes on each region link.
pub struct Loads {
    /// Of all machines.
    all_rr: Grid,
    /// Of machines that have no link of their own there; not kept where none has any.
    inherited_rr: Grid,
}

impl Loads {
    pub fn of(num_regions: usize) -> Self {
        let nothing = Grid::filled(num_regions, num_regions, 0.0);
        Self {
            all_rr: nothing.clone(),
            inherited_rr: nothing,
        }
    }

    pub fn clear(&mut self, setting: &Setting) {
        self.all_rr.values.fill(0.0);
        if setting.has_own_links() {
            self.inherited_rr.values.fill(0.0);
        }
    }

    /// Puts what one machine sends another on the link between their regions.
    #[inline]
    pub fn add(&mut self, setting: &Setting, source: usize, target: usize, num_bytes: f64) {
        let (a, b) = (setting.region(source), setting.region(target));
        *self.all_rr.at_mut(a, b) += num_bytes;
        let has_own = || setting.own_qq.at(setting.place(source), setting.place(target)) < f64::INFINITY;
        if setting.has_own_links() && !has_own() {
            *self.inherited_rr.at_mut(a, b) += num_bytes;
        }
    }

    /// Seconds that a link is busy with all flows of its region pair.
    pub fn carried_s(&self, setting: &Setting, a: usize, b: usize) -> f64 {
        self.all_rr.at(a, b) / setting.carried_rr.at(a, b)
    }

    /// Seconds that a link is busy with all that crosses it, and with what has no own link there.
    pub fn link_s(&self, setting: &Setting, a: usize, b: usize) -> f64 {
        let inherited_rr = if setting.has_own_links() {
            &self.inherited_rr
        } else {
            &self.all_rr
        };
        max(
            self.carried_s(setting, a, b),
            inherited_rr.at(a, b) / setting.capacity_rr.at(a, b),
        )
    }

    /// Seconds of the busiest uplink, out or in.
    pub fn busiest_uplink_s(&self, setting: &Setting) -> f64 {
        let mut worst_s = 0.0;
        for (a, &uplink) in setting.uplink_r.iter().enumerate() {
            if uplink < f64::INFINITY {
                worst_s = max(
                    worst_s,
                    max(row_sum(&self.all_rr, a), column_sum(&self.all_rr, a)) / uplink,
                );
            }
        }
        worst_s
    }

    /// Seconds of the busiest region link or uplink.
    pub fn busiest_s(&self, setting: &Setting) -> f64 {
        let mut worst_s = self.busiest_uplink_s(setting);
        for a in 0..setting.num_regions() {
            for b in 0..setting.num_regions() {
                if self.all_rr.at(a, b) > 0.0 {
                    worst_s = max(worst_s, self.link_s(setting, a, b));
                }
            }
        }
        worst_s
    }
}

pub fn row_sum(grid: &Grid, number: usize) -> f64 {
    grid.row(number).iter().sum()
}

pub fn column_sum(grid: &Grid, number: usize) -> f64 {
    (0..grid.num_rows()).map(|row| grid.at(row, number)).sum()
}

/// Bytes that a replica's stages send over one boundary in a step: of each sequence what the last layer before it gives.
#[inline]
pub fn boundary_bytes(setting: &Setting, layout: &Layout, replica: usize, stage: usize) -> f64 {
    layout.shares[replica] as f64 / setting.micro_batch as f64 * setting.output_l[layout.first[stage + 1] - 1]
}

/// Seconds that the activations and gradients of a step keep the busiest region link or uplink busy.
pub fn crossing_seconds(setting: &Setting, layout: &Layout, loads: &mut Loads) -> f64 {
    if layout.num_stages == 1 {
        return 0.0;
    }
    let mut has_crossed = false;
    for replica in 0..layout.num_replicas() {
        for (stage, ends) in layout.row(replica).windows(2).enumerate() {
            let (a, b) = (ends[0], ends[1]);
            if setting.region(a) == setting.region(b) {
                continue;
            }
            if !has_crossed {
                loads.clear(setting);
                has_crossed = true;
            }
            let num_bytes = boundary_bytes(setting, layout, replica, stage);
            loads.add(setting, a, b, num_bytes);
            loads.add(setting, b, a, num_bytes);
        }
    }
    if has_crossed { loads.busiest_s(setting) } else { 0.0 }
}
