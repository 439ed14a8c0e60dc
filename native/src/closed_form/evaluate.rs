//! What a layout costs: the closed form that all searches go by, and that `hulk_placement.cost.predict` agrees with.
//!
//! ```text
//! step = max over stages s of (last backward pass of any replica's stage s + all-reduce of its gradients)
//! ```
//!
//! Pipelines are timed exactly, each with the rates that its transfers have beside those of the others (`pipeline`,
//! `sharing`). Gradients of all stages are reduced at the same time, over rings that follow one
//! tour.

use super::arrays::{Layout, Setting, max};
use super::cache::Cache;
use super::memory::memory_bytes;
use super::pipeline::{Way, least_s, pipeline_ends};
use super::price::{egress_price, lacking_cells, price_per_s};
use super::shares::{filled, num_batches};
use super::tied::tied_seconds;
use crate::windows::packets_of;

/// What a cell of twice its memory adds to the cost, in times the cost, twice the price that is allowed, and a cell that
/// a worker lacks. A layer where it must not be weighs more (`setting.BANNED`): the way back leads downhill.
const EXCESS_COST: f64 = 10.0;

/// Weighs one replica's cells, and its stages and ways, into the cache.
pub fn weigh_replica(setting: &Setting, layout: &Layout, cache: &mut Cache, replica: usize) {
    let (machines, first, num) = (
        layout.row(replica),
        &layout.first,
        num_batches(setting, layout, replica),
    );
    let (num_stages, size) = (layout.num_stages, filled(setting, layout, replica));
    cache.is_weighed_d[replica] = true;
    let cells = cache.chains[replica].iter_mut().zip(cache.excess_dp.row_mut(replica));
    for (s, ((stage, excess), &machine)) in cells.zip(machines).enumerate() {
        let (kind, low, high) = (setting.kind(machine), first[s], first[s + 1]);
        let (forward_j, backward_j) = (setting.forward_kj.row(kind), setting.backward_kj.row(kind));
        stage.forward_s = size * (forward_j[high] - forward_j[low]);
        stage.backward_s = size * (backward_j[high] - backward_j[low]);
        if setting.recompute {
            stage.backward_s += stage.forward_s;
        }
        let need = memory_bytes(setting, low, high, s, num_stages, num);
        *excess = max(0.0, need / setting.memory_k[kind] - 1.0);
        if setting.has_bans() {
            *excess += setting.banned_mj.at(machine, high) - setting.banned_mj.at(machine, low);
        }
        if let Some(&next) = machines.get(s + 1) {
            let num_bytes = size * setting.output_l[high - 1];
            stage.there = way(setting, machine, next, num_bytes);
            stage.back = way(setting, next, machine, num_bytes);
        }
    }
}

/// What it takes to send so many bytes from one machine to another.
#[inline]
fn way(setting: &Setting, source: usize, target: usize, num_bytes: f64) -> Way {
    let (latency_s, flow) = setting.pair(source, target);
    let send_s = if flow > 0.0 { num_bytes / flow } else { f64::INFINITY };
    Way {
        send_s,
        latency_s,
        packets: cold_packets(setting, source, target, num_bytes),
    }
}

/// Packets on each connection of what one machine sends another; 0 where their windows are open.
#[inline]
fn cold_packets(setting: &Setting, source: usize, target: usize, num_bytes: f64) -> f64 {
    let is_cold = setting.is_cold_k[setting.kind(source)] && setting.region(source) != setting.region(target);
    if is_cold { packets_of(num_bytes) } else { 0.0 }
}

/// Times the pipeline of a replica that was weighed, alone on its links, into the cache; when it ends.
pub fn end_replica(setting: &Setting, layout: &Layout, cache: &mut Cache, replica: usize) -> f64 {
    let num = num_batches(setting, layout, replica);
    let (chain, ends_p) = (&cache.chains[replica], cache.alone_dp.row_mut(replica));
    if let [only] = chain.as_slice() {
        ends_p[0] = num as f64 * (only.forward_s + only.backward_s);
        return ends_p[0];
    }
    pipeline_ends(
        setting.schedule,
        num,
        chain,
        setting.overlap,
        ends_p,
        &mut cache.progress,
    )
}

/// What no layout costs less than that has a replica that was weighed: its own seconds, and what it lacks.
pub fn least_cost(setting: &Setting, layout: &Layout, cache: &Cache, replica: usize) -> f64 {
    let seconds = least_s(
        setting.schedule,
        num_batches(setting, layout, replica),
        &cache.chains[replica],
    );
    cost_from(setting, layout, cache, replica, seconds)
}

/// What no layout costs less than that has a replica that was weighed and ends so late.
pub fn cost_from(setting: &Setting, layout: &Layout, cache: &Cache, replica: usize, end_s: f64) -> f64 {
    floor(setting, layout, end_s, cache.excess_dp.row(replica).iter().sum())
}

/// What no layout costs less than that takes so long at least and lacks so much at least.
fn floor(setting: &Setting, layout: &Layout, seconds: f64, excess: f64) -> f64 {
    let cost = if setting.is_money {
        seconds * price_per_s(setting, layout)
    } else {
        seconds
    };
    cost * (1.0 + EXCESS_COST * excess)
}

/// The cost of a layout whose replicas have been timed: seconds, or price, of a step; more where memory lacks.
///
/// Infinite where a link must not be used. `is_moved`: cells, layers or the tour have changed since the all-reduces were
/// timed last; they are not timed where the cost is more than `most` whatever they take, and then the answer is `None`.
pub fn combine(setting: &Setting, layout: &Layout, cache: &mut Cache, is_moved: bool, most: f64) -> Option<f64> {
    let (mut alone_s, mut excess) = (0.0, 0.0);
    for (&end_s, &lacking) in cache.alone_dp.values.iter().zip(&cache.excess_dp.values) {
        alone_s = max(alone_s, end_s);
        excess += lacking;
    }
    if floor(setting, layout, alone_s, excess) > most {
        return None;
    }
    share_links(setting, layout, cache);
    let mut last_s = 0.0;
    for stage in 0..layout.num_stages {
        let mut ready_s = 0.0;
        for replica in 0..layout.num_replicas() {
            ready_s = max(ready_s, cache.sharing.ends_dp.at(replica, stage));
        }
        cache.ready_p[stage] = ready_s;
        last_s = max(last_s, ready_s);
    }
    if last_s > alone_s && floor(setting, layout, last_s, excess) > most {
        return None;
    }
    if is_moved {
        cache.sums.update(setting, layout);
    }
    let step_s = step_seconds(setting, layout, cache, last_s);
    if setting.price_limit < f64::INFINITY {
        excess += max(0.0, price_per_s(setting, layout) / setting.price_limit - 1.0);
    }
    excess += lacking_cells(setting, layout, &mut cache.cells_m) as f64;
    let cost = if setting.is_money {
        step_s * price_per_s(setting, layout) + egress_price(setting, layout, &cache.sums)
    } else {
        step_s
    };
    Some(cost * (1.0 + EXCESS_COST * excess))
}

/// Finds when the cells of all replicas that have been timed alone end beside each other.
pub fn share_links(setting: &Setting, layout: &Layout, cache: &mut Cache) {
    if !cache.sharing.is_any_scarce(setting, layout) {
        cache.sharing.ends_dp.values.copy_from_slice(&cache.alone_dp.values);
        return;
    }
    for replica in 0..layout.num_replicas() {
        if !cache.is_weighed_d[replica] {
            weigh_replica(setting, layout, cache, replica);
        }
    }
    let Cache {
        sharing,
        chains,
        alone_dp,
        progress,
        ..
    } = cache;
    sharing.update(setting, layout, chains, alone_dp, progress);
}

/// Seconds of a step whose pipelines end after `last_s`: without overlap, or where several steps share one all-reduce,
/// this begins when all stages are ready.
fn step_seconds(setting: &Setting, layout: &Layout, cache: &mut Cache, last_s: f64) -> f64 {
    let sync_p = &cache.sums.sync_p;
    let summed_s = if setting.overlap && setting.inner_steps == 1 {
        cache
            .ready_p
            .iter()
            .zip(sync_p)
            .map(|(ready_s, sync_s)| ready_s + sync_s)
            .fold(0.0, max)
    } else {
        last_s + sync_p.iter().copied().fold(0.0, max)
    };
    let mut step_s = last_s;
    if setting.inner_steps == 1 {
        step_s = max(step_s, summed_s);
    } else {
        step_s += max(0.0, summed_s - step_s) / setting.inner_steps as f64;
    }
    step_s + tied_seconds(setting, setting, layout, &mut cache.ties)
}

/// Whether a replica takes as long, and needs as much, as the one before.
fn is_alike(setting: &Setting, layout: &Layout, replica: usize) -> bool {
    if layout.shares[replica] != layout.shares[replica - 1] || setting.has_bans() {
        return false;
    }
    let (here, there) = (layout.row(replica), layout.row(replica - 1));
    (0..layout.num_stages).all(|s| {
        let (a, b) = (here[s], there[s]);
        let is_same = setting.kind(a) == setting.kind(b) && setting.place(a) == setting.place(b);
        is_same && (s == 0 || (a == here[s - 1]) == (b == there[s - 1]))
    })
}

/// Times and weighs all replicas, each alone on its links.
pub fn time_alone(setting: &Setting, layout: &Layout, cache: &mut Cache) {
    for replica in 0..layout.num_replicas() {
        if replica > 0 && is_alike(setting, layout, replica) {
            let width = layout.num_stages;
            for grid in [&mut cache.alone_dp, &mut cache.excess_dp] {
                grid.values
                    .copy_within((replica - 1) * width..replica * width, replica * width);
            }
            let (before, after) = cache.chains.split_at_mut(replica);
            after[0].copy_from_slice(&before[replica - 1]);
            cache.is_weighed_d[replica] = true;
        } else {
            weigh_replica(setting, layout, cache, replica);
            end_replica(setting, layout, cache, replica);
        }
    }
}

/// The cost of a layout, from nothing.
pub fn evaluate(setting: &Setting, layout: &Layout, cache: &mut Cache) -> f64 {
    time_alone(setting, layout, cache);
    combine(setting, layout, cache, true, f64::INFINITY).unwrap_or(f64::INFINITY)
}
