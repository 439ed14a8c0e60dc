//! Layouts made outright: machines in an order become stages with layers and micro-batches.
//!
//! The order says what is near: machine after machine, region after region. By rows it is cut into replicas, so that
//! pipelines stay within regions and gradients cross between them; by columns into stages, so that activations cross and
//! gradients stay.

use crate::closed_form::arrays::{Layout, Setting, max};
use crate::closed_form::shares::num_batches_of_all;
use crate::layouts::layer_split::{RoundTrips, micro_batch_seconds, split_layers};

/// Of the seconds in which all micro-batches are computed.
const HALVINGS: usize = 14;

/// Fills a layout, whose shape says replicas and stages, with the machines of an order, best layers and shares.
pub fn construct(setting: &Setting, layout: &mut Layout, order: &[usize], by_rows: bool) {
    let (num_replicas, num_stages) = (layout.num_replicas(), layout.num_stages);
    for replica in 0..num_replicas {
        for stage in 0..num_stages {
            let number = if by_rows {
                replica * num_stages + stage
            } else {
                stage * num_replicas + replica
            };
            *layout.machine_mut(replica, stage) = order[number];
        }
    }
    layout
        .shares
        .fill((num_batches_of_all(setting) / num_replicas).max(1) * setting.micro_batch);
    split_layers(setting, layout);
    share_sequences(setting, layout);
}

/// Of each replica, whose n micro-batches take fill + n x period: seconds; (D).
struct Paces {
    fill_d: Vec<f64>,
    period_d: Vec<f64>,
}

impl Paces {
    fn of(setting: &Setting, layout: &Layout) -> Self {
        let each = (0..layout.num_replicas()).map(|replica| fill_and_period(setting, layout, replica));
        let (fill_d, period_d) = each.unzip();
        Self { fill_d, period_d }
    }

    fn seconds(&self, replica: usize, num: usize) -> f64 {
        self.fill_d[replica] + num as f64 * self.period_d[replica]
    }

    /// The replica that takes longest, of those with more than one; the first where none has.
    fn slowest(&self, num_d: &[usize]) -> usize {
        let (mut slowest, mut worst_s) = (0, -1.0);
        for (replica, &num) in num_d.iter().enumerate() {
            if num > 1 && self.seconds(replica, num) > worst_s {
                (slowest, worst_s) = (replica, self.seconds(replica, num));
            }
        }
        slowest
    }

    /// Gives each replica the micro-batches that it computes within the limit, one at least, `most` at most; how many
    /// that is.
    fn take(&self, num_d: &mut [usize], limit_s: f64, most: usize) -> usize {
        for (num, (fill_s, period_s)) in num_d.iter_mut().zip(self.fill_d.iter().zip(&self.period_d)) {
            *num = (((limit_s - fill_s) / period_s) as usize).clamp(1, most);
        }
        num_d.iter().sum()
    }
}

/// Shares the sequences so that the slowest replica is quickest: each takes fill + micro-batches x period.
///
/// All have whole micro-batches, but for what the last one lacks, which is taken, sequence by sequence, from whoever is
/// slowest then. Where shares are to be equal, what does not divide goes to the quickest.
fn share_sequences(setting: &Setting, layout: &mut Layout) {
    let num_replicas = layout.num_replicas();
    let mut paces = Paces::of(setting, layout);
    if setting.is_equal {
        let base = setting.global_batch / num_replicas;
        layout.shares.fill(base);
        let mut order: Vec<usize> = (0..num_replicas).collect();
        order.sort_by(|&a, &b| paces.period_d[a].total_cmp(&paces.period_d[b]));
        for &replica in &order[..setting.global_batch - base * num_replicas] {
            layout.shares[replica] += 1;
        }
        return;
    }
    let (num, size) = (num_batches_of_all(setting), setting.micro_batch);
    let mut num_d = vec![1; num_replicas];
    let longest = |seconds_d: &[f64]| seconds_d.iter().copied().fold(0.0, max);
    let (mut low_s, mut high_s) = (
        0.0,
        longest(&paces.fill_d) + (num + 1) as f64 * longest(&paces.period_d),
    );
    for _ in 0..HALVINGS {
        let middle_s = f64::midpoint(low_s, high_s);
        if paces.take(&mut num_d, middle_s, num) >= num {
            high_s = middle_s;
        } else {
            low_s = middle_s;
        }
    }
    for _ in num..paces.take(&mut num_d, high_s, num) {
        let slowest = paces.slowest(&num_d);
        num_d[slowest] -= 1;
    }
    for (share, num) in layout.shares.iter_mut().zip(&num_d) {
        *share = num * size;
    }
    for period_s in &mut paces.period_d {
        *period_s /= size as f64;
    }
    for _ in setting.global_batch..num * size {
        let slowest = paces.slowest(&layout.shares);
        layout.shares[slowest] -= 1;
    }
}

/// What the first micro-batch of one replica takes beyond the period, and the seconds from micro-batch to micro-batch.
///
/// The period is the longest mean of the windows that `layer_split` knows; a fill waits for no way under GPipe.
fn fill_and_period(setting: &Setting, layout: &Layout, replica: usize) -> (f64, f64) {
    let machines = layout.row(replica);
    let ways = RoundTrips::of(setting, machines, layout.num_stages);
    let stages = machines.iter().zip(layout.first.windows(2));
    let block_p: Vec<f64> = stages
        .map(|(&machine, ends)| micro_batch_seconds(setting, setting.kind(machine), ends[0], ends[1]))
        .collect();
    let bytes = layout.first[1..].iter().map(|&high| setting.output_l[high - 1]);
    let trips = ways.seconds.iter().zip(&ways.seconds_per_byte);
    let way_p: Vec<f64> = trips
        .zip(bytes)
        .map(|((way_s, per_byte), num_bytes)| way_s + per_byte * num_bytes)
        .collect();
    let mut period_s = 0.0;
    for first in 0..layout.num_stages {
        let mut window_s = 0.0;
        for last in first..layout.num_stages {
            window_s += block_p[last];
            period_s = max(period_s, window_s / (last - first + 1) as f64);
            window_s += way_p[last];
        }
    }
    (block_p.iter().chain(&way_p).sum::<f64>() - period_s, period_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed_form::testing::World;

    #[test]
    fn sequences_go_by_the_speed_of_replicas_and_none_is_lost() {
        let world = World {
            speeds: vec![1.0, 3.0],
            global_batch: 16,
            ..World::of(2)
        };
        let mut layout = world.layout(2, 1);
        construct(&world.setting(), &mut layout, &[0, 1], true);
        assert_eq!(layout.shares, [4, 12]);
    }

    #[test]
    fn rows_are_replicas_and_columns_are_stages() {
        let world = World::of(4);
        let mut layout = world.layout(2, 2);
        construct(&world.setting(), &mut layout, &[0, 1, 2, 3], true);
        assert_eq!(layout.machines, [0, 1, 2, 3]);
        construct(&world.setting(), &mut layout, &[0, 1, 2, 3], false);
        assert_eq!(layout.machines, [0, 2, 1, 3]);
    }
}
