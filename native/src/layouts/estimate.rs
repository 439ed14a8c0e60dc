//! What a job's step takes on so many accelerators of each pool: constructed layouts, priced as any other.
//!
//! Machines of the pools are laid along a short tour of their regions, cut into stages and replicas of a few shapes, and
//! each layout is evaluated by the closed form that all searches go by. Nothing is searched; that makes it quick.

use crate::closed_form::arrays::{Layout, Rows, Setting};
use crate::closed_form::cache::Cache;
use crate::closed_form::evaluate::evaluate;
use crate::closed_form::price::{lacking_cells, price_per_s};
use crate::closed_form::shares::num_batches_of_all;
use crate::layouts::construct::construct;
use crate::layouts::pools::{Pools, cells_for, cells_of, common_divisor, is_by_rows, tour_of};

/// Added to the logarithm where memory, price or a pin forbids the layout.
const IMPOSSIBLE: f64 = 100.0;

/// In place of it where there are too few cells for any layout.
const TOO_FEW: f64 = 200.0;

/// Accelerators at least and at most, and replicas where their number is asked for (else 0).
#[derive(Clone, Copy)]
pub struct Limits {
    pub least: usize,
    pub most: usize,
    pub data: usize,
}

/// The logarithm of the cost of each shape: stages, eighths of the replicas there is room for, way of cutting.
pub fn estimate(
    setting: &Setting,
    both_rr: Rows,
    pools: &Pools,
    shapes_s3: Rows<'_, i64>,
    num_shapes: usize,
    limits: Limits,
) -> Vec<f64> {
    let mut weight_r = vec![0.0; setting.num_regions()];
    for (pool, &first) in pools.first.iter().enumerate() {
        if pools.usable[pool] >= setting.tensor as i64 {
            weight_r[setting.region(first as usize)] += pools.counts[pool] as f64;
        }
    }
    let tour = tour_of(both_rr, &weight_r);
    let order = cells_of(setting, pools, &tour);
    let value = |number: usize| {
        let [stages, eighths, way] = [0, 1, 2].map(|column| shapes_s3.at(number, column) as usize);
        let cells = cells_for(setting, &order, stages, way);
        let each = stages * setting.tensor;
        let room = (cells.len() / stages)
            .min(num_batches_of_all(setting))
            .min(limits.most / each);
        let together = setting.worker_cells / common_divisor(setting.worker_cells, stages);
        let whole = (room * eighths / 8 / together * together).max(1);
        let replicas = if limits.data > 0 { limits.data } else { whole };
        if replicas > room || replicas * each < limits.least {
            let lacking = (replicas * each)
                .max(limits.least)
                .saturating_sub(cells.len() * setting.tensor);
            return TOO_FEW + lacking as f64 / limits.least.max(1) as f64;
        }
        let mut layout = Layout {
            machines: vec![0; replicas * stages],
            num_stages: stages,
            first: vec![0; stages + 1],
            shares: vec![1; replicas],
            tour: tour.clone(),
        };
        constructed(setting, &mut layout, &cells, is_by_rows(way))
    };
    (0..num_shapes).map(value).collect()
}

/// The logarithm of a constructed layout's cost.
fn constructed(setting: &Setting, layout: &mut Layout, cells: &[usize], by_rows: bool) -> f64 {
    construct(setting, layout, cells, by_rows);
    let (num_regions, num_machines) = (setting.num_regions(), setting.num_machines());
    let mut cache = Cache::new(layout.num_replicas(), layout.num_stages, num_regions, num_machines);
    let cost = evaluate(setting, layout, &mut cache);
    if !cost.is_finite() {
        return IMPOSSIBLE + 50.0;
    }
    let is_within = cache.excess_dp.values.iter().sum::<f64>() <= 0.0
        && price_per_s(setting, layout) <= setting.price_limit
        && lacking_cells(setting, layout, &mut cache.cells_m) == 0;
    cost.ln() + if is_within { 0.0 } else { IMPOSSIBLE }
}
