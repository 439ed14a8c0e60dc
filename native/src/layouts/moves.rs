//! What annealing changes in a layout, and takes back.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::closed_form::arrays::{Layout, Setting};

/// Kinds of move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Two cells change machines.
    Swap,
    /// A worker's cells move to a machine with room.
    Replace,
    /// A layer moves to the next stage.
    Shift,
    /// A micro-batch, or one sequence, moves to another replica; of equal shares, what makes them differ.
    Share,
    /// A visit of the tour moves elsewhere.
    Tour,
}

pub const KINDS: [Kind; 5] = [Kind::Swap, Kind::Replace, Kind::Shift, Kind::Share, Kind::Tour];

/// A move that was made, and what takes it back.
#[derive(Clone, Copy)]
pub enum Move {
    Swap { one: usize, other: usize },
    Replace { cell: usize, old: usize },
    Shift { stage: usize, is_later: bool },
    Share { from: usize, to: usize, num: usize },
    Tour { from: usize, to: usize },
}

/// Makes a move of some kind that begins at replica `a`, and at `b` if it is of two; `None` where there is no such move.
///
/// `free_m`: cells for which each machine has room left.
pub fn change(
    setting: &Setting,
    layout: &mut Layout,
    free_m: &[i64],
    chance: &mut Xoshiro256PlusPlus,
    kind: Kind,
    (a, b): (usize, usize),
) -> Option<Move> {
    let num_stages = layout.num_stages;
    match kind {
        Kind::Swap => {
            let one = a * num_stages + below(chance, num_stages);
            let other = b * num_stages + below(chance, num_stages);
            if layout.machines[one] == layout.machines[other] {
                return None;
            }
            layout.machines.swap(one, other);
            Some(Move::Swap { one, other })
        }
        Kind::Replace => {
            let cell = a * num_stages + below(chance, num_stages);
            let (machine, old) = (below(chance, free_m.len()), layout.machines[cell]);
            if free_m[machine] < setting.worker_cells as i64 || machine == old {
                return None;
            }
            layout.machines[cell] = machine;
            follow(layout, cell, old, setting.worker_cells - 1);
            Some(Move::Replace { cell, old })
        }
        Kind::Shift => {
            // each is of all replicas, so that the more there are, the fewer are made
            let is_rare = || 1.0 / (1.0 + layout.num_replicas() as f64 / 2.0);
            if num_stages == 1 || chance.random::<f64>() > is_rare() {
                return None;
            }
            let (stage, is_later) = (1 + below(chance, num_stages - 1), chance.random());
            let first = if is_later {
                layout.first[stage] + 1
            } else {
                layout.first[stage] - 1
            };
            if !(layout.first[stage - 1] < first && first < layout.first[stage + 1]) {
                return None;
            }
            layout.first[stage] = first;
            Some(Move::Shift { stage, is_later })
        }
        Kind::Share => {
            let num = if setting.is_equal {
                layout.shares[a].saturating_sub(layout.shares[b])
            } else if setting.micro_batch > 1 && chance.random() {
                1
            } else {
                setting.micro_batch
            };
            if a == b || num == 0 || num >= layout.shares[a] {
                return None;
            }
            layout.shares[a] -= num;
            layout.shares[b] += num;
            Some(Move::Share { from: a, to: b, num })
        }
        Kind::Tour => {
            let num_visits = layout.tour.len();
            if num_visits < 3 {
                return None;
            }
            let (from, to) = (below(chance, num_visits), below(chance, num_visits));
            if from == to {
                return None;
            }
            move_visit(layout, from, to);
            Some(Move::Tour { from, to })
        }
    }
}

/// Takes a move back; of a worker of several cells only the first one's.
pub fn undo(layout: &mut Layout, made: Move) {
    match made {
        Move::Swap { one, other } => layout.machines.swap(one, other),
        Move::Replace { cell, old } => layout.machines[cell] = old,
        Move::Shift { stage, is_later: true } => layout.first[stage] -= 1,
        Move::Shift { stage, is_later: false } => layout.first[stage] += 1,
        Move::Share { from, to, num } => {
            layout.shares[from] += num;
            layout.shares[to] -= num;
        }
        Move::Tour { from, to } => move_visit(layout, to, from),
    }
}

/// A number below another one; each as likely, to one part in 2^32.
#[inline]
pub fn below(chance: &mut Xoshiro256PlusPlus, most: usize) -> usize {
    ((u64::from(chance.random::<u32>()) * most as u64) >> 32) as usize
}

/// So many other cells of a worker go from its machine to where this one is now: those that come next.
fn follow(layout: &mut Layout, cell: usize, old: usize, mut num: usize) {
    let (new, num_cells) = (layout.machines[cell], layout.machines.len());
    for number in cell + 1..cell + num_cells {
        if num == 0 {
            break;
        }
        let other = &mut layout.machines[number % num_cells];
        if *other == old {
            *other = new;
            num -= 1;
        }
    }
}

fn move_visit(layout: &mut Layout, from: usize, to: usize) {
    if from < to {
        layout.tour[from..=to].rotate_left(1);
    } else {
        layout.tour[to..=from].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;
    use crate::closed_form::testing::World;

    #[test]
    fn what_is_undone_is_as_it_was() {
        let world = World {
            global_batch: 24,
            micro_batch: 2,
            num_regions: 4,
            ..World::of(8)
        };
        let (setting, mut layout) = (world.setting(), world.layout(2, 3));
        let (before, free_m) = (layout.clone(), [1; 8]);
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(0);
        let mut num_made = [0; KINDS.len()];
        for number in 0..2000 {
            let kind = KINDS[number % KINDS.len()];
            let replicas = (below(&mut chance, 2), below(&mut chance, 2));
            if let Some(made) = change(&setting, &mut layout, &free_m, &mut chance, kind, replicas) {
                assert_ne!(layout, before);
                undo(&mut layout, made);
                num_made[number % KINDS.len()] += 1;
            }
            assert_eq!(layout, before);
        }
        assert!(num_made.iter().all(|&num| num > 50), "{num_made:?}");
    }

    #[test]
    fn a_workers_cells_stay_together() {
        let world = World {
            worker_cells: 2,
            ..World::of(3)
        };
        let mut layout = Layout {
            machines: vec![0, 1, 0, 1],
            ..world.layout(2, 2)
        };
        layout.machines[2] = 2;
        follow(&mut layout, 2, 0, 1);
        assert_eq!(layout.machines, [2, 1, 2, 1]);
    }
}
