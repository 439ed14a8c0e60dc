package main

import "time"

// packet is what a link holds: where its bytes are in the pool, and when it leaves the link.
type packet struct {
	due  time.Duration
	slot uint32
	size uint16
}

// fifo is a growing ring of packets.
type fifo struct {
	ring  []packet // length is a power of two
	head  int
	count int
}

func (q *fifo) push(p packet) {
	if q.count == len(q.ring) {
		larger := make([]packet, max(64, 2*len(q.ring)))
		for i := range q.count {
			larger[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
		}
		q.ring, q.head = larger, 0
	}
	q.ring[(q.head+q.count)&(len(q.ring)-1)] = p
	q.count++
}

// front is valid until the next push; the queue must not be empty.
func (q *fifo) front() *packet { return &q.ring[q.head] }

func (q *fifo) pop() packet {
	p := q.ring[q.head]
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.count--
	return p
}

// counters of one directed link since the relay started.
type counters struct {
	Packets  uint64 `json:"packets"`  // delivered
	Bytes    uint64 `json:"bytes"`    // delivered, of IP packets
	Drops    uint64 `json:"drops"`    // the router buffer was full
	Losses   uint64 `json:"losses"`   // lost at random, as asked for
	CutDrops uint64 `json:"cutDrops"` // the link was cut
	Late     uint64 `json:"late"`     // delivered more than the stated bound after they were due
	MaxLate  int64  `json:"maxLateMicroseconds"`
}

// link is one directed region pair: a drop-tail buffer, a serialiser and a delay, first in first out.
//
// A packet of n bytes that arrives at t starts at max(t, free), occupies the serialiser for n/rate and is due one delay
// after that. It is dropped when it would wait longer than the buffer holds. Worked example: rate 1000 B/s, delay 50 ms,
// buffer 150 ms; three packets of 100 B at t = 0 are due at 150 ms, 250 ms and never (the third would have to wait 200 ms).
// A packet that is lost at random is lost on the way: it occupies the serialiser like any other.
type link struct {
	source, target int
	delay          time.Duration
	bytesPerSecond float64
	buffer         time.Duration
	cut            bool
	loss           loss

	free    time.Duration // when the serialiser has sent everything it accepted
	lastDue time.Duration
	queue   fifo
	counters
}

// accept says when a packet of n bytes that arrives now leaves the link, or that it is dropped.
func (l *link) accept(now time.Duration, n int) (due time.Duration, ok bool) {
	if l.cut {
		l.CutDrops++
		return 0, false
	}
	start := max(now, l.free)
	if start-now > l.buffer {
		l.Drops++
		return 0, false
	}
	l.free = start + time.Duration(float64(n)/l.bytesPerSecond*1e9)
	if l.loss.strikes() {
		l.Losses++
		return 0, false
	}
	// A delay that was lowered must not let later packets overtake earlier ones.
	l.lastDue = max(l.free+l.delay, l.lastDue)
	return l.lastDue, true
}

func (l *link) delivered(p packet, now, bound time.Duration) {
	l.Packets++
	l.Bytes += uint64(p.size)
	late := now - p.due
	l.MaxLate = max(l.MaxLate, late.Microseconds())
	if late > bound {
		l.Late++
	}
}

// pool hands out fixed-size places for packets in memory the garbage collector never looks at.
type pool struct {
	memory []byte
	size   int
	free   []uint32 // last in, first out: the warmest place is used again
}

func newPool(memory []byte, size int) *pool {
	p := &pool{memory: memory, size: size, free: make([]uint32, len(memory)/size)}
	for i := range p.free {
		p.free[i] = uint32(len(p.free) - 1 - i)
	}
	return p
}

func (p *pool) take() (uint32, bool) {
	if len(p.free) == 0 {
		return 0, false
	}
	slot := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return slot, true
}

func (p *pool) give(slot uint32) { p.free = append(p.free, slot) }

func (p *pool) bytes(slot uint32) []byte {
	at := int(slot) * p.size
	return p.memory[at : at+p.size : at+p.size]
}
