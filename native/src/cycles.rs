//! Cycles over regions whose worst edge is least: where tours begin.
//!
//! A ring is as slow as its slowest edge, so what counts is the worst edge (the bottleneck travelling salesman problem).
//! Up to `MOST_EXACT_REGIONS` the optimum, by the dynamic programme over sets of Held and Karp (1962) with the maximum
//! in place of the sum:
//!
//! ```text
//! worst(S + new, new)    least over last in S of  max(worst(S, last), seconds(last, new))
//! ```
//!
//! Beyond, a cycle that no moved region and no reversed part makes better, by the sum of `(seconds / longest)^POWER`.

use numpy::PyReadonlyArray2;
use numpy::ndarray::{Array2, ArrayView2};
use pyo3::prelude::*;

/// The most regions whose best cycle is found for sure.
pub const MOST_EXACT_REGIONS: usize = 10;

/// Sums of such powers of edges stand for the worst edge where moves are compared: most moves leave the worst alone.
const POWER: f64 = 8.0;

/// In place of an edge that has no link, in units of the longest that has one.
const FAR: f64 = 1e9;

/// A sum must be less by so much of it for a move to be made.
const ROUNDING: f64 = 1e-9;

/// At most so many regions in a row are moved elsewhere.
const MOST_MOVED: usize = 3;

/// A cycle of all regions, 0 first, from the seconds of every directed edge, (R, R); infinite where there is no link.
#[pyfunction]
pub fn cycle_of(seconds: PyReadonlyArray2<'_, f64>) -> Vec<usize> {
    cycle(seconds.as_array())
}

fn cycle(seconds: ArrayView2<'_, f64>) -> Vec<usize> {
    match seconds.nrows() {
        num @ 0..3 => (0..num).collect(),
        3..=MOST_EXACT_REGIONS => least_worst(seconds),
        _ => {
            let longest = seconds
                .iter()
                .copied()
                .filter(|edge| edge.is_finite())
                .fold(1e-9, f64::max);
            improved(
                &seconds.map(|edge| (edge / longest).min(FAR).powf(POWER)),
                inserted(seconds),
            )
        }
    }
}

/// The paths from region 0 through a set of regions, by their last one.
struct Paths {
    /// Seconds of the worst edge, and of all edges.
    worst: Array2<f64>,
    total: Array2<f64>,
    /// The last but one.
    before: Array2<usize>,
}

/// The cycle whose worst edge is least; of paths whose worst edges are alike the one with the least sum.
fn least_worst(seconds: ArrayView2<'_, f64>) -> Vec<usize> {
    let num = seconds.nrows();
    let paths = all_paths(seconds);
    let mut everything = (1 << num) - 1;
    let (mut last, mut best, mut best_total) = (1, f64::INFINITY, f64::INFINITY);
    for end in 1..num {
        let edge = paths.worst[[everything, end]].max(seconds[[end, 0]]);
        let length = paths.total[[everything, end]] + seconds[[end, 0]].min(FAR);
        if edge < best || (edge == best && length < best_total) {
            (last, best, best_total) = (end, edge, length);
        }
    }
    let mut order = vec![0; num];
    for place in order[1..].iter_mut().rev() {
        *place = last;
        let previous = paths.before[[everything, last]];
        everything &= !(1 << last);
        last = previous;
    }
    order
}

fn all_paths(seconds: ArrayView2<'_, f64>) -> Paths {
    let num = seconds.nrows();
    let never = Array2::from_elem((1 << num, num), f64::INFINITY);
    let mut paths = Paths {
        worst: never.clone(),
        total: never,
        before: Array2::zeros((1 << num, num)),
    };
    paths.worst[[1, 0]] = 0.0;
    paths.total[[1, 0]] = 0.0;
    for chosen in (1..1 << num).step_by(2) {
        for last in 0..num {
            if paths.total[[chosen, last]] < f64::INFINITY {
                extend(&mut paths, seconds, chosen, last);
            }
        }
    }
    paths
}

/// Go on from the path through the chosen regions to each of the others.
fn extend(paths: &mut Paths, seconds: ArrayView2<'_, f64>, chosen: usize, last: usize) {
    for new in (1..seconds.nrows()).filter(|new| chosen >> new & 1 == 0) {
        let longer = [chosen | 1 << new, new];
        let edge = paths.worst[[chosen, last]].max(seconds[[last, new]]);
        let length = paths.total[[chosen, last]] + seconds[[last, new]].min(FAR);
        if edge < paths.worst[longer] || (edge == paths.worst[longer] && length < paths.total[longer]) {
            paths.worst[longer] = edge;
            paths.total[longer] = length;
            paths.before[longer] = last;
        }
    }
}

/// A cycle that grows region by region, each where its worse new edge is least.
fn inserted(seconds: ArrayView2<'_, f64>) -> Vec<usize> {
    let mut order = vec![0, 1];
    for new in 2..seconds.nrows() {
        let (mut best, mut best_edge) = (0, f64::INFINITY);
        for (k, &here) in order.iter().enumerate() {
            let edge = seconds[[here, new]].max(seconds[[new, order[(k + 1) % new]]]);
            if edge < best_edge {
                (best, best_edge) = (k, edge);
            }
        }
        order.insert(best + 1, new);
    }
    order
}

fn length(cost: &Array2<f64>, order: &[usize]) -> f64 {
    let next = order.iter().cycle().skip(1);
    order.iter().zip(next).fold(0.0, |total, (&a, &b)| total + cost[[a, b]])
}

/// Reverse a part, or move one of up to three regions elsewhere, as long as that makes the sum less.
fn improved(cost: &Array2<f64>, mut order: Vec<usize>) -> Vec<usize> {
    let mut best = length(cost, &order);
    let mut is_better = true;
    while is_better {
        is_better = reverse_parts(cost, &mut order, &mut best);
        is_better |= move_parts(cost, &mut order, &mut best);
    }
    order
}

fn reverse_parts(cost: &Array2<f64>, order: &mut [usize], best: &mut f64) -> bool {
    let (num, mut is_better) = (order.len(), false);
    for first in 1..num {
        for last in first + 1..=num {
            order[first..last].reverse();
            let found = length(cost, order);
            if found < *best * (1.0 - ROUNDING) {
                (*best, is_better) = (found, true);
            } else {
                order[first..last].reverse();
            }
        }
    }
    is_better
}

fn move_parts(cost: &Array2<f64>, order: &mut Vec<usize>, best: &mut f64) -> bool {
    let (num, mut is_better) = (order.len(), false);
    for first in 1..num {
        for last in first + 1..=(first + MOST_MOVED).min(num) {
            for target in 1..=num - (last - first) {
                let moved = moved(order, first, last, target);
                let found = length(cost, &moved);
                if found < *best * (1.0 - ROUNDING) {
                    (*order, *best, is_better) = (moved, found, true);
                }
            }
        }
    }
    is_better
}

/// The part first .. last - 1 taken out and put back at a position among the others.
fn moved(order: &[usize], first: usize, last: usize, target: usize) -> Vec<usize> {
    let mut rest = order.to_vec();
    let part: Vec<usize> = rest.drain(first..last).collect();
    rest.splice(target..target, part);
    rest
}

#[cfg(test)]
mod tests {
    use numpy::ndarray::{Array2, array};

    use super::{MOST_EXACT_REGIONS, cycle, moved};

    #[test]
    fn the_one_cycle_of_short_edges_is_found() {
        let seconds = array![
            [0.0, 9.0, 1.0, 9.0],
            [1.0, 0.0, 9.0, 9.0],
            [9.0, 9.0, 0.0, 1.0],
            [9.0, 1.0, 9.0, 0.0]
        ];
        assert_eq!(cycle(seconds.view()), [0, 2, 3, 1]);
    }

    /// Regions on a line, from more of them than the optimum is found for: no edge need be longer than two.
    #[test]
    fn a_cycle_of_many_regions_visits_each_and_has_short_edges() {
        let num = MOST_EXACT_REGIONS + 5;
        let place = |k: usize| (k * 4 % num) as f64;
        let seconds = Array2::from_shape_fn((num, num), |(a, b)| (place(a) - place(b)).abs());
        let order = cycle(seconds.view());
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..num).collect::<Vec<_>>());
        let worst = (0..num)
            .map(|k| seconds[[order[k], order[(k + 1) % num]]])
            .fold(0.0, f64::max);
        assert_eq!((order[0], worst), (0, 2.0));
    }

    #[test]
    fn a_part_is_put_back_among_the_others() {
        assert_eq!(moved(&[0, 1, 2, 3, 4], 1, 3, 2), [0, 3, 1, 2, 4]);
    }
}
