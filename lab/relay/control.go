package main

import (
	"encoding/json"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// request is one line of the control socket; answer is the line that comes back.
type request struct {
	Op             string   `json:"op"` // stats, set, cut or heal
	Source         string   `json:"source"`
	Target         string   `json:"target"`
	DelayMicros    *int64   `json:"delayMicroseconds"`
	BytesPerSecond *float64 `json:"bytesPerSecond"`
	Loss           *float64 `json:"loss"` // share of packets, drawn independently
	Seed           uint64   `json:"seed"` // of the losses: the same packets in the same order lose the same ones
}

type answer struct {
	Error      string       `json:"error,omitempty"`
	Links      []linkAnswer `json:"links,omitempty"`
	CPUMicros  int64        `json:"cpuMicroseconds,omitempty"`
	Rounds     uint64       `json:"rounds,omitempty"`
	Unroutable uint64       `json:"unroutable"`
	Exhausted  uint64       `json:"exhausted"`
	Refused    uint64       `json:"refused"`
}

type linkAnswer struct {
	Source         string  `json:"source"`
	Target         string  `json:"target"`
	DelayMicros    int64   `json:"delayMicroseconds"`
	BytesPerSecond float64 `json:"bytesPerSecond"`
	Cut            bool    `json:"cut"`
	Loss           float64 `json:"loss"`
	Queued         int     `json:"queued"`
	counters
}

// serve answers every connection's lines in turn.
func (r *relay) serve(listener net.Listener) error {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			decoder, encoder := json.NewDecoder(connection), json.NewEncoder(connection)
			for {
				var q request
				if decoder.Decode(&q) != nil || encoder.Encode(r.answer(q)) != nil {
					return
				}
			}
		}()
	}
}

func (r *relay) answer(q request) (a answer) {
	r.do(func() {
		switch q.Op {
		case "stats":
			a = r.stats()
		case "set", "cut", "heal":
			if err := r.change(q); err != nil {
				a.Error = err.Error()
			}
		default:
			a.Error = fmt.Sprintf("op %q is none of stats, set, cut, heal", q.Op)
		}
	})
	return a
}

func (r *relay) stats() answer {
	a := answer{Rounds: r.rounds, Unroutable: r.unroutable, Exhausted: r.exhausted, Refused: r.refused}
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		a.CPUMicros = (usage.Utime.Nano() + usage.Stime.Nano()) / 1000
	}
	for _, l := range r.flat {
		a.Links = append(a.Links, linkAnswer{
			Source: r.names[l.source], Target: r.names[l.target], DelayMicros: l.delay.Microseconds(),
			BytesPerSecond: l.bytesPerSecond, Cut: l.cut, Loss: l.loss.share, Queued: l.queue.count, counters: l.counters,
		})
	}
	return a
}

// change sets, cuts or heals one directed link. What was accepted before a set keeps its time; a cut loses it.
func (r *relay) change(q request) error {
	for _, l := range r.flat {
		if r.names[l.source] != q.Source || r.names[l.target] != q.Target {
			continue
		}
		if q.DelayMicros != nil {
			if *q.DelayMicros < 0 {
				return fmt.Errorf("link %s->%s: delay %d us must be >= 0", q.Source, q.Target, *q.DelayMicros)
			}
			l.delay = time.Duration(*q.DelayMicros) * time.Microsecond
		}
		if q.BytesPerSecond != nil {
			if *q.BytesPerSecond <= 0 {
				return fmt.Errorf("link %s->%s: rate %g B/s must be > 0", q.Source, q.Target, *q.BytesPerSecond)
			}
			l.bytesPerSecond = *q.BytesPerSecond
		}
		if q.Loss != nil {
			if *q.Loss < 0 || *q.Loss > 1 {
				return fmt.Errorf("link %s->%s: loss %g must be from 0 to 1", q.Source, q.Target, *q.Loss)
			}
			l.loss = newLoss(*q.Loss, q.Seed)
		}
		if q.Op != "set" {
			l.cut = q.Op == "cut"
		}
		if q.Op == "cut" {
			l.free = 0
			for l.queue.count > 0 {
				r.pool.give(l.queue.pop().slot)
				l.CutDrops++
			}
		}
		return nil
	}
	return fmt.Errorf("no link %s->%s", q.Source, q.Target)
}
