//! What a layout's cells and traffic are paid, and how many cells its workers lack.

use super::arrays::{Layout, Setting};
use super::groups::Groups;
use super::links::boundary_bytes;
use super::rings::edges;
use super::tied::tied_price;

/// Price of all cells for a second.
pub fn price_per_s(setting: &Setting, layout: &Layout) -> f64 {
    layout
        .machines
        .iter()
        .map(|&machine| setting.price_k[setting.kind(machine)])
        .sum()
}

/// Price of the bytes that a step sends between regions; all-reduces as gloo's rings: 2 (D - 1) / D of their bytes over
/// each edge.
pub fn egress_price(setting: &Setting, layout: &Layout, groups: &Groups) -> f64 {
    let num_replicas = layout.num_replicas();
    let mut price = 0.0;
    for stage in 0..layout.num_stages {
        if stage + 1 < layout.num_stages {
            for replica in 0..num_replicas {
                let a = setting.region(layout.machine(replica, stage));
                let b = setting.region(layout.machine(replica, stage + 1));
                let both_ways = setting.egress_rr.at(a, b) + setting.egress_rr.at(b, a);
                price += boundary_bytes(setting, layout, replica, stage) * both_ways;
            }
        }
        if num_replicas > 1 {
            let crossing = 2.0 * (num_replicas - 1) as f64 / num_replicas as f64;
            let num_bytes = crossing * groups.bytes_p[stage] * setting.tensor as f64;
            for (a, b) in edges(groups.walk_of(stage)) {
                price += num_bytes / setting.inner_steps as f64 * setting.egress_rr.at(a, b);
            }
        }
    }
    price + tied_price(setting, layout)
}

/// How many cells more would make all machines' cells whole workers. `cells_m` is scratch.
pub fn lacking_cells(setting: &Setting, layout: &Layout, cells_m: &mut [usize]) -> usize {
    if setting.worker_cells == 1 {
        return 0;
    }
    for &machine in &layout.machines {
        cells_m[machine] = 0;
    }
    for &machine in &layout.machines {
        cells_m[machine] += 1;
    }
    let mut lacking = 0;
    for &machine in &layout.machines {
        let num = std::mem::take(&mut cells_m[machine]);
        lacking += num.next_multiple_of(setting.worker_cells) - num;
    }
    lacking
}
