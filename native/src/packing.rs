//! Greedy scheduling: operations as they can start, of several the one that a rule ranks first.
//!
//! ```text
//! rank of operation o of micro-batch m    slope m + offset_o, the least first
//! an operation may start                  when all it needs is there and its resources are free
//! memory is enough                        if every micro-batch could still be finished, each after all older ones
//! ```
//!
//! The last is the banker's rule (Dijkstra, EWD 123, 1965). Letters of shapes: O operations, N micro-batches, R
//! resources, D devices; `first_...` say where each one's part of the flat array beside them begins.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray2, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::arrays::indices;

/// Python's record of operations.
#[derive(FromPyObject)]
pub struct Arrays<'py> {
    #[pyo3(attribute("span_O"))]
    span: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("memory_O"))]
    memory: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("num_needed_O"))]
    num_needed: PyReadonlyArray1<'py, i64>,
    #[pyo3(attribute("used_ptr"))]
    first_used: PyReadonlyArray1<'py, i64>,
    used: PyReadonlyArray1<'py, i64>,
    #[pyo3(attribute("behind_ptr"))]
    first_behind: PyReadonlyArray1<'py, i64>,
    behind: PyReadonlyArray1<'py, i64>,
    behind_lag: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("holders_ptr"))]
    first_holder: PyReadonlyArray1<'py, i64>,
    holders: PyReadonlyArray1<'py, i64>,
}

impl Arrays<'_> {
    fn operations(&self) -> PyResult<Operations<'_>> {
        let (first_behind, behind) = (indices(&self.first_behind)?, indices(&self.behind)?);
        let later: Vec<(usize, f64)> = behind
            .into_iter()
            .zip(self.behind_lag.as_slice()?.iter().copied())
            .collect();
        Ok(Operations {
            span: self.span.as_slice()?,
            memory: self.memory.as_slice()?,
            num_needed: indices(&self.num_needed)?,
            used: rows(&indices(&self.first_used)?, &indices(&self.used)?),
            behind: rows(&first_behind, &later),
            holders: rows(&indices(&self.first_holder)?, &indices(&self.holders)?),
        })
    }
}

fn rows<T: Copy>(first: &[usize], flat: &[T]) -> Vec<Vec<T>> {
    first.windows(2).map(|both| flat[both[0]..both[1]].to_vec()).collect()
}

/// What one micro-batch does, in seconds and in units of memory.
struct Operations<'a> {
    span: &'a [f64],
    /// What an operation takes of each device that it uses; what it gives back is negative.
    memory: &'a [f64],
    num_needed: Vec<usize>,
    /// The resources of each operation, devices before links.
    used: Vec<Vec<usize>>,
    /// The operations that need each one, and how long after its end they have what they need.
    behind: Vec<Vec<(usize, f64)>>,
    /// Of each device the operations that change what it holds, each behind those it needs.
    holders: Vec<Vec<usize>>,
}

/// Of what can start at the same time that goes first whose `slope` x micro-batch + `offset` is least.
struct Rule<'a> {
    slope: f64,
    offset: &'a [f64],
}

/// An operation of a micro-batch that has all it needs, and when it may start.
#[derive(Clone, Copy)]
struct Turn {
    soonest: f64,
    rank: f64,
    m: usize,
    o: usize,
}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        let times = self
            .soonest
            .total_cmp(&other.soonest)
            .then_with(|| self.rank.total_cmp(&other.rank));
        times.then_with(|| (self.m, self.o).cmp(&(other.m, other.o)))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Turn {}

/// A schedule that grows; the micro-batches take every operation in turn.
struct Packing<'a> {
    operations: &'a Operations<'a>,
    rule: Rule<'a>,
    limit: &'a [f64],
    num: usize,
    /// The start of what has started; of all else the latest of what it waits for so far.
    start: Array2<f64>,
    is_started: Array2<bool>,
    num_waits: Array2<usize>,
    /// When each resource is free.
    free: Vec<f64>,
    /// Of each device the oldest micro-batch that is not done there, and the first that is not begun.
    oldest: Vec<usize>,
    behind: Vec<usize>,
    /// What each device has no memory for.
    blocked: Vec<Vec<(usize, usize)>>,
    queue: BinaryHeap<Reverse<Turn>>,
}

/// Starts (O, N) of so many micro-batches; none where memory ran out: one alone needs more than there is.
#[pyfunction]
#[pyo3(signature = (tables, num, num_resources, limit, slope, offset))]
pub fn pack<'py>(
    py: Python<'py>,
    tables: Arrays<'py>,
    num: usize,
    num_resources: usize,
    limit: PyReadonlyArray1<'py, f64>,
    slope: f64,
    offset: PyReadonlyArray1<'py, f64>,
) -> PyResult<Option<Bound<'py, PyArray2<f64>>>> {
    let (operations, limit) = (tables.operations()?, limit.as_slice()?);
    let rule = Rule {
        slope,
        offset: offset.as_slice()?,
    };
    let starts = py.detach(|| Packing::new(&operations, rule, limit, num, num_resources).run());
    Ok(starts.map(|starts| starts.into_pyarray(py)))
}

impl<'a> Packing<'a> {
    fn new(operations: &'a Operations<'a>, rule: Rule<'a>, limit: &'a [f64], num: usize, num_resources: usize) -> Self {
        let shape = (operations.span.len(), num);
        Self {
            operations,
            rule,
            limit,
            num,
            start: Array2::zeros(shape),
            is_started: Array2::from_elem(shape, false),
            num_waits: Array2::from_shape_fn(shape, |(o, m)| operations.num_needed[o] + usize::from(m > 0)),
            free: vec![0.0; num_resources],
            oldest: vec![0; limit.len()],
            behind: vec![0; limit.len()],
            blocked: vec![Vec::new(); limit.len()],
            queue: BinaryHeap::new(),
        }
    }

    fn run(mut self) -> Option<Array2<f64>> {
        for o in 0..self.operations.span.len() {
            if self.num_waits[[o, 0]] == 0 {
                self.enqueue(0.0, o, 0);
            }
        }
        while let Some(Reverse(first)) = self.queue.pop() {
            let (o, m) = (first.o, first.m);
            let start = self.operations.used[o]
                .iter()
                .fold(first.soonest, |latest, &r| latest.max(self.free[r]));
            if start > first.soonest {
                self.queue.push(Reverse(Turn {
                    soonest: start,
                    ..first
                }));
                continue;
            }
            self.start[[o, m]] = start;
            match self.lacking(o, m) {
                Some(device) => self.blocked[device].push((o, m)),
                None => self.begin(o, m, start),
            }
        }
        self.is_started
            .iter()
            .all(|&is_started| is_started)
            .then_some(self.start)
    }

    fn enqueue(&mut self, soonest: f64, o: usize, m: usize) {
        let rank = self.rule.slope * m as f64 + self.rule.offset[o];
        self.queue.push(Reverse(Turn { soonest, rank, m, o }));
    }

    /// Operation o of micro-batch m starts: what waits for it, for its resources and for its memory may be next.
    fn begin(&mut self, o: usize, m: usize, start: f64) {
        let operations = self.operations;
        let end = start + operations.span[o];
        self.is_started[[o, m]] = true;
        for &r in &operations.used[o] {
            self.free[r] = end;
        }
        if m + 1 < self.num {
            self.need_one_less(o, m + 1, end);
        }
        for &(later, lag) in &operations.behind[o] {
            self.need_one_less(later, m, end + lag);
        }
        if operations.memory[o] != 0.0 {
            for &device in &operations.used[o] {
                self.change(device, m, end, operations.memory[o] < 0.0);
            }
        }
    }

    /// One more that the operation waits for is there then; its start holds the latest of these.
    fn need_one_less(&mut self, o: usize, m: usize, there: f64) {
        self.start[[o, m]] = self.start[[o, m]].max(there);
        self.num_waits[[o, m]] -= 1;
        if self.num_waits[[o, m]] == 0 {
            self.enqueue(self.start[[o, m]], o, m);
        }
    }

    /// A device holds another amount for micro-batch m; with less, what it had no memory for may try again at `end`.
    fn change(&mut self, device: usize, m: usize, end: f64, is_less: bool) {
        self.behind[device] = self.behind[device].max(m + 1);
        self.pass_finished(device);
        if is_less {
            for (o, of) in std::mem::take(&mut self.blocked[device]) {
                self.enqueue(end.max(self.start[[o, of]]), o, of);
            }
        }
    }

    /// The device that has too little memory for the operation.
    ///
    /// Enough: with it every micro-batch could still be finished, each after all older ones.
    fn lacking(&mut self, o: usize, m: usize) -> Option<usize> {
        if self.operations.memory[o] <= 0.0 {
            return None;
        }
        self.is_started[[o, m]] = true;
        let lacking = self.operations.used[o]
            .iter()
            .copied()
            .find(|&device| !self.is_enough(device, m));
        self.is_started[[o, m]] = false;
        lacking
    }

    fn is_enough(&self, device: usize, m: usize) -> bool {
        let most_held = self.limit[device] * (1.0 + 1e-9);
        let mut younger = 0.0;
        for other in (self.oldest[device]..self.behind[device].max(m + 1)).rev() {
            let (held, most) = self.need(device, other);
            if younger + most > most_held {
                return false;
            }
            younger += held;
        }
        true
    }

    /// What a micro-batch holds on a device, and the most that it will hold there until its end.
    fn need(&self, device: usize, m: usize) -> (f64, f64) {
        let (operations, holders) = (self.operations, &self.operations.holders[device]);
        let mut held = 0.0;
        for &o in holders {
            if self.is_started[[o, m]] {
                held += operations.memory[o];
            }
        }
        let (mut level, mut most) = (held, held);
        for &o in holders {
            if !self.is_started[[o, m]] {
                level += operations.memory[o];
                most = level.max(most);
            }
        }
        (held, most)
    }

    /// Move on from micro-batches that have given back all that they took of a device.
    fn pass_finished(&mut self, device: usize) {
        let holders = &self.operations.holders[device];
        while self.oldest[device] < self.behind[device]
            && holders.iter().all(|&o| self.is_started[[o, self.oldest[device]]])
        {
            self.oldest[device] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Operations, Packing, Rule};

    /// Forward of 1, then backward of 2, on one device; a micro-batch holds 1 between the two.
    fn two_passes() -> Operations<'static> {
        Operations {
            span: &[1.0, 2.0],
            memory: &[1.0, -1.0],
            num_needed: vec![0, 1],
            used: vec![vec![0], vec![0]],
            behind: vec![vec![(1, 0.0)], vec![]],
            holders: vec![vec![0, 1]],
        }
    }

    fn starts(operations: &Operations<'_>, offset: &[f64], limit: f64) -> Option<Vec<f64>> {
        let rule = Rule { slope: 0.0, offset };
        let starts = Packing::new(operations, rule, &[limit], 2, 1).run()?;
        Some(starts.into_raw_vec_and_offset().0)
    }

    #[test]
    fn a_rule_says_what_goes_first() {
        let operations = two_passes();
        assert_eq!(starts(&operations, &[0.0, 1.0], 2.0), Some(vec![0.0, 1.0, 2.0, 4.0]));
        assert_eq!(starts(&operations, &[1.0, 0.0], 2.0), Some(vec![0.0, 3.0, 1.0, 4.0]));
    }

    #[test]
    fn what_memory_has_no_room_for_waits_until_some_is_given_back() {
        let operations = two_passes();
        assert_eq!(starts(&operations, &[0.0, 1.0], 1.0), Some(vec![0.0, 3.0, 1.0, 4.0]));
        assert_eq!(starts(&operations, &[0.0, 1.0], 0.5), None);
    }
}
