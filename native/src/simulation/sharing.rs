//! Flows that share what they go over: each gets its max-min fair rate until one begins or ends.
//!
//! A flow takes its own most, or less where a resource it draws on is scarce, that is, where its flows together would
//! take more than there is. Progressive filling (Bertsekas and Gallager, Data Networks, 1992, 6.5.2): the flows of the
//! resource that has least for each share get that, and so on with what is left.
//!
//! ```text
//! r is scarce         sum of most_f over r's flows > capacity_r
//! share               min over scarce r of  room_r / (shares of r's flows without a rate)
//! rate_f              min(most_f, share x shares_f)
//! end_f               now + left_f / rate_f
//! ```
//!
//! A flow that draws on a resource twice takes twice its rate of it. Rates are bytes a second, times seconds.

use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;

use crate::arrays::indices;

/// Sums of rates are exact to so much.
const ROUNDING: f64 = 1e-9;

/// Python's record of the flows there can be, and of what resources did.
#[derive(FromPyObject)]
pub struct Arrays<'py> {
    #[pyo3(attribute("first_F"))]
    first: PyReadonlyArray1<'py, i64>,
    route: PyReadonlyArray1<'py, i64>,
    #[pyo3(attribute("most_F"))]
    most: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("shares_F"))]
    shares: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("capacity_R"))]
    capacity: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("busy_R"))]
    busy: PyReadwriteArray1<'py, f64>,
    #[pyo3(attribute("scarce_R"))]
    scarce: PyReadwriteArray1<'py, f64>,
    #[pyo3(attribute("moved_R"))]
    moved: PyReadwriteArray1<'py, f64>,
}

impl Arrays<'_> {
    /// The flows, none under way.
    pub fn view(&mut self) -> PyResult<Flows<'_>> {
        let resources = Resources {
            capacity: self.capacity.as_slice()?,
            busy_s: self.busy.as_slice_mut()?,
            scarce_s: self.scarce.as_slice_mut()?,
            moved_bytes: self.moved.as_slice_mut()?,
        };
        let (first, route) = (indices(&self.first)?, indices(&self.route)?);
        Ok(Flows::new(
            first,
            route,
            self.most.as_slice()?,
            self.shares.as_slice()?,
            resources,
        ))
    }
}

/// What flows draw on: bytes a second that each carries, and what it did.
pub struct Resources<'a> {
    capacity: &'a [f64],
    busy_s: &'a mut [f64],
    scarce_s: &'a mut [f64],
    moved_bytes: &'a mut [f64],
}

/// All flows there can be, and what is under way.
pub struct Flows<'a> {
    /// Where each flow's resources begin in `route`.
    first: Vec<usize>,
    route: Vec<usize>,
    /// What the entry takes where nothing is scarce, all its flows together.
    most: &'a [f64],
    shares: &'a [f64],
    resources: Resources<'a>,
    /// The flows under way, and where each is among them.
    active: Vec<usize>,
    place: Vec<usize>,
    /// Bytes left at `since`.
    left: Vec<f64>,
    since: Vec<f64>,
    rate: Vec<f64>,
    end: Vec<f64>,
    /// The resource that a flow is held back by; the first of its way where that is its own most.
    limit: Vec<usize>,
    /// What the flows on a resource would take, and how many they are.
    demand: Vec<f64>,
    count: Vec<usize>,
    is_scarce: Vec<bool>,
    /// The resources that are scarce, in their order.
    scarce: Vec<usize>,
    /// When a resource came to be in use.
    used_since: Vec<f64>,
    /// What is left of a scarce resource, and the shares of its flows without a rate yet.
    room: Vec<f64>,
    open_shares: Vec<f64>,
    /// The flows without a rate yet.
    open: Vec<usize>,
    is_unsettled: bool,
    next: Option<usize>,
    /// When rates were settled.
    settled_s: f64,
}

impl<'a> Flows<'a> {
    /// Flows of which each one's resources begin in `route` at its `first`; none under way.
    fn new(first: Vec<usize>, route: Vec<usize>, most: &'a [f64], shares: &'a [f64], resources: Resources<'a>) -> Self {
        let (num, num_resources) = (most.len(), resources.capacity.len());
        Self {
            limit: first[..num].iter().map(|&begin| route[begin]).collect(),
            first,
            route,
            most,
            shares,
            resources,
            active: Vec::with_capacity(num),
            place: vec![0; num],
            left: vec![0.0; num],
            since: vec![0.0; num],
            rate: vec![0.0; num],
            end: vec![0.0; num],
            demand: vec![0.0; num_resources],
            count: vec![0; num_resources],
            is_scarce: vec![false; num_resources],
            scarce: Vec::with_capacity(num_resources),
            used_since: vec![0.0; num_resources],
            room: vec![0.0; num_resources],
            open_shares: vec![0.0; num_resources],
            open: Vec::with_capacity(num),
            is_unsettled: false,
            next: None,
            settled_s: 0.0,
        }
    }

    /// Whether flows began or ended since rates were settled.
    pub fn is_unsettled(&self) -> bool {
        self.is_unsettled
    }

    /// The flow that ends next, and when.
    pub fn next(&self) -> Option<(f64, usize)> {
        self.next.map(|f| (self.end[f], f))
    }

    /// The resource that held a flow back in the end.
    pub fn limit(&self, f: usize) -> usize {
        self.limit[f]
    }

    /// Flow f begins; rates must be settled before time goes on.
    pub fn start(&mut self, f: usize, num_bytes: f64, now_s: f64) {
        self.left[f] = num_bytes;
        self.since[f] = now_s;
        self.rate[f] = 0.0;
        self.end[f] = f64::INFINITY;
        self.place[f] = self.active.len();
        self.active.push(f);
        self.is_unsettled = true;
        for &r in &self.route[self.first[f]..self.first[f + 1]] {
            if self.count[r] == 0 {
                self.used_since[r] = now_s;
            }
            self.count[r] += 1;
            self.demand[r] += self.most[f];
        }
    }

    /// Flow f is done; rates must be settled before time goes on.
    pub fn finish(&mut self, f: usize, now_s: f64) {
        self.carry(f, now_s);
        let place = self.place[f];
        self.active.swap_remove(place);
        if let Some(&moved) = self.active.get(place) {
            self.place[moved] = place;
        }
        self.is_unsettled = true;
        for &r in &self.route[self.first[f]..self.first[f + 1]] {
            self.count[r] -= 1;
            self.demand[r] -= self.most[f];
            if self.count[r] == 0 {
                self.demand[r] = 0.0;
                self.resources.busy_s[r] += now_s - self.used_since[r];
            }
        }
    }

    /// Give all flows their fair rates from now on, and find the one that ends next.
    pub fn settle(&mut self, now_s: f64) {
        self.find_scarce(now_s);
        self.find_open(now_s);
        while !self.open.is_empty() {
            self.fill(now_s);
        }
        self.settled_s = now_s;
        self.is_unsettled = false;
        self.next = None;
        let mut end_s = f64::INFINITY;
        for &f in &self.active {
            if self.end[f] < end_s {
                end_s = self.end[f];
                self.next = Some(f);
            }
        }
    }

    /// Carry what flow f moved at its rate until now.
    fn carry(&mut self, f: usize, now_s: f64) {
        let num_bytes = self.rate[f] * (now_s - self.since[f]);
        self.left[f] = (self.left[f] - num_bytes).max(0.0);
        self.since[f] = now_s;
        for &r in &self.route[self.first[f]..self.first[f + 1]] {
            self.resources.moved_bytes[r] += num_bytes;
        }
    }

    fn give(&mut self, f: usize, rate: f64, limit: usize, now_s: f64) {
        self.limit[f] = limit;
        if rate != self.rate[f] {
            self.carry(f, now_s);
            self.rate[f] = rate;
            self.end[f] = now_s + self.left[f] / rate;
        }
        for &r in &self.route[self.first[f]..self.first[f + 1]] {
            if self.is_scarce[r] {
                self.room[r] = (self.room[r] - rate).max(0.0);
                self.open_shares[r] -= self.shares[f];
            }
        }
    }

    /// What is scarce from now on.
    fn find_scarce(&mut self, now_s: f64) {
        for &r in &self.scarce {
            self.resources.scarce_s[r] += now_s - self.settled_s;
        }
        self.scarce.clear();
        for (r, &capacity) in self.resources.capacity.iter().enumerate() {
            self.is_scarce[r] = self.demand[r] > capacity * (1.0 + ROUNDING);
            if self.is_scarce[r] {
                self.scarce.push(r);
                self.room[r] = capacity;
                self.open_shares[r] = 0.0;
            }
        }
    }

    /// The flows that draw on what is scarce have no rate yet; the others get their most.
    fn find_open(&mut self, now_s: f64) {
        self.open.clear();
        for k in 0..self.active.len() {
            let f = self.active[k];
            let mut is_open = false;
            for &r in &self.route[self.first[f]..self.first[f + 1]] {
                if self.is_scarce[r] {
                    self.open_shares[r] += self.shares[f];
                    is_open = true;
                }
            }
            if is_open {
                self.open.push(f);
            } else {
                self.give(f, self.most[f], self.route[self.first[f]], now_s);
            }
        }
    }

    /// The scarce resource that has least for a share of its open flows, and how much that is.
    fn tightest(&self) -> (Option<usize>, f64) {
        let (mut tightest, mut least) = (None, f64::INFINITY);
        for &r in &self.scarce {
            let share = self.room[r] / self.open_shares[r];
            if self.open_shares[r] > 0.5 && share < least {
                (tightest, least) = (Some(r), share);
            }
        }
        (tightest, least)
    }

    /// Give open flows what they need where that is within every share, else those of the tightest resource theirs.
    fn fill(&mut self, now_s: f64) {
        let (tightest, share) = self.tightest();
        let mut open = std::mem::take(&mut self.open);
        let num_open = open.len();
        open.retain(|&f| {
            let is_within = self.most[f] <= share * self.shares[f];
            if is_within {
                self.give(f, self.most[f], self.route[self.first[f]], now_s);
            }
            !is_within
        });
        if let Some(tightest) = tightest.filter(|_| open.len() == num_open) {
            open.retain(|&f| {
                let is_held = self.route[self.first[f]..self.first[f + 1]].contains(&tightest);
                if is_held {
                    self.give(f, share * self.shares[f], tightest, now_s);
                }
                !is_held
            });
        }
        self.open = open;
    }
}

#[cfg(test)]
mod tests {
    use super::{Flows, Resources};

    /// A (its own most 100), B and C (3 at most) over a link of 10, B over one of 4 too: C gets 3, B and A share the
    /// rest: 3.5 each.
    #[test]
    fn what_one_does_not_take_the_others_share() {
        let (mut busy_s, mut scarce_s, mut moved_bytes) = ([0.0; 2], [0.0; 2], [0.0; 2]);
        let resources = Resources {
            capacity: &[10.0, 4.0],
            busy_s: &mut busy_s,
            scarce_s: &mut scarce_s,
            moved_bytes: &mut moved_bytes,
        };
        let most = [100.0, 100.0, 3.0];
        let mut flows = Flows::new(vec![0, 1, 3, 4], vec![0, 0, 1, 0], &most, &[1.0; 3], resources);
        for f in 0..3 {
            flows.start(f, 21.0, 0.0);
        }
        flows.settle(0.0);
        assert_eq!(flows.rate, [3.5, 3.5, 3.0]);
        assert_eq!(flows.next(), Some((6.0, 0)));

        flows.finish(0, 6.0);
        flows.finish(1, 6.0);
        flows.settle(6.0);
        assert_eq!(flows.next(), Some((7.0, 2)));
        flows.finish(2, 7.0);
        flows.settle(7.0);
        assert_eq!(flows.next(), None);
        assert_eq!(busy_s, [7.0, 6.0]);
        assert_eq!(scarce_s, [6.0, 6.0]);
        assert_eq!(moved_bytes, [63.0, 21.0]);
    }

    /// An entry of three flows gets three shares, and one that draws on a link twice takes twice its rate of it.
    #[test]
    fn shares_and_repeated_resources_count_as_often_as_they_are() {
        let (mut busy_s, mut scarce_s, mut moved_bytes) = ([0.0], [0.0], [0.0]);
        let resources = Resources {
            capacity: &[10.0],
            busy_s: &mut busy_s,
            scarce_s: &mut scarce_s,
            moved_bytes: &mut moved_bytes,
        };
        let mut flows = Flows::new(vec![0, 1, 3], vec![0, 0, 0], &[100.0; 2], &[3.0, 1.0], resources);
        flows.start(0, 6.0, 0.0);
        flows.start(1, 2.0, 0.0);
        flows.settle(0.0);
        assert_eq!(flows.rate, [6.0, 2.0]);
    }
}
