//! The all-reduces of gradients: buckets that become ready, wait for their turn, and go phase by phase.
//!
//! ```text
//! a member's part of bucket s is there   start of its last backward pass + fraction_s x its seconds
//! the step feels the end of sum s        max(start, end - slack of its group)
//! ```

use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;

use super::events::{Event, Events, Kind};
use super::sharing::Flows;
use crate::arrays::indices;

/// Python's record of what groups reduce, and of what they have reduced.
#[derive(FromPyObject)]
pub struct Arrays<'py> {
    first_edge: usize,
    is_early: bool,
    #[pyo3(attribute("group_C"))]
    group_of_cell: PyReadonlyArray1<'py, i64>,
    #[pyo3(attribute("in_flight_G"))]
    in_flight: PyReadonlyArray1<'py, i64>,
    #[pyo3(attribute("is_last_G"))]
    is_last: PyReadonlyArray1<'py, bool>,
    #[pyo3(attribute("slack_G"))]
    slack: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("num_waits_G"))]
    num_waits: PyReadonlyArray1<'py, i64>,
    #[pyo3(attribute("first_sum_G"))]
    first_sum: PyReadonlyArray1<'py, i64>,
    #[pyo3(attribute("first_phase_S"))]
    first_phase: PyReadonlyArray1<'py, i64>,
    #[pyo3(attribute("first_edge_Q"))]
    first_edge_of_phase: PyReadonlyArray1<'py, i64>,
    #[pyo3(attribute("fraction_S"))]
    fraction: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("bytes_E"))]
    bytes: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("latency_E"))]
    latency: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("ready_S"))]
    ready: PyReadwriteArray1<'py, f64>,
    #[pyo3(attribute("cause_S"))]
    cause: PyReadwriteArray1<'py, i64>,
    #[pyo3(attribute("start_S"))]
    start: PyReadwriteArray1<'py, f64>,
    #[pyo3(attribute("end_S"))]
    end: PyReadwriteArray1<'py, f64>,
    #[pyo3(attribute("end_Q"))]
    end_of_phase: PyReadwriteArray1<'py, f64>,
    #[pyo3(attribute("last_Q"))]
    last: PyReadwriteArray1<'py, i64>,
    #[pyo3(attribute("held_by_E"))]
    held_by: PyReadwriteArray1<'py, i64>,
}

impl Arrays<'_> {
    /// The sums, none started.
    pub fn view(&mut self) -> PyResult<Sums<'_>> {
        let (first_sum, first_phase) = (indices(&self.first_sum)?, indices(&self.first_phase)?);
        let first_edge_of_phase = indices(&self.first_edge_of_phase)?;
        let (group_of_sum, sum_of_phase) = (owners(&first_sum), owners(&first_phase));
        let num_waits = indices(&self.num_waits)?;
        let group_of_cell = self.group_of_cell.as_slice()?;
        Ok(Sums {
            first_edge: self.first_edge,
            is_early: self.is_early,
            group_of_cell: group_of_cell.iter().map(|&group| usize::try_from(group).ok()).collect(),
            in_flight: indices(&self.in_flight)?,
            is_last: self.is_last.as_slice()?,
            slack: self.slack.as_slice()?,
            fraction: self.fraction.as_slice()?,
            phase_of_edge: owners(&first_edge_of_phase),
            bytes: self.bytes.as_slice()?,
            latency: self.latency.as_slice()?,
            num_missing: group_of_sum.iter().map(|&group| num_waits[group]).collect(),
            next: first_sum[..first_sum.len() - 1].to_vec(),
            num_flying: vec![0; first_sum.len() - 1],
            num_pending: first_edge_of_phase.windows(2).map(|both| both[1] - both[0]).collect(),
            first_sum,
            first_phase,
            first_edge_of_phase,
            group_of_sum,
            sum_of_phase,
            ready: self.ready.as_slice_mut()?,
            cause: self.cause.as_slice_mut()?,
            start: self.start.as_slice_mut()?,
            end: self.end.as_slice_mut()?,
            end_of_phase: self.end_of_phase.as_slice_mut()?,
            last: self.last.as_slice_mut()?,
            held_by: self.held_by.as_slice_mut()?,
        })
    }
}

/// Whose each entry is, from where each one's entries begin.
fn owners(first: &[usize]) -> Vec<usize> {
    let counts = first.windows(2).map(|both| both[1] - both[0]);
    counts
        .enumerate()
        .flat_map(|(owner, count)| std::iter::repeat_n(owner, count))
        .collect()
}

/// What groups reduce, and what they have reduced: times are infinite until then, in seconds.
pub struct Sums<'a> {
    /// Flows before are the pipelines' channels.
    pub first_edge: usize,
    /// Whether groups wait for their members' gradients only, else for all cells.
    pub is_early: bool,
    group_of_cell: Vec<Option<usize>>,
    in_flight: Vec<usize>,
    /// Whether the group waits for all else.
    is_last: &'a [bool],
    slack: &'a [f64],
    first_sum: Vec<usize>,
    first_phase: Vec<usize>,
    first_edge_of_phase: Vec<usize>,
    group_of_sum: Vec<usize>,
    /// Of the members' last backward pass.
    fraction: &'a [f64],
    sum_of_phase: Vec<usize>,
    phase_of_edge: Vec<usize>,
    bytes: &'a [f64],
    latency: &'a [f64],
    /// Members whose gradients are not there yet.
    num_missing: Vec<usize>,
    /// The sum of each group that starts next, and how many are under way.
    next: Vec<usize>,
    num_flying: Vec<usize>,
    /// Edges of each phase that have not arrived.
    num_pending: Vec<usize>,
    ready: &'a mut [f64],
    /// Whose gradients came last, a cell; -1 - s: the end of sum s, which the group waited for.
    cause: &'a mut [i64],
    start: &'a mut [f64],
    end: &'a mut [f64],
    end_of_phase: &'a mut [f64],
    /// The edge that arrived last.
    last: &'a mut [i64],
    /// The resource that held an edge back in the end.
    held_by: &'a mut [i64],
}

impl Sums<'_> {
    /// How many sums do not wait for all else.
    pub fn num_before_last(&self) -> usize {
        self.group_of_sum.iter().filter(|&&group| !self.is_last[group]).count()
    }

    /// Whether a sum waits for all else.
    pub fn is_last(&self, s: usize) -> bool {
        self.is_last[self.group_of_sum[s]]
    }

    /// A cell's last backward pass has started: say when its part of each bucket is there.
    pub fn expect(&self, events: &mut Events, cell: usize, start_s: f64, seconds: f64) {
        if let Some(group) = self.group_of_cell[cell] {
            for s in self.first_sum[group]..self.first_sum[group + 1] {
                events.push(Event::new(start_s + self.fraction[s] * seconds, Kind::Ready, s, cell));
            }
        }
    }

    /// All that these groups waited for is done: their sums are ready.
    pub fn release(&mut self, flows: &mut Flows, is_last: bool, cause: i64, now_s: f64) {
        for s in 0..self.group_of_sum.len() {
            if self.is_last(s) == is_last {
                self.add(flows, s, cause, now_s);
            }
        }
    }

    /// One more part of a sum is there.
    pub fn add(&mut self, flows: &mut Flows, s: usize, cause: i64, now_s: f64) {
        self.num_missing[s] -= 1;
        self.ready[s] = now_s;
        self.cause[s] = cause;
        self.launch(flows, self.group_of_sum[s], now_s);
    }

    /// Start the group's next sums up to those that are not ready, and as many as may be under way.
    fn launch(&mut self, flows: &mut Flows, group: usize, now_s: f64) {
        while self.num_flying[group] < self.in_flight[group] {
            let s = self.next[group];
            if s == self.first_sum[group + 1] || self.num_missing[s] > 0 {
                return;
            }
            self.next[group] += 1;
            self.num_flying[group] += 1;
            self.start[s] = now_s;
            self.start_phase(flows, self.first_phase[s], now_s);
        }
    }

    fn start_phase(&self, flows: &mut Flows, phase: usize, now_s: f64) {
        for edge in self.first_edge_of_phase[phase]..self.first_edge_of_phase[phase + 1] {
            flows.start(self.first_edge + edge, self.bytes[edge], now_s);
        }
    }

    /// An edge's last byte has left.
    pub fn end_edge(&mut self, flows: &Flows, events: &mut Events, edge: usize, now_s: f64) {
        let flow = self.first_edge + edge;
        self.held_by[edge] = flows.limit(flow) as i64;
        events.push(Event::new(now_s + self.latency[edge], Kind::Arrived, flow, 0));
    }

    /// An edge's last byte has arrived: the next phase, or the group's next sum, may start. The ended sum.
    pub fn arrive(&mut self, flows: &mut Flows, edge: usize, now_s: f64) -> Option<usize> {
        let phase = self.phase_of_edge[edge];
        self.num_pending[phase] -= 1;
        if self.num_pending[phase] > 0 {
            return None;
        }
        self.end_of_phase[phase] = now_s;
        self.last[phase] = edge as i64;
        let s = self.sum_of_phase[phase];
        if phase + 1 < self.first_phase[s + 1] {
            self.start_phase(flows, phase + 1, now_s);
            return None;
        }
        self.end[s] = now_s;
        self.num_flying[self.group_of_sum[s]] -= 1;
        self.launch(flows, self.group_of_sum[s], now_s);
        Some(s)
    }

    /// End every sum when the step feels its end, not before it began, and its phases with it.
    pub fn feel(&mut self) {
        for (s, &group) in self.group_of_sum.iter().enumerate() {
            self.end[s] = self.start[s].max(self.end[s] - self.slack[group]);
        }
        for (phase, &s) in self.sum_of_phase.iter().enumerate() {
            self.end_of_phase[phase] = self.end_of_phase[phase].min(self.end[s]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::owners;

    #[test]
    fn entries_belong_to_whoever_begins_before_them() {
        assert_eq!(owners(&[0, 2, 2, 3]), [0, 0, 2]);
        assert!(owners(&[0]).is_empty());
    }
}
