//! How long Hulk's own all-reduce between regions takes, about.

use super::arrays::{Setting, WAN, max};
use super::groups::Groups;

/// What it takes over its bound, measured on a quiet machine: docs/benchmarks/all-reduce.md.
const OVER_BOUND: f64 = 1.08;

/// Seconds of the only stage's all-reduce; infinite where it may not be used or there is no way.
///
/// B bytes of each sum must leave each of the stage's regions and reach it, over all its links to the others together, each link
/// carrying its part by rate, and cross the farthest pair once.
///
/// ```text
/// 1.08 max over regions (latency to the farthest + max(inside, busiest link, B / uplink))
/// ```
pub fn wan_seconds(setting: &Setting, groups: &Groups) -> f64 {
    if setting.transports & WAN == 0 || groups.bytes_p.len() > 1 {
        return f64::INFINITY;
    }
    let regions = regions_of(setting, groups);
    let num_bytes = sum_bytes(setting, groups) * setting.wire_share;
    let rates: Vec<(f64, f64)> = regions.iter().map(|&region| rates(setting, &regions, region)).collect();
    let mut slowest_s = 0.0;
    for (&here, &(out, into)) in regions.iter().zip(&rates) {
        let inside_s = inside_s(setting, groups, here);
        let (mut latency_s, mut out_s, mut into_s) = (0.0, 0.0, 0.0);
        for (&there, &(out_there, into_there)) in regions.iter().zip(&rates) {
            if there == here {
                continue;
            }
            latency_s = max(latency_s, setting.latency_rr.at(here, there));
            if setting.flow_rr.at(here, there) > 0.0 {
                out_s = max(out_s, max(num_bytes / out, num_bytes / into_there));
            }
            if setting.flow_rr.at(there, here) > 0.0 {
                into_s = max(into_s, max(num_bytes / out_there, num_bytes / into));
            }
        }
        if out_s == 0.0 || into_s == 0.0 {
            return f64::INFINITY;
        }
        let busy_s = max(max(out_s, into_s), num_bytes / setting.uplink_r[here]);
        slowest_s = max(slowest_s, OVER_BOUND * (latency_s + max(inside_s, busy_s)));
    }
    groups.sums_p[0] * slowest_s
}

/// Price of the bytes that it sends between R regions, about: of B bytes 2 (R - 1) / R leave each region, the least
/// there is, by the rates of its links. Between two regions that is what its flows send.
pub fn wan_price(setting: &Setting, groups: &Groups) -> f64 {
    let regions = regions_of(setting, groups);
    let num = regions.len() as f64;
    let num_bytes = 2.0 * (num - 1.0) / num * cell_bytes(setting, groups) * setting.wire_share;
    let mut price = 0.0;
    for &here in &regions {
        let (out, _) = rates(setting, &regions, here);
        for &there in regions.iter().filter(|&&there| there != here) {
            price += num_bytes * rate(setting, here, there) / out * setting.egress_rr.at(here, there);
        }
    }
    price
}

/// What all ranks of a cell sum together, each group of ranks its part, over the same links.
fn cell_bytes(setting: &Setting, groups: &Groups) -> f64 {
    groups.bytes_p[0] * setting.tensor as f64
}

/// Of these what they sum at a time.
fn sum_bytes(setting: &Setting, groups: &Groups) -> f64 {
    cell_bytes(setting, groups) / groups.sums_p[0]
}

/// The regions of the only stage's cells.
fn regions_of(setting: &Setting, groups: &Groups) -> Vec<usize> {
    (0..setting.num_regions())
        .filter(|&region| groups.count_at(0, region) > 0)
        .collect()
}

/// Bytes a second that all links from a region to the others carry together, and all links from them to it.
fn rates(setting: &Setting, regions: &[usize], here: usize) -> (f64, f64) {
    let others = || regions.iter().copied().filter(|&there| there != here);
    (
        others().map(|there| rate(setting, here, there)).sum(),
        others().map(|there| rate(setting, there, here)).sum(),
    )
}

/// Bytes a second that the link between two regions carries; 0 where it must not be used.
fn rate(setting: &Setting, source: usize, target: usize) -> f64 {
    if setting.flow_rr.at(source, target) > 0.0 {
        setting.capacity_rr.at(source, target)
    } else {
        0.0
    }
}

/// Seconds of the ring between a region's cells.
fn inside_s(setting: &Setting, groups: &Groups, region: usize) -> f64 {
    let num_cells = groups.count_at(0, region);
    if num_cells < 2 {
        return 0.0;
    }
    let (near_s, flow) = groups.inside(setting, 0, region);
    let sent = 2.0 * f64::from(num_cells - 1) / f64::from(num_cells) * sum_bytes(setting, groups);
    2.0 * near_s + if flow > 0.0 { sent / flow } else { f64::INFINITY }
}
