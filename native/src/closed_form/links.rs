//! What crosses links between regions at a step's end, and how long that keeps them busy.

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
