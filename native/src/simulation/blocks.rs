//! The blocks of every cell in their order: what may start, and what is sent when it has ended.
//!
//! A cell starts its next block as soon as it is free and the block's input has arrived. Outputs of one kind
//! (activations, gradients) leave a cell over one channel, one after the other, and no sooner than the windows of silent
//! connections have grown (`windows`):
//!
//! ```text
//! leaves    max(now, opened - bytes / rate)
//! arrives   end of its flow + latency
//! ```

use numpy::ndarray::{ArrayView2, ArrayViewMut2};
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1, PyReadwriteArray2};
use pyo3::prelude::*;

use super::events::{Event, Events, Kind};
use super::sharing::Flows;
use crate::windows::{opened_s, packets_of};

const FORWARD: usize = 0;
const BACKWARD: usize = 1;

/// Python's record of what cells compute, and of what they have computed.
#[derive(FromPyObject)]
pub struct Arrays<'py> {
    num_stages: usize,
    overlap: bool,
    #[pyo3(attribute("order_CI"))]
    order: PyReadonlyArray2<'py, i64>,
    #[pyo3(attribute("seconds_CI"))]
    seconds: PyReadonlyArray2<'py, f64>,
    #[pyo3(attribute("bytes_HM"))]
    bytes: PyReadonlyArray2<'py, f64>,
    #[pyo3(attribute("is_cold_H"))]
    is_cold: PyReadonlyArray1<'py, bool>,
    #[pyo3(attribute("latency_H"))]
    latency: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("rate_H"))]
    rate: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("next_C"))]
    next: PyReadwriteArray1<'py, i64>,
    #[pyo3(attribute("start_CI"))]
    start: PyReadwriteArray2<'py, f64>,
    #[pyo3(attribute("end_CI"))]
    end: PyReadwriteArray2<'py, f64>,
    #[pyo3(attribute("queue_HM"))]
    queue: PyReadwriteArray2<'py, i64>,
    #[pyo3(attribute("num_sent_H"))]
    num_sent: PyReadwriteArray1<'py, i64>,
    #[pyo3(attribute("sending_HM"))]
    sending: PyReadwriteArray2<'py, f64>,
    #[pyo3(attribute("sent_HM"))]
    sent: PyReadwriteArray2<'py, f64>,
    #[pyo3(attribute("arrived_HM"))]
    arrived: PyReadwriteArray2<'py, f64>,
    #[pyo3(attribute("held_by_HM"))]
    held_by: PyReadwriteArray2<'py, i64>,
}

impl Arrays<'_> {
    /// The blocks, none started.
    pub fn view(&mut self) -> PyResult<Blocks<'_>> {
        let (order, latency) = (self.order.as_array(), self.latency.as_slice()?);
        let (num_cells, num_channels) = (order.nrows(), latency.len());
        Ok(Blocks {
            num_stages: self.num_stages,
            overlap: self.overlap,
            order,
            seconds: self.seconds.as_array(),
            bytes: self.bytes.as_array(),
            is_cold: self.is_cold.as_slice()?,
            latency,
            rate: self.rate.as_slice()?,
            packets: vec![0.0; num_channels],
            room: vec![0.0; num_channels],
            opened: vec![0.0; num_channels],
            num_queued: vec![0; num_channels],
            is_busy: vec![false; num_cells],
            next: self.next.as_slice_mut()?,
            start: self.start.as_array_mut(),
            end: self.end.as_array_mut(),
            queue: self.queue.as_array_mut(),
            num_sent: self.num_sent.as_slice_mut()?,
            sending: self.sending.as_array_mut(),
            sent: self.sent.as_array_mut(),
            arrived: self.arrived.as_array_mut(),
            held_by: self.held_by.as_array_mut(),
        })
    }
}

/// What cells compute, and what they have computed: times are infinite until then, in seconds.
pub struct Blocks<'a> {
    num_stages: usize,
    pub overlap: bool,
    /// 2 x micro-batch + kind; -1 behind the last block.
    order: ArrayView2<'a, i64>,
    seconds: ArrayView2<'a, f64>,
    bytes: ArrayView2<'a, f64>,
    is_cold: &'a [bool],
    latency: &'a [f64],
    /// Bytes a second of a transfer alone.
    rate: &'a [f64],
    /// Packets that have been sent, packets that may have left by now, and when the last of these could.
    packets: Vec<f64>,
    room: Vec<f64>,
    opened: Vec<f64>,
    num_queued: Vec<usize>,
    /// Computing, or waiting until what it sent has arrived.
    is_busy: Vec<bool>,
    next: &'a mut [i64],
    start: ArrayViewMut2<'a, f64>,
    end: ArrayViewMut2<'a, f64>,
    /// Micro-batches in the order in which they are sent.
    queue: ArrayViewMut2<'a, i64>,
    num_sent: &'a mut [i64],
    /// When the first byte leaves, when the last one has, and when that is there.
    sending: ArrayViewMut2<'a, f64>,
    sent: ArrayViewMut2<'a, f64>,
    arrived: ArrayViewMut2<'a, f64>,
    /// The resource that held the transfer back in the end.
    held_by: ArrayViewMut2<'a, i64>,
}

/// The channel that a block's input comes over.
#[pyfunction]
pub fn input_of(num_stages: usize, cell: usize, kind: usize) -> Option<usize> {
    let stage = cell % num_stages;
    match kind {
        FORWARD => (stage > 0).then(|| 2 * (cell - 1) + FORWARD),
        _ => (stage + 1 < num_stages).then_some(2 * (cell + 1) + BACKWARD),
    }
}

/// The channel that a block's output leaves over.
#[pyfunction]
pub fn output_of(num_stages: usize, cell: usize, kind: usize) -> Option<usize> {
    let stage = cell % num_stages;
    let is_needed = if kind == FORWARD {
        stage + 1 < num_stages
    } else {
        stage > 0
    };
    is_needed.then_some(2 * cell + kind)
}

/// The cell that a channel leaves.
pub fn sender_of(channel: usize) -> usize {
    channel / 2
}

/// The cell at the end of a channel.
pub fn receiver_of(channel: usize) -> usize {
    if channel % 2 == FORWARD {
        channel / 2 + 1
    } else {
        channel / 2 - 1
    }
}

impl Blocks<'_> {
    pub fn num_cells(&self) -> usize {
        self.next.len()
    }

    /// Seconds of the cell's next block.
    pub fn next_seconds(&self, cell: usize) -> f64 {
        self.seconds[[cell, self.next[cell] as usize]]
    }

    /// Whether the cell's next block is its last one, a backward pass.
    pub fn is_last(&self, cell: usize) -> bool {
        self.code(cell, self.next[cell] as usize + 1).is_none()
    }

    /// The kind and the micro-batch of one of the cell's blocks; none behind its last one.
    fn code(&self, cell: usize, number: usize) -> Option<(usize, usize)> {
        let code = usize::try_from(*self.order.get([cell, number])?).ok()?;
        Some((code % 2, code / 2))
    }

    /// Start the cell's next block if it can: whether it did.
    pub fn start(&mut self, events: &mut Events, cell: usize, now_s: f64) -> bool {
        let number = self.next[cell] as usize;
        let Some((kind, batch)) = self.code(cell, number).filter(|_| !self.is_busy[cell]) else {
            return false;
        };
        if input_of(self.num_stages, cell, kind).is_some_and(|channel| self.arrived[[channel, batch]] > now_s) {
            return false;
        }
        self.is_busy[cell] = true;
        self.start[[cell, number]] = now_s;
        events.push(Event::new(
            now_s + self.seconds[[cell, number]],
            Kind::Computed,
            cell,
            0,
        ));
        true
    }

    /// The cell's block has ended: its output waits for the channel, and the cell is free unless it waits for that.
    pub fn end(&mut self, flows: &mut Flows, events: &mut Events, cell: usize, now_s: f64) {
        let number = self.next[cell] as usize;
        self.end[[cell, number]] = now_s;
        self.next[cell] += 1;
        let Some((kind, batch)) = self.code(cell, number) else {
            return;
        };
        let channel = output_of(self.num_stages, cell, kind);
        self.is_busy[cell] = channel.is_some() && !self.overlap;
        if let Some(channel) = channel {
            let queued = self.num_queued[channel];
            self.queue[[channel, queued]] = batch as i64;
            self.num_queued[channel] += 1;
            if queued == self.num_sent[channel] as usize {
                self.send_next(flows, events, channel, now_s);
            }
        }
    }

    /// Begin to send what has waited longest for the channel, if anything has.
    fn send_next(&mut self, flows: &mut Flows, events: &mut Events, channel: usize, now_s: f64) {
        let number = self.num_sent[channel] as usize;
        if number == self.num_queued[channel] {
            return;
        }
        let batch = self.queue[[channel, number]] as usize;
        self.sending[[channel, batch]] = now_s;
        let num_bytes = self.bytes[[channel, batch]];
        let packets = if self.is_cold[channel] {
            packets_of(num_bytes)
        } else {
            0.0
        };
        let back = 2 * receiver_of(channel) + 1 - channel % 2;
        let trip_s = self.latency[channel] + self.latency[back];
        let (sent, room, opened) = (&mut self.packets, &mut self.room, &mut self.opened);
        let late_s = opened_s(sent, room, opened, channel, packets, trip_s, now_s) - num_bytes / self.rate[channel];
        if late_s > now_s {
            events.push(Event::new(late_s, Kind::Opened, channel, batch));
        } else {
            self.open(flows, channel, batch, now_s);
        }
    }

    /// Windows have grown: what is left of a micro-batch's output leaves at the way's rate.
    pub fn open(&self, flows: &mut Flows, channel: usize, batch: usize, now_s: f64) {
        flows.start(channel, self.bytes[[channel, batch]], now_s);
    }

    /// The last byte has left a channel: it arrives later, and the next micro-batch's first byte leaves.
    pub fn end_transfer(&mut self, flows: &mut Flows, events: &mut Events, channel: usize, now_s: f64) {
        let batch = self.queue[[channel, self.num_sent[channel] as usize]] as usize;
        self.num_sent[channel] += 1;
        self.sent[[channel, batch]] = now_s;
        self.held_by[[channel, batch]] = flows.limit(channel) as i64;
        events.push(Event::new(now_s + self.latency[channel], Kind::Arrived, channel, batch));
        self.send_next(flows, events, channel, now_s);
    }

    /// What a cell sent is there.
    pub fn arrive(&mut self, channel: usize, batch: usize, now_s: f64) {
        self.arrived[[channel, batch]] = now_s;
    }

    /// A cell that waited until what it sent has arrived is free.
    pub fn free(&mut self, cell: usize) {
        self.is_busy[cell] = false;
    }
}

#[cfg(test)]
mod tests {
    use super::{BACKWARD, FORWARD, input_of, output_of, receiver_of};

    /// Two replicas of three stages: no channel joins them.
    #[test]
    fn an_output_is_the_input_of_the_neighbour() {
        for cell in 0..6 {
            if let Some(channel) = output_of(3, cell, FORWARD) {
                assert_eq!(receiver_of(channel), cell + 1);
                assert_eq!(input_of(3, cell + 1, FORWARD), Some(channel));
            }
            if let Some(channel) = output_of(3, cell, BACKWARD) {
                assert_eq!(receiver_of(channel), cell - 1);
                assert_eq!(input_of(3, cell - 1, BACKWARD), Some(channel));
            }
        }
        let ends = [(2, FORWARD), (0, BACKWARD), (5, FORWARD), (3, BACKWARD)];
        assert_eq!(ends.map(|(cell, kind)| output_of(3, cell, kind)), [None; 4]);
    }
}
