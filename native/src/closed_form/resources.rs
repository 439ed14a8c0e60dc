//! What transfers between stages draw on, and which of them have less of it than they would take.
//!
//! As `hulk_placement.cost.drawn`: inside a region each machine pair has a link of its own. Between two regions all draw
//! on the regions' link and on both uplinks; machine pairs with an own link on that too, all others on the part of the
//! regions' link that is inherited. All draw on both machines' NICs; but a wire of two machines' own is all that is drawn
//! on there.

use std::collections::HashMap;

use super::arrays::{Layout, Setting, max, min};

/// Sums of rates are exact to so much.
const ROUNDING: f64 = 1e-9;

/// Most resources that one transfer draws on: a link, its region pair's, an uplink and a NIC at either end.
const MOST: usize = 6;

/// The transfers of one boundary of one replica in one direction, in a step.
#[derive(Clone, Copy)]
pub struct Flow {
    /// Stage before the boundary.
    pub boundary: usize,
    pub is_back: bool,
    /// Bytes of one micro-batch, and of all of them.
    pub batch_bytes: f64,
    pub step_bytes: f64,
    /// Bytes a second of one transfer alone, and beside those that are under way at the same time.
    alone: f64,
    pub rate: f64,
    used: [u32; MOST],
    num_used: usize,
}

impl Flow {
    /// What crosses a boundary, on nothing yet.
    pub fn of(boundary: usize, is_back: bool, batch_bytes: f64, step_bytes: f64) -> Self {
        Self {
            boundary,
            is_back,
            batch_bytes,
            step_bytes,
            alone: 0.0,
            rate: 0.0,
            used: [0; MOST],
            num_used: 0,
        }
    }

    /// Numbers of what it draws on.
    pub fn used(&self) -> impl Iterator<Item = usize> + '_ {
        self.used[..self.num_used].iter().map(|&number| number as usize)
    }
}

/// Something that transfers share.
#[derive(Clone, Copy)]
pub struct Resource {
    pub bytes_per_s: f64,
    /// Bytes a second that all transfers would take, each alone.
    wanted: f64,
    /// Of all transfers in a step.
    bytes: f64,
}

impl Resource {
    /// Whether some transfers wait where all are under way at the same time.
    pub fn is_scarce(&self) -> bool {
        self.wanted > self.bytes_per_s * (1.0 + ROUNDING)
    }
}

/// Transfers of one boundary in one direction on one resource, of all replicas.
#[derive(Clone, Copy, Default)]
struct Slot {
    num: u32,
    wanted: f64,
}

/// The numbers of resources of one kind, by their keys.
#[derive(Default)]
struct Numbers {
    seen: Vec<u32>,
    number: Vec<u32>,
}

impl Numbers {
    fn of(num_keys: usize) -> Self {
        Self {
            seen: vec![0; num_keys],
            number: vec![0; num_keys],
        }
    }
}

/// All transfers of a layout's stages and what they draw on.
pub struct Resources {
    /// Replica after replica, boundary after boundary, there and back.
    pub flows: Vec<Flow>,
    pub resources: Vec<Resource>,
    slots: Vec<Slot>,
    carried: Numbers,
    inherited: Numbers,
    leaving: Numbers,
    entering: Numbers,
    out_of: Numbers,
    into: Numbers,
    pairs: HashMap<(usize, usize), u32>,
    /// Number of the layout that was looked at last, by which entries of `Numbers` are known to be of it.
    layout: u32,
    seen_m: Vec<u32>,
    /// Whether two transfers may go between the same machines in the same direction.
    may_meet: bool,
    num_slots: usize,
}

impl Resources {
    pub fn of(num_regions: usize, num_machines: usize) -> Self {
        let pairs = num_regions * num_regions;
        Self {
            flows: Vec::new(),
            resources: Vec::new(),
            slots: Vec::new(),
            carried: Numbers::of(pairs),
            inherited: Numbers::of(pairs),
            leaving: Numbers::of(num_regions),
            entering: Numbers::of(num_regions),
            out_of: Numbers::of(num_machines),
            into: Numbers::of(num_machines),
            pairs: HashMap::new(),
            layout: 0,
            seen_m: vec![0; num_machines],
            may_meet: false,
            num_slots: 0,
        }
    }

    /// Looks at a layout's transfers; whether anything that they share is scarce.
    pub fn update(
        &mut self,
        setting: &Setting,
        layout: &Layout,
        batch_bytes: impl Fn(usize, usize) -> (f64, f64),
    ) -> bool {
        self.begin(setting, layout, 1);
        for replica in 0..layout.num_replicas() {
            for (boundary, ends) in layout.row(replica).windows(2).enumerate() {
                let (batch, step) = batch_bytes(replica, boundary);
                for (is_back, source, target) in [(false, ends[0], ends[1]), (true, ends[1], ends[0])] {
                    let flow = Flow::of(boundary, is_back, batch, step);
                    self.add(setting, flow, source, target);
                }
            }
        }
        self.resources.iter().any(Resource::is_scarce)
    }

    /// Forgets the transfers of the layout before; each of the next ones is of so many ranks.
    pub fn begin(&mut self, setting: &Setting, layout: &Layout, num_ranks: usize) {
        if self.layout == u32::MAX {
            for numbers in [
                &mut self.carried,
                &mut self.inherited,
                &mut self.leaving,
                &mut self.entering,
                &mut self.out_of,
                &mut self.into,
            ] {
                numbers.seen.fill(0);
            }
            self.seen_m.fill(0);
            self.layout = 0;
        }
        self.layout += 1;
        self.num_slots = 2 * layout.num_stages.saturating_sub(1);
        self.flows.clear();
        self.resources.clear();
        self.pairs.clear();
        self.may_meet = num_ranks > 1 || setting.worker_cells > 1 || self.is_any_machine_twice(layout);
    }

    /// Adds a transfer from one machine to another.
    pub fn add(&mut self, setting: &Setting, mut flow: Flow, source: usize, target: usize) {
        flow.alone = setting.pair(source, target).1;
        flow.rate = flow.alone;
        if source != target && flow.alone > 0.0 && flow.batch_bytes > 0.0 {
            self.draw(setting, &mut flow, source, target);
        }
        self.flows.push(flow);
    }

    /// Seconds that all transfers of a step keep the busiest busy of what one of them draws on.
    pub fn busy_s(&self, flow: &Flow) -> f64 {
        flow.used()
            .map(|r| self.resources[r].bytes / self.resources[r].bytes_per_s)
            .fold(0.0, max)
    }

    /// Else no two transfers go between the same machines in the same direction.
    fn is_any_machine_twice(&mut self, layout: &Layout) -> bool {
        layout
            .machines
            .iter()
            .any(|&machine| std::mem::replace(&mut self.seen_m[machine], self.layout) == self.layout)
    }

    fn draw(&mut self, setting: &Setting, flow: &mut Flow, source: usize, target: usize) {
        let (a, b) = (setting.region(source), setting.region(target));
        let own = setting.own_qq.at(setting.place(source), setting.place(target));
        if self.may_meet && own < f64::INFINITY {
            let next = self.resources.len() as u32;
            let number = *self.pairs.entry((source, target)).or_insert(next);
            self.take(flow, number, own);
        }
        if setting.is_wire(source, target) {
            return;
        }
        self.draw_nics(setting, flow, source, target);
        if a == b {
            return;
        }
        let (key, carried, capacity) = (
            a * setting.num_regions() + b,
            setting.carried_rr.at(a, b),
            setting.capacity_rr.at(a, b),
        );
        if own == f64::INFINITY && capacity < carried {
            let number = number(&mut self.inherited, key, self.layout, self.resources.len());
            self.take(flow, number, capacity);
        }
        let shared = number(&mut self.carried, key, self.layout, self.resources.len());
        self.take(flow, shared, carried);
        if setting.uplink_r[a] < f64::INFINITY {
            let out = number(&mut self.leaving, a, self.layout, self.resources.len());
            self.take(flow, out, setting.uplink_r[a]);
        }
        if setting.uplink_r[b] < f64::INFINITY {
            let into = number(&mut self.entering, b, self.layout, self.resources.len());
            self.take(flow, into, setting.uplink_r[b]);
        }
    }

    fn draw_nics(&mut self, setting: &Setting, flow: &mut Flow, source: usize, target: usize) {
        let (out_of, into) = (setting.nic_k[setting.kind(source)], setting.nic_k[setting.kind(target)]);
        if out_of < f64::INFINITY {
            let number = number(&mut self.out_of, source, self.layout, self.resources.len());
            self.take(flow, number, out_of);
        }
        if into < f64::INFINITY {
            let number = number(&mut self.into, target, self.layout, self.resources.len());
            self.take(flow, number, into);
        }
    }

    fn take(&mut self, flow: &mut Flow, number: u32, bytes_per_s: f64) {
        if number as usize == self.resources.len() {
            self.resources.push(Resource {
                bytes_per_s,
                wanted: 0.0,
                bytes: 0.0,
            });
        }
        let resource = &mut self.resources[number as usize];
        resource.wanted += flow.alone;
        resource.bytes += flow.step_bytes;
        flow.used[flow.num_used] = number;
        flow.num_used += 1;
    }

    /// Gives each transfer its rate beside those of the same boundary and direction of other replicas.
    ///
    /// Replicas begin together and go in step, so these are under way at the same time. Of what is scarce each of n has
    /// the n-th part, or what the others leave that take all they can.
    pub fn share(&mut self) {
        let Self {
            flows,
            resources,
            slots,
            num_slots,
            ..
        } = self;
        slots.clear();
        slots.resize(resources.len() * *num_slots, Slot::default());
        let at = |flow: &Flow, r: usize| r * *num_slots + 2 * flow.boundary + usize::from(flow.is_back);
        for flow in flows.iter() {
            for r in flow.used() {
                let slot = &mut slots[at(flow, r)];
                slot.num += 1;
                slot.wanted += flow.alone;
            }
        }
        for flow in flows.iter_mut() {
            let mut rate = flow.alone;
            for r in flow.used().filter(|&r| resources[r].is_scarce()) {
                let (slot, bytes_per_s) = (slots[at(flow, r)], resources[r].bytes_per_s);
                let left = bytes_per_s - (slot.wanted - flow.alone);
                rate = min(rate, max(bytes_per_s / f64::from(slot.num), left));
            }
            flow.rate = rate;
        }
    }
}

/// The number of a key, the next one where the layout has none of it yet.
fn number(numbers: &mut Numbers, key: usize, layout: u32, next: usize) -> u32 {
    if numbers.seen[key] != layout {
        numbers.seen[key] = layout;
        numbers.number[key] = next as u32;
    }
    numbers.number[key]
}
