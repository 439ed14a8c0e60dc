//! The events of a step in the order of time: blocks end, transfers leave and arrive, gradients are there.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::blocks::{Blocks, receiver_of, sender_of};
use super::sharing::Flows;
use super::sums::Sums;

/// What happens; of what happens at the same time the first goes first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// A cell's block has ended.
    Computed,
    /// A channel's micro-batch, or an edge of an all-reduce, is there.
    Arrived,
    /// A cell's part of a bucket is there.
    Ready,
    /// The windows of a channel have grown for a micro-batch.
    Opened,
}

/// When, what, whose (a cell, a flow, a bucket), and the micro-batch or the cell.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    time_s: f64,
    kind: Kind,
    who: usize,
    more: usize,
}

impl Event {
    pub fn new(time_s: f64, kind: Kind, who: usize, more: usize) -> Self {
        Self {
            time_s,
            kind,
            who,
            more,
        }
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        let rest = |event: &Self| (event.kind, event.who, event.more);
        self.time_s
            .total_cmp(&other.time_s)
            .then_with(|| rest(self).cmp(&rest(other)))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

/// What is to happen, the soonest first.
#[derive(Default)]
pub struct Events(BinaryHeap<Reverse<Event>>);

impl Events {
    pub fn push(&mut self, event: Event) {
        self.0.push(Reverse(event));
    }

    fn pop(&mut self) -> Option<Event> {
        self.0.pop().map(|Reverse(event)| event)
    }

    /// When the next event is; infinite where there is none.
    fn next_s(&self) -> f64 {
        self.0.peek().map_or(f64::INFINITY, |Reverse(event)| event.time_s)
    }
}

/// One step under way.
pub struct Step<'a> {
    blocks: Blocks<'a>,
    flows: Flows<'a>,
    sums: Sums<'a>,
    events: Events,
    /// Cells that have blocks left, and sums that are left of those that do not wait for all else.
    num_cells_left: usize,
    num_sums_left: usize,
}

impl<'a> Step<'a> {
    pub fn new(blocks: Blocks<'a>, flows: Flows<'a>, sums: Sums<'a>) -> Self {
        let (num_cells_left, num_sums_left) = (blocks.num_cells(), sums.num_before_last());
        Self {
            blocks,
            flows,
            sums,
            events: Events::default(),
            num_cells_left,
            num_sums_left,
        }
    }

    /// Go through the step until nothing is left that can happen.
    ///
    /// Rates are settled when all that happens at the same time is dealt with, before time goes on.
    pub fn run(&mut self) {
        for cell in 0..self.blocks.num_cells() {
            self.start(cell, 0.0);
        }
        let mut now_s = 0.0;
        loop {
            let next_s = self.events.next_s();
            if self.flows.is_unsettled() && next_s > now_s {
                self.flows.settle(now_s);
            }
            if let Some((end_s, flow)) = self.flows.next().filter(|(end_s, _)| *end_s < next_s) {
                now_s = end_s;
                self.end_flow(flow, now_s);
            } else if let Some(event) = self.events.pop() {
                now_s = event.time_s;
                self.happen(event);
            } else {
                break;
            }
        }
        self.sums.feel();
    }

    fn happen(
        &mut self,
        Event {
            time_s,
            kind,
            who,
            more,
        }: Event,
    ) {
        match kind {
            Kind::Computed => self.computed(who, time_s),
            Kind::Arrived if who < self.sums.first_edge => self.arrived(who, more, time_s),
            Kind::Arrived => self.reduced(who, time_s),
            Kind::Ready => self.sums.add(&mut self.flows, who, more as i64, time_s),
            Kind::Opened => self.blocks.open(&mut self.flows, who, more, time_s),
        }
    }

    /// Start the cell's next block if it can.
    fn start(&mut self, cell: usize, now_s: f64) {
        let is_started = self.blocks.start(&mut self.events, cell, now_s);
        if is_started && self.sums.is_early && self.blocks.is_last(cell) {
            self.sums
                .expect(&mut self.events, cell, now_s, self.blocks.next_seconds(cell));
        }
    }

    /// A flow's last byte has left.
    fn end_flow(&mut self, flow: usize, now_s: f64) {
        self.flows.finish(flow, now_s);
        match flow.checked_sub(self.sums.first_edge) {
            None => self.blocks.end_transfer(&mut self.flows, &mut self.events, flow, now_s),
            Some(edge) => self.sums.end_edge(&self.flows, &mut self.events, edge, now_s),
        }
    }

    /// A block has ended.
    fn computed(&mut self, cell: usize, now_s: f64) {
        self.num_cells_left -= usize::from(self.blocks.is_last(cell));
        self.blocks.end(&mut self.flows, &mut self.events, cell, now_s);
        self.start(cell, now_s);
        if self.num_cells_left == 0 && !self.sums.is_early {
            self.sums.release(&mut self.flows, false, cell as i64, now_s);
        }
        if self.num_cells_left == 0 && self.num_sums_left == 0 {
            self.sums.release(&mut self.flows, true, cell as i64, now_s);
        }
    }

    /// A block's input is there.
    fn arrived(&mut self, channel: usize, batch: usize, now_s: f64) {
        self.blocks.arrive(channel, batch, now_s);
        self.start(receiver_of(channel), now_s);
        if !self.blocks.overlap {
            self.blocks.free(sender_of(channel));
            self.start(sender_of(channel), now_s);
        }
    }

    /// An edge of an all-reduce is there.
    fn reduced(&mut self, flow: usize, now_s: f64) {
        let ended = self.sums.arrive(&mut self.flows, flow - self.sums.first_edge, now_s);
        if let Some(s) = ended.filter(|&s| !self.sums.is_last(s)) {
            self.num_sums_left -= 1;
            if self.num_cells_left == 0 && self.num_sums_left == 0 {
                self.sums.release(&mut self.flows, true, -1 - s as i64, now_s);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Events, Kind};

    #[test]
    fn the_soonest_goes_first_then_the_kind_then_the_number() {
        let mut events = Events::default();
        for (time_s, kind, who) in [(2.0, Kind::Computed, 0), (1.0, Kind::Ready, 0), (1.0, Kind::Arrived, 7)] {
            events.push(Event::new(time_s, kind, who, 0));
        }
        events.push(Event::new(1.0, Kind::Arrived, 3, 0));
        assert_eq!(events.next_s(), 1.0);
        let order: Vec<usize> = std::iter::from_fn(|| events.pop()).map(|event| event.who).collect();
        assert_eq!(order, [3, 7, 0, 0]);
        assert_eq!(events.next_s(), f64::INFINITY);
    }
}
