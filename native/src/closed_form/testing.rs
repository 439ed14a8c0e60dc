//! A small setting for unit tests: machines of one accelerator, alike in all but speed, in regions by turns.

use super::arrays::{GLOO, Layout, Rows, Schedule, Setting};
use super::cache::Cache;

/// What tests vary, and the arrays that `build` makes of it.
pub struct World {
    /// Of each machine.
    pub speeds: Vec<f64>,
    pub num_regions: usize,
    pub slots: usize,
    pub worker_cells: usize,
    pub global_batch: usize,
    pub micro_batch: usize,
    pub is_money: bool,
    pub is_cold: bool,
    /// A layer and the earlier one whose parameters it uses; none where empty.
    pub ties: Vec<i64>,
    pub schedule: Schedule,
}

const NUM_LAYERS: usize = 8;

impl World {
    /// So many machines of speed 1 in two regions.
    pub fn of(num_machines: usize) -> Self {
        Self {
            speeds: vec![1.0; num_machines],
            num_regions: 2,
            slots: 1,
            worker_cells: 1,
            global_batch: 20,
            micro_batch: 1,
            is_money: false,
            is_cold: false,
            ties: Vec::new(),
            schedule: Schedule::OneForwardOneBackward,
        }
    }

    /// Arrays live as long as the test that leaks them.
    pub fn setting(&self) -> Setting<'static> {
        let (num_machines, num_regions) = (self.speeds.len(), self.num_regions);
        let region_m = leak((0..num_machines).map(|m| (m % num_regions) as i64).collect());
        let pairs = |near: f64, far: f64| {
            let cell = |k: usize| {
                if k / num_regions == k % num_regions {
                    near
                } else {
                    far * (1 + k) as f64
                }
            };
            Rows::new(leak((0..num_regions * num_regions).map(cell).collect()), num_regions)
        };
        let sums = |each: f64| leak((0..=NUM_LAYERS).map(|layer| each * layer as f64).collect());
        let by_kind = |seconds: f64| {
            let row = |speed: &f64| {
                (0..=NUM_LAYERS)
                    .map(|j| seconds * j as f64 / speed)
                    .collect::<Vec<f64>>()
            };
            Rows::new(leak(self.speeds.iter().flat_map(row).collect()), NUM_LAYERS + 1)
        };
        let each_kind = |value: f64| leak(vec![value; num_machines]);
        let num_ties = self.ties.len() / 2;
        Setting {
            kind_m: leak((0..num_machines as i64).collect()),
            region_m,
            place_m: region_m,
            worker_cells: self.worker_cells,
            memory_k: each_kind(6e9),
            price_k: each_kind(1e-3),
            is_cold_k: leak(vec![self.is_cold; num_machines]),
            nic_k: each_kind(f64::INFINITY),
            forward_kj: by_kind(0.1),
            backward_kj: by_kind(0.2),
            held_j: sums(1.6e9),
            gradient_j: sums(4e8),
            kept_j: sums(1e8),
            input_j: sums(1e7),
            peak_gl: Rows::new(leak(vec![1e8; 4 * NUM_LAYERS]), NUM_LAYERS),
            output_l: leak(vec![1e6; NUM_LAYERS]),
            ties_t2: Rows::new(leak(self.ties.clone()), 2),
            tied_held_t: leak(vec![4e8; num_ties]),
            tied_gradient_t: leak(vec![1e8; num_ties]),
            latency_qq: pairs(1e-4, 0.01),
            flow_qq: pairs(1e9, 1e8),
            own_qq: pairs(1e9, f64::INFINITY),
            is_wire_qq: Rows::new(leak(vec![false; num_regions * num_regions]), num_regions),
            inside_latency_k: each_kind(1e-6),
            inside_flow_k: each_kind(1e10),
            latency_rr: pairs(1e-4, 0.01),
            round_trip_rr: pairs(2e-4, 0.02),
            flow_rr: pairs(1e9, 1e8),
            capacity_rr: pairs(1e9, 1e8),
            carried_rr: pairs(1e10, 1e8),
            uplink_r: leak(vec![5e7; num_regions]),
            egress_rr: pairs(0.0, 1e-11),
            banned_mj: Rows::new(leak(vec![0.0; num_machines]), 1),
            price_limit: f64::INFINITY,
            global_batch: self.global_batch,
            micro_batch: self.micro_batch,
            tensor: 1,
            schedule: self.schedule,
            overlap: true,
            recompute: false,
            transports: GLOO,
            wire_share: 1.0,
            inner_steps: 1,
            sums_by_layer: false,
            is_money: self.is_money,
            is_equal: false,
        }
    }

    /// Machines in their order, as many cells of each as there is room for, layers and sequences as even as they can be.
    pub fn layout(&self, num_replicas: usize, num_stages: usize) -> Layout {
        let shares = (0..num_replicas)
            .map(|r| (self.global_batch + r) / num_replicas)
            .collect();
        Layout {
            machines: (0..num_replicas * num_stages)
                .map(|cell| cell / self.worker_cells)
                .collect(),
            num_stages,
            first: (0..=num_stages).map(|stage| stage * NUM_LAYERS / num_stages).collect(),
            shares,
            tour: (0..self.num_regions).collect(),
        }
    }

    pub fn cache(&self, layout: &Layout) -> Cache {
        Cache::new(
            layout.num_replicas(),
            layout.num_stages,
            self.num_regions,
            self.speeds.len(),
        )
    }

    /// Cells for which each machine has room left.
    pub fn free(&self, layout: &Layout) -> Vec<i64> {
        let used = |machine: usize| layout.machines.iter().filter(|&&other| other == machine).count();
        (0..self.speeds.len())
            .map(|machine| self.slots as i64 - used(machine) as i64)
            .collect()
    }
}

fn leak<T>(values: Vec<T>) -> &'static [T] {
    values.leak()
}
