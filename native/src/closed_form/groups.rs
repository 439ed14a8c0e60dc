//! Who is where: of each stage's replicas how many are in each region, and the walk over regions that its ring takes.

use super::arrays::{Grid, Layout, Setting};
use super::memory::{gradient_bytes, num_layer_sums};

/// In place of a machine's number: there is none, or there are several.
pub const NONE: usize = usize::MAX;

/// Of each stage and region (P, R) the cells there.
pub struct Groups {
    count_pr: Grid<u32>,
    /// The machine that all of them are on; `NONE` where they are on several.
    only_pr: Grid<usize>,
    /// A machine that has several of them; `NONE` where none has.
    twin_pr: Grid<usize>,
    /// How often the stage's ring comes by.
    visits_pr: Grid<u32>,
    /// The regions of the rings' walks, stage after stage; they end where `ends` says.
    walks: Vec<usize>,
    ends: Vec<usize>,
    /// Bytes that one rank of each stage brings to the all-reduce; (P).
    pub bytes_p: Vec<f64>,
    /// All-reduces of equal parts in which it does, one after another; (P).
    pub sums_p: Vec<f64>,
    /// The machines of the stages, stage after stage, each once, with their regions; they end where `machine_ends` says.
    machines: Vec<(usize, usize)>,
    machine_ends: Vec<usize>,
    /// By machine the number of the count and stage that met it last.
    seen_m: Vec<u32>,
    number: u32,
}

impl Groups {
    pub fn of(num_stages: usize, num_regions: usize, num_machines: usize) -> Self {
        Self {
            count_pr: Grid::filled(num_stages, num_regions, 0),
            only_pr: Grid::filled(num_stages, num_regions, NONE),
            twin_pr: Grid::filled(num_stages, num_regions, NONE),
            visits_pr: Grid::filled(num_stages, num_regions, 0),
            walks: Vec::new(),
            ends: vec![0; num_stages + 1],
            bytes_p: vec![0.0; num_stages],
            sums_p: vec![1.0; num_stages],
            machines: Vec::new(),
            machine_ends: vec![0; num_stages + 1],
            seen_m: vec![0; num_machines],
            number: 0,
        }
    }

    /// Looks at a layout's cells, layers and tour.
    pub fn update(&mut self, setting: &Setting, layout: &Layout) {
        self.count_pr.values.fill(0);
        self.twin_pr.values.fill(NONE);
        self.visits_pr.values.fill(0);
        self.walks.clear();
        self.machines.clear();
        for stage in 0..layout.num_stages {
            self.count(setting, layout, stage);
            self.walk(layout, stage);
            self.bytes_p[stage] = gradient_bytes(setting, layout, stage);
            self.sums_p[stage] = if setting.sums_by_layer {
                num_layer_sums(setting, layout, stage) as f64
            } else {
                1.0
            };
        }
    }

    fn count(&mut self, setting: &Setting, layout: &Layout, stage: usize) {
        let number = self.next_number();
        let (count_r, only_r) = (self.count_pr.row_mut(stage), self.only_pr.row_mut(stage));
        for replica in 0..layout.num_replicas() {
            let machine = layout.machine(replica, stage);
            let region = setting.region(machine);
            if count_r[region] == 0 {
                only_r[region] = machine;
            } else if only_r[region] != machine {
                only_r[region] = NONE;
            }
            count_r[region] += 1;
            if self.seen_m[machine] == number {
                *self.twin_pr.at_mut(stage, region) = machine;
            } else {
                self.seen_m[machine] = number;
                self.machines.push((machine, region));
            }
        }
        self.machine_ends[stage + 1] = self.machines.len();
    }

    /// A number that no machine was seen with.
    fn next_number(&mut self) -> u32 {
        if self.number == u32::MAX {
            self.seen_m.fill(0);
            self.number = 0;
        }
        self.number += 1;
        self.number
    }

    /// The tour's visits for which the stage has cells: none twice in a row, no more than there are cells in a region.
    fn walk(&mut self, layout: &Layout, stage: usize) {
        let begin = self.walks.len();
        let (count_r, visits_r) = (self.count_pr.row(stage), self.visits_pr.row_mut(stage));
        for &region in &layout.tour {
            let is_new = self.walks.len() == begin || self.walks[self.walks.len() - 1] != region;
            if is_new && count_r[region] > visits_r[region] {
                self.walks.push(region);
                visits_r[region] += 1;
            }
        }
        let size = self.walks.len() - begin;
        if size > 1 && self.walks[begin + size - 1] == self.walks[begin] {
            visits_r[self.walks[begin]] -= 1;
            self.walks.pop();
        }
        self.ends[stage + 1] = self.walks.len();
    }

    /// The regions that a stage's ring comes to, in the order of the tour.
    #[inline]
    pub fn walk_of(&self, stage: usize) -> &[usize] {
        &self.walks[self.ends[stage]..self.ends[stage + 1]]
    }

    #[inline]
    pub fn count_at(&self, stage: usize, region: usize) -> u32 {
        self.count_pr.at(stage, region)
    }

    /// Whether a stage's ring sends from cell to cell within a region: it has more of them there than it has visits.
    #[inline]
    pub fn is_joined_inside(&self, stage: usize, region: usize) -> bool {
        self.count_pr.at(stage, region) != self.visits_pr.at(stage, region)
    }

    /// Whether a stage's cells in a region are on several machines.
    #[inline]
    pub fn are_on_several(&self, stage: usize, region: usize) -> bool {
        self.only_pr.at(stage, region) == NONE
    }

    /// A machine that has several of a stage's cells in a region.
    #[inline]
    pub fn twin(&self, stage: usize, region: usize) -> Option<usize> {
        let machine = self.twin_pr.at(stage, region);
        (machine != NONE).then_some(machine)
    }

    /// Latency and rate between a stage's cells in one region: of one machine where all of them are on it.
    pub fn inside(&self, setting: &Setting, stage: usize, region: usize) -> (f64, f64) {
        let only = self.only_pr.at(stage, region);
        if only == NONE {
            return (
                setting.latency_rr.at(region, region),
                setting.flow_rr.at(region, region),
            );
        }
        let kind = setting.kind(only);
        (setting.inside_latency_k[kind], setting.inside_flow_k[kind])
    }

    /// Whether some stage has replicas in several regions.
    pub fn are_apart(&self, setting: &Setting, layout: &Layout) -> bool {
        let num_replicas = layout.num_replicas() as u32;
        (0..layout.num_stages).any(|stage| {
            let region = setting.region(layout.machine(0, stage));
            self.count_pr.at(stage, region) != num_replicas
        })
    }

    /// The machines of a stage in regions where it is on several, each once, with their regions.
    pub fn each_of_several(&self, stage: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let machines = &self.machines[self.machine_ends[stage]..self.machine_ends[stage + 1]];
        let only_r = self.only_pr.row(stage);
        machines
            .iter()
            .copied()
            .filter(move |&(_, region)| only_r[region] == NONE)
    }
}
