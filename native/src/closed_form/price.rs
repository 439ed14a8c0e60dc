//! What a layout's cells and traffic are paid, and how many cells its workers lack.

use super::arrays::{Layout, Setting};
use super::groups::Groups;
use super::links::boundary_bytes;
use super::rings::edges;
use super::sync::Sums;
use super::tied::tied_price;
use super::wan::wan_price;

/// Price of all cells for a second.
pub fn price_per_s(setting: &Setting, layout: &Layout) -> f64 {
    layout
        .machines
        .iter()
        .map(|&machine| setting.price_k[setting.kind(machine)])
        .sum()
}

/// Price of the bytes that a step sends from machine to machine, of which all-reduces bear their part.
pub fn egress_price(setting: &Setting, layout: &Layout, sums: &Sums) -> f64 {
    let reduced = if sums.is_wan {
        wan_price(setting, &sums.groups)
    } else {
        rings_price(setting, layout, &sums.groups)
    };
    boundaries_price(setting, layout) + reduced / setting.inner_steps as f64 + tied_price(setting, layout)
}

/// Of activations, and of as many bytes of gradients back.
fn boundaries_price(setting: &Setting, layout: &Layout) -> f64 {
    let mut price = 0.0;
    for stage in 1..layout.num_stages {
        for replica in 0..layout.num_replicas() {
            let (a, b) = (layout.machine(replica, stage - 1), layout.machine(replica, stage));
            let both_ways = byte_price(setting, a, b) + byte_price(setting, b, a);
            price += boundary_bytes(setting, layout, replica, stage - 1) * both_ways;
        }
    }
    price
}

/// Of gloo's rings: 2 (D - 1) / D of a stage's bytes over each edge.
fn rings_price(setting: &Setting, layout: &Layout, groups: &Groups) -> f64 {
    let num_replicas = layout.num_replicas() as f64;
    let crossing = 2.0 * (num_replicas - 1.0) / num_replicas * setting.tensor as f64;
    let stages = groups.bytes_p.iter().enumerate();
    let prices = stages.map(|(stage, num_bytes)| num_bytes * edges_price(setting, layout, groups, stage));
    crossing * prices.sum::<f64>()
}

/// Price of a byte over every edge of a stage's ring: of those between regions where none inside one costs anything.
fn edges_price(setting: &Setting, layout: &Layout, groups: &Groups, stage: usize) -> f64 {
    if (0..setting.num_regions()).any(|region| setting.egress_rr.at(region, region) > 0.0) {
        let ring = ring_machines(setting, layout, stage);
        return edges(&ring).map(|(a, b)| byte_price(setting, a, b)).sum();
    }
    edges(groups.walk_of(stage))
        .map(|(a, b)| setting.egress_rr.at(a, b))
        .sum()
}

/// The machines of a stage's ring in the order of the data, as `hulk_placement.layouts.plans.ring_of` puts replicas.
///
/// Out of line: inside regions little has a price, and with this in its midst the evaluator of all searches is slower.
#[cold]
fn ring_machines(setting: &Setting, layout: &Layout, stage: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..layout.num_replicas())
        .map(|replica| layout.machine(replica, stage))
        .collect();
    left.sort_unstable();
    let mut ring = Vec::with_capacity(left.len());
    for (visit, &region) in layout.tour.iter().enumerate() {
        let is_last = !layout.tour[visit + 1..].contains(&region);
        let mut is_full = false;
        left.retain(|&machine| {
            let is_taken = !is_full && setting.region(machine) == region;
            if is_taken {
                ring.push(machine);
                is_full = !is_last;
            }
            !is_taken
        });
    }
    ring
}

/// Price of a byte from one machine to another; inside one it costs nothing.
pub fn byte_price(setting: &Setting, source: usize, target: usize) -> f64 {
    if source == target {
        return 0.0;
    }
    setting.egress_rr.at(setting.region(source), setting.region(target))
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
