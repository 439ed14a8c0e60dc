//! Simulated annealing over layouts: moves that matter, each undone unless it is taken.
//!
//! Half of the moves begin at the replica that ends last. A move that costs more is taken with probability
//! exp(-(increase / cost) / temperature), the temperature falling geometrically. The number that decides it is drawn
//! first: a move that is bound to cost more than it lets pass is undone before its pipelines, or its all-reduces, are
//! timed.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::moves::{KINDS, Move, below, change, undo};
use crate::closed_form::arrays::{Grid, Layout, Setting};
use crate::closed_form::cache::Cache;
use crate::closed_form::evaluate::{combine, cost_from, end_replica, least_cost, share_links, weigh_replica};

/// How a call of `Annealing::run` goes about it.
pub struct Plan {
    pub num_moves: usize,
    /// Temperatures at the first and the last move.
    pub hot: f64,
    pub cold: f64,
    pub seed: u64,
}

/// The replicas that a move touches.
#[derive(Clone, Copy)]
enum Touched {
    None,
    All,
    Two(usize, usize),
}

/// A layout while it changes, the best one so far, and what they cost.
pub struct Annealing<'a> {
    pub setting: Setting<'a>,
    pub layout: &'a mut Layout,
    /// What is known of the layout, all of whose replicas have been timed.
    pub cache: &'a mut Cache,
    /// Cells for which each machine has room left.
    pub free_m: &'a mut [i64],
    pub best: &'a mut Layout,
    pub cost: f64,
    pub best_cost: f64,
}

impl Annealing<'_> {
    /// Makes moves.
    pub fn run(&mut self, plan: &Plan) {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(plan.seed);
        share_links(&self.setting, self.layout, self.cache);
        let mut before = Before {
            alone_dp: self.cache.alone_dp.clone(),
            excess_dp: self.cache.excess_dp.clone(),
            machines: self.layout.machines.clone(),
            slowest: self.slowest(),
            is_stale: true,
        };
        let num_replicas = self.layout.num_replicas();
        let cooling = (plan.cold / plan.hot).powf(1.0 / plan.num_moves as f64);
        let mut temperature = plan.hot;
        for _ in 0..plan.num_moves {
            temperature *= cooling;
            let kind = KINDS[below(&mut chance, KINDS.len())];
            let a = if chance.random() {
                before.slowest
            } else {
                below(&mut chance, num_replicas)
            };
            let replicas = (a, below(&mut chance, num_replicas));
            let made = change(&self.setting, self.layout, self.free_m, &mut chance, kind, replicas);
            let Some(made) = made else { continue };
            let most = self.cost - self.cost * temperature * chance.random::<f64>().ln();
            if let Some(cost) = self.cost_of(made, &mut before, most) {
                self.take(made, &mut before, cost);
            } else {
                self.take_back(made, &before);
            }
        }
    }

    /// What the layout costs with a move that was made; `None` where that is more than `most`.
    fn cost_of(&mut self, made: Move, before: &mut Before, most: f64) -> Option<f64> {
        let touched = self.touched(made);
        before.keep(self.cache, touched);
        if !self.are_timed(touched, before.slowest, most) {
            return None;
        }
        let is_moved = !matches!(made, Move::Share { .. });
        let cost = combine(
            &self.setting,
            self.layout,
            self.cache,
            is_moved || before.is_stale,
            most,
        )?;
        let is_taken = cost <= self.cost || cost <= most;
        before.is_stale = is_moved && !is_taken;
        is_taken.then_some(cost)
    }

    fn take(&mut self, made: Move, before: &mut Before, cost: f64) {
        self.cost = cost;
        before.slowest = self.slowest();
        if let Move::Replace { cell, old } = made {
            self.free_m[old] += self.setting.worker_cells as i64;
            self.free_m[self.layout.machines[cell]] -= self.setting.worker_cells as i64;
        }
        before.machines.copy_from_slice(&self.layout.machines);
        if cost < self.best_cost {
            self.best_cost = cost;
            self.best.copy_from(self.layout);
        }
    }

    fn take_back(&mut self, made: Move, before: &Before) {
        before.give_back(self.cache, self.touched(made));
        undo(self.layout, made);
        if let (Move::Replace { .. }, true) = (made, self.setting.worker_cells > 1) {
            self.layout.machines.copy_from_slice(&before.machines);
        }
    }

    fn touched(&self, made: Move) -> Touched {
        let of = |cell: usize| cell / self.layout.num_stages;
        match made {
            Move::Swap { one, other } => Touched::Two(of(one), of(other)),
            Move::Replace { .. } if self.setting.worker_cells > 1 => Touched::All,
            Move::Replace { cell, .. } => Touched::Two(of(cell), of(cell)),
            Move::Share { from, to, .. } => Touched::Two(from, to),
            Move::Shift { .. } => Touched::All,
            Move::Tour { .. } => Touched::None,
        }
    }

    /// Times the replicas a move touched, of all of them `first` first; false, and some are not timed, once the layout
    /// must cost more than `most`.
    fn are_timed(&mut self, touched: Touched, first: usize, most: f64) -> bool {
        match touched {
            Touched::None => true,
            Touched::Two(a, b) if a == b => self.may_do(a, most) && self.does(a, most),
            Touched::Two(a, b) => {
                self.may_do(a, most) && self.may_do(b, most) && self.does(a, most) && self.does(b, most)
            }
            Touched::All => {
                let num = self.layout.num_replicas();
                (0..num).all(|k| {
                    let replica = (first + k) % num;
                    self.may_do(replica, most) && self.does(replica, most)
                })
            }
        }
    }

    /// Weighs a replica; whether the layout is not bound to cost more than `most` for it.
    fn may_do(&mut self, replica: usize, most: f64) -> bool {
        weigh_replica(&self.setting, self.layout, self.cache, replica);
        least_cost(&self.setting, self.layout, self.cache, replica) <= most
    }

    /// Times a replica that was weighed; whether the layout need not cost more than `most` for it.
    fn does(&mut self, replica: usize, most: f64) -> bool {
        let end_s = end_replica(&self.setting, self.layout, self.cache, replica);
        cost_from(&self.setting, self.layout, self.cache, replica, end_s) <= most
    }

    /// The replica whose first stage ends last.
    fn slowest(&self) -> usize {
        let (mut worst, mut worst_s) = (0, -1.0);
        for replica in 0..self.layout.num_replicas() {
            let end_s = self.cache.sharing.ends_dp.at(replica, 0);
            if end_s > worst_s {
                (worst, worst_s) = (replica, end_s);
            }
        }
        worst
    }
}

/// What was known before a move.
struct Before {
    alone_dp: Grid,
    excess_dp: Grid,
    machines: Vec<usize>,
    slowest: usize,
    /// Whether the all-reduces were timed last for other cells, layers or another tour.
    is_stale: bool,
}

impl Before {
    fn keep(&mut self, cache: &Cache, touched: Touched) {
        copy(&cache.alone_dp, &mut self.alone_dp, touched);
        copy(&cache.excess_dp, &mut self.excess_dp, touched);
    }

    fn give_back(&self, cache: &mut Cache, touched: Touched) {
        copy(&self.alone_dp, &mut cache.alone_dp, touched);
        copy(&self.excess_dp, &mut cache.excess_dp, touched);
        match touched {
            Touched::None => {}
            Touched::All => cache.is_weighed_d.fill(false),
            Touched::Two(a, b) => (cache.is_weighed_d[a], cache.is_weighed_d[b]) = (false, false),
        }
    }
}

fn copy(source: &Grid, target: &mut Grid, touched: Touched) {
    match touched {
        Touched::None => {}
        Touched::All => target.values.copy_from_slice(&source.values),
        Touched::Two(a, b) => {
            target.copy_row(a, source);
            target.copy_row(b, source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed_form::evaluate::evaluate;
    use crate::closed_form::testing::World;

    /// Anneals in calls of a few moves and compares with evaluation from nothing after each.
    fn is_as_from_scratch(world: &World, num_replicas: usize, num_stages: usize) {
        let setting = world.setting();
        let mut layout = world.layout(num_replicas, num_stages);
        let [mut cache, mut fresh] = [0, 0].map(|_| world.cache(&layout));
        let mut best = layout.clone();
        let cost = evaluate(&setting, &layout, &mut cache);
        let (mut costs, mut free_m) = ((cost, cost), world.free(&layout));
        let mut num_changed = 0;
        for seed in 0..200 {
            let plan = Plan {
                num_moves: 5,
                hot: 0.5,
                cold: 0.1,
                seed,
            };
            let (layout_mut, best_mut) = (&mut layout, &mut best);
            let mut annealing = Annealing {
                setting,
                layout: layout_mut,
                cache: &mut cache,
                free_m: &mut free_m,
                best: best_mut,
                cost: costs.0,
                best_cost: costs.1,
            };
            annealing.run(&plan);
            num_changed += usize::from(annealing.cost != costs.0);
            costs = (annealing.cost, annealing.best_cost);
            assert_eq!(evaluate(&setting, &layout, &mut fresh), costs.0);
            assert_eq!(evaluate(&setting, &best, &mut fresh), costs.1);
            assert_eq!(layout.shares.iter().sum::<usize>(), world.global_batch);
            assert_eq!(free_m, world.free(&layout));
        }
        assert!(num_changed > 20, "{num_changed}");
        assert!(costs.1 < cost);
    }

    #[test]
    fn costs_are_those_of_the_layout_from_scratch() {
        let uneven = || World {
            speeds: vec![1.0, 2.0, 1.0, 3.0, 1.0, 2.0, 1.5, 1.0],
            ..World::of(8)
        };
        is_as_from_scratch(&uneven(), 2, 3);
        is_as_from_scratch(
            &World {
                num_regions: 4,
                ..uneven()
            },
            4,
            1,
        );
        is_as_from_scratch(
            &World {
                worker_cells: 2,
                slots: 4,
                is_money: true,
                ..uneven()
            },
            2,
            2,
        );
        is_as_from_scratch(
            &World {
                ties: vec![7, 0],
                is_cold: true,
                micro_batch: 3,
                ..uneven()
            },
            3,
            2,
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_layout() {
        let world = World {
            speeds: vec![1.0, 2.0, 1.0, 3.0],
            ..World::of(4)
        };
        let found = [0, 0, 1].map(|seed| {
            let (mut layout, setting) = (world.layout(2, 2), world.setting());
            let (mut cache, mut best) = (world.cache(&layout), layout.clone());
            let cost = evaluate(&setting, &layout, &mut cache);
            let mut free_m = world.free(&layout);
            let plan = Plan {
                num_moves: 400,
                hot: 0.5,
                cold: 0.4,
                seed,
            };
            let (layout_mut, best_cost) = (&mut layout, cost);
            let best_mut = &mut best;
            let cache_mut = &mut cache;
            let free = &mut free_m;
            Annealing {
                setting,
                layout: layout_mut,
                cache: cache_mut,
                free_m: free,
                best: best_mut,
                cost,
                best_cost,
            }
            .run(&plan);
            layout
        });
        assert_eq!(found[0], found[1]);
        assert_ne!(found[0], found[2]);
    }
}
