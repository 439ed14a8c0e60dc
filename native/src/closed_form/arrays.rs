//! One workload on its machines (`Setting`) and one layout of it (`Layout`).
//!
//! Names are those of the arrays in `hulk_placement.cost.closed_form.arrays`, which says what each holds. Letters of
//! shapes: `M` machines, `K` kinds of machine, `R` regions, `Q` places, `L` layers, `J = L + 1` (prefix sums), `D`
//! replicas, `P` stages, `W` visits of a tour, `T` tied layers.

/// The greater of two, as Python's `max`: a NaN that comes second never counts. One instruction, where `f64::max` takes
/// three.
#[inline]
pub fn max(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

/// The lesser of two, as Python's `min`.
#[inline]
pub fn min(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

/// A matrix that is read, row after row.
#[derive(Clone, Copy)]
pub struct Rows<'a, T = f64> {
    values: &'a [T],
    width: usize,
}

impl<'a, T: Copy> Rows<'a, T> {
    pub fn new(values: &'a [T], width: usize) -> Self {
        Self { values, width }
    }

    pub fn width(self) -> usize {
        self.width
    }

    #[inline]
    pub fn row(self, number: usize) -> &'a [T] {
        &self.values[number * self.width..][..self.width]
    }

    #[inline]
    pub fn at(self, row: usize, column: usize) -> T {
        self.values[row * self.width + column]
    }
}

/// A matrix that is written, row after row.
#[derive(Clone)]
pub struct Grid<T = f64> {
    pub values: Vec<T>,
    width: usize,
}

impl<T: Copy> Grid<T> {
    pub fn filled(num_rows: usize, width: usize, value: T) -> Self {
        Self {
            values: vec![value; num_rows * width],
            width,
        }
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn num_rows(&self) -> usize {
        self.values.len() / self.width
    }

    #[inline]
    pub fn row(&self, number: usize) -> &[T] {
        &self.values[number * self.width..][..self.width]
    }

    #[inline]
    pub fn row_mut(&mut self, number: usize) -> &mut [T] {
        &mut self.values[number * self.width..][..self.width]
    }

    #[inline]
    pub fn at(&self, row: usize, column: usize) -> T {
        self.values[row * self.width + column]
    }

    #[inline]
    pub fn at_mut(&mut self, row: usize, column: usize) -> &mut T {
        &mut self.values[row * self.width + column]
    }

    /// Copies one row from a matrix of the same width, which may be a copy of this one.
    #[inline]
    pub fn copy_row(&mut self, number: usize, source: &Grid<T>) {
        self.row_mut(number).copy_from_slice(source.row(number));
    }
}

/// The order of a stage's passes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    Gpipe,
    OneForwardOneBackward,
}

/// Bit of `Setting::transports`: gloo's ring.
pub const GLOO: usize = 1;
/// Bit of `Setting::transports`: Hulk's own all-reduce between regions.
pub const WAN: usize = 2;

/// Everything that a layout's cost depends on but the layout itself; of one micro-batch size and tensor degree.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Setting<'a> {
    pub kind_m: &'a [i64],
    pub region_m: &'a [i64],
    pub place_m: &'a [i64],
    pub worker_cells: usize,
    pub memory_k: &'a [f64],
    pub price_k: &'a [f64],
    pub is_cold_k: &'a [bool],
    pub nic_k: &'a [f64],
    pub forward_kj: Rows<'a>,
    pub backward_kj: Rows<'a>,
    pub held_j: &'a [f64],
    pub gradient_j: &'a [f64],
    pub kept_j: &'a [f64],
    pub input_j: &'a [f64],
    pub peak_gl: Rows<'a>,
    pub output_l: &'a [f64],
    pub ties_t2: Rows<'a, i64>,
    pub tied_held_t: &'a [f64],
    pub tied_gradient_t: &'a [f64],
    pub latency_qq: Rows<'a>,
    pub flow_qq: Rows<'a>,
    pub own_qq: Rows<'a>,
    pub is_wire_qq: Rows<'a, bool>,
    pub inside_latency_k: &'a [f64],
    pub inside_flow_k: &'a [f64],
    pub latency_rr: Rows<'a>,
    pub round_trip_rr: Rows<'a>,
    pub flow_rr: Rows<'a>,
    pub capacity_rr: Rows<'a>,
    pub carried_rr: Rows<'a>,
    pub uplink_r: &'a [f64],
    pub egress_rr: Rows<'a>,
    pub banned_mj: Rows<'a>,
    pub price_limit: f64,
    pub global_batch: usize,
    pub micro_batch: usize,
    pub tensor: usize,
    pub schedule: Schedule,
    pub overlap: bool,
    pub recompute: bool,
    pub transports: usize,
    pub wire_share: f64,
    pub inner_steps: usize,
    pub sums_by_layer: bool,
    pub is_money: bool,
    pub is_equal: bool,
}

impl Setting<'_> {
    pub fn num_machines(&self) -> usize {
        self.kind_m.len()
    }

    pub fn num_regions(&self) -> usize {
        self.uplink_r.len()
    }

    pub fn num_layers(&self) -> usize {
        self.output_l.len()
    }

    pub fn num_ties(&self) -> usize {
        self.tied_held_t.len()
    }

    /// Whether some layers must not be on some machines.
    pub fn has_bans(&self) -> bool {
        self.banned_mj.width() > 1
    }

    /// Whether some machines have places of their own, and with them links of their own.
    #[inline]
    pub fn has_own_links(&self) -> bool {
        self.own_qq.width() > self.num_regions()
    }

    #[inline]
    pub fn kind(&self, machine: usize) -> usize {
        self.kind_m[machine] as usize
    }

    #[inline]
    pub fn region(&self, machine: usize) -> usize {
        self.region_m[machine] as usize
    }

    #[inline]
    pub fn place(&self, machine: usize) -> usize {
        self.place_m[machine] as usize
    }

    /// Whether all that two machines send each other is on a wire that they share with nobody.
    #[inline]
    pub fn is_wire(&self, source: usize, target: usize) -> bool {
        self.is_wire_qq.at(self.place(source), self.place(target))
    }

    /// The layer that uses another one's parameters, and that other, earlier one.
    #[inline]
    pub fn tie(&self, number: usize) -> (usize, usize) {
        (self.ties_t2.at(number, 0) as usize, self.ties_t2.at(number, 1) as usize)
    }

    /// Latency in seconds and rate in bytes a second of one flow between two machines, or inside one.
    #[inline]
    pub fn pair(&self, source: usize, target: usize) -> (f64, f64) {
        if source == target {
            let kind = self.kind(source);
            return (self.inside_latency_k[kind], self.inside_flow_k[kind]);
        }
        let (a, b) = (self.place(source), self.place(target));
        (self.latency_qq.at(a, b), self.flow_qq.at(a, b))
    }
}

/// Who does what.
#[derive(Clone, PartialEq, Debug)]
pub struct Layout {
    /// (D, P), row after row.
    pub machines: Vec<usize>,
    pub num_stages: usize,
    /// First layer of each stage; entry P is the number of layers.
    pub first: Vec<usize>,
    /// Sequences of each replica.
    pub shares: Vec<usize>,
    /// The closed walk over regions that all rings follow, in the direction of the data. A region may come twice.
    pub tour: Vec<usize>,
}

impl Layout {
    #[inline]
    pub fn num_replicas(&self) -> usize {
        self.shares.len()
    }

    #[inline]
    pub fn machine(&self, replica: usize, stage: usize) -> usize {
        self.machines[replica * self.num_stages + stage]
    }

    #[inline]
    pub fn machine_mut(&mut self, replica: usize, stage: usize) -> &mut usize {
        &mut self.machines[replica * self.num_stages + stage]
    }

    /// The machines of one replica's stages.
    #[inline]
    pub fn row(&self, replica: usize) -> &[usize] {
        &self.machines[replica * self.num_stages..][..self.num_stages]
    }

    /// The stage that has a layer.
    #[inline]
    pub fn stage_of(&self, layer: usize) -> usize {
        let mut stage = 0;
        while self.first[stage + 1] <= layer {
            stage += 1;
        }
        stage
    }

    /// Takes over all of a layout of the same shape.
    pub fn copy_from(&mut self, other: &Layout) {
        self.machines.copy_from_slice(&other.machines);
        self.first.copy_from_slice(&other.first);
        self.shares.copy_from_slice(&other.shares);
        self.tour.copy_from_slice(&other.tour);
    }
}
