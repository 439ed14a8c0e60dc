//! The machines of shares of pools, along a short tour of their regions, and which of their cells a layout uses.

use crate::closed_form::arrays::{Rows, Setting, max, min};

/// Ways of cutting cells into stages and replicas are numbered: by columns 0, by rows 1; with `ALIGNED` added no row or
/// column is in two regions.
pub const ALIGNED: usize = 2;

/// Whether a way cuts by rows.
pub fn is_by_rows(way: usize) -> bool {
    way % ALIGNED == 1
}

/// Accelerators of each pool: how many of it, how many of one machine are usable, and its first machine. (P)
pub struct Pools<'a> {
    pub counts: &'a [i64],
    pub usable: &'a [i64],
    pub first: &'a [i64],
}

/// Regions with a weight as a closed walk: from the heaviest on the nearest, put where its worse edge is best.
///
/// `both_rr`: seconds between two regions, the worse way.
pub fn tour_of(both_rr: Rows, weight_r: &[f64]) -> Vec<usize> {
    let mut left: Vec<usize> = (0..weight_r.len()).filter(|&region| weight_r[region] > 0.0).collect();
    let mut tour: Vec<usize> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let (mut nearest, mut near_s) = (0, f64::NAN);
        for (k, &region) in left.iter().enumerate() {
            let seconds = if tour.is_empty() {
                -weight_r[region]
            } else {
                tour.iter()
                    .map(|&other| both_rr.at(region, other))
                    .fold(f64::INFINITY, min)
            };
            if k == 0 || seconds < near_s {
                (nearest, near_s) = (k, seconds);
            }
        }
        let new = left.remove(nearest);
        let (mut place, mut worst_s) = (tour.len(), f64::INFINITY);
        for (k, &region) in tour.iter().enumerate() {
            let seconds = max(both_rr.at(region, new), both_rr.at(new, tour[(k + 1) % tour.len()]));
            if seconds < worst_s {
                (place, worst_s) = (k + 1, seconds);
            }
        }
        tour.insert(place, new);
    }
    tour
}

/// The machine of every cell, along the tour. Pools of a region lie one after the other, in their order.
pub fn cells_of(setting: &Setting, pools: &Pools, tour: &[usize]) -> Vec<usize> {
    let tensor = setting.tensor;
    let mut order = Vec::new();
    for &region in tour {
        for (pool, &first) in pools.first.iter().enumerate() {
            let (mut left, mut machine, usable) = (pools.counts[pool], first as usize, pools.usable[pool]);
            if setting.region(machine) != region {
                continue;
            }
            while left > 0 {
                let num = left.min(usable) as usize / tensor / setting.worker_cells * setting.worker_cells;
                order.extend(std::iter::repeat_n(machine, num));
                left -= usable;
                machine += 1;
            }
        }
    }
    order
}

/// The cells that a way of cutting uses: all, or as many of each region as fill its rows or columns.
pub fn cells_for(setting: &Setting, order: &[usize], num_stages: usize, way: usize) -> Vec<usize> {
    if way < ALIGNED {
        return order.to_vec();
    }
    let mut count_r = vec![0; setting.num_regions()];
    for &machine in order {
        count_r[setting.region(machine)] += 1;
    }
    let mut unit = num_stages;
    if !is_by_rows(way) {
        unit = (order.len() / num_stages).max(1);
        while unit > 1 && count_r.iter().map(|num| num / unit).sum::<usize>() < num_stages {
            unit -= 1;
        }
    }
    let unit = least_multiple(unit, setting.worker_cells);
    for num in &mut count_r {
        *num = *num / unit * unit;
    }
    let mut used = order.to_vec();
    used.retain(|&machine| {
        let left = &mut count_r[setting.region(machine)];
        let has_room = *left > 0;
        *left -= usize::from(has_room);
        has_room
    });
    used
}

/// The least common multiple.
pub fn least_multiple(a: usize, b: usize) -> usize {
    a / common_divisor(a, b) * b
}

/// The greatest common divisor (Euclid).
pub fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed_form::arrays::Grid;
    use crate::closed_form::testing::World;

    #[test]
    fn a_tour_goes_from_the_heaviest_to_the_nearest() {
        let mut both_rr = Grid::filled(4, 4, 9.0);
        for (a, b) in [(0, 1), (1, 2), (2, 3), (3, 0)] {
            *both_rr.at_mut(a, b) = 1.0;
            *both_rr.at_mut(b, a) = 1.0;
        }
        let tour = tour_of(Rows::new(&both_rr.values, 4), &[1.0, 5.0, 1.0, 0.0]);
        assert_eq!(tour, [1, 2, 0]);
        assert_eq!(least_multiple(4, 6), 12);
    }

    #[test]
    fn cells_that_fill_no_row_are_left_out() {
        let world = World {
            num_regions: 2,
            ..World::of(4)
        };
        let order = [0, 0, 0, 1, 1];
        assert_eq!(cells_for(&world.setting(), &order, 2, 1), order);
        assert_eq!(cells_for(&world.setting(), &order, 2, ALIGNED + 1), [0, 0, 1, 1]);
    }
}
