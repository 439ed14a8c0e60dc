package main

import (
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// A round that reads and delivers all it may takes 2 to 5 ms. In such a round the fastest link must get rid of more
	// than its rate brings, or a burst leaves it late for as long as the burst lasts: 256 packets are 600 Mbit/s in 5 ms.
	readBatch    = 64  // packets read from one device before packets that are due get their turn
	deliverBatch = 256 // packets of one link delivered before the devices are read again

	// tick is how long the loop sleeps while packets flow: waking costs more than carrying a packet, so packets are
	// handled in small batches. Arrivals are taken to be in the middle of the sleep and packets leave up to half a tick
	// early, so the error is at most half a tick and zero on the mean.
	tick = 500 * time.Microsecond
	// blocked waits at least this long tell the Go scheduler; for shorter ones its bookkeeping would cost more than the wait
	longWait = 5 * time.Millisecond
)

// relay moves packets between the regions' devices; everything in it belongs to the thread that calls run.
type relay struct {
	names   []string
	devices []int
	routes  *routes
	links   [][]*link
	flat    []*link // the same links as a list
	pool    *pool
	late    time.Duration
	started time.Time

	emptied []time.Duration // when each device had nothing more
	slept   bool            // or busy since then, without watching the devices

	commands chan func() // run between two rounds by the loop's thread
	wake     int         // eventfd: a command waits

	rounds     uint64
	unroutable uint64 // no such region
	exhausted  uint64 // no place left in the pool
	refused    uint64 // the kernel took no delivered packet
}

func (r *relay) now() time.Duration { return time.Since(r.started) }

// run never returns unless the kernel refuses to wait.
func (r *relay) run() error {
	poll := make([]unix.PollFd, len(r.devices)+1)
	for i, fd := range append(append([]int{}, r.devices...), r.wake) {
		poll[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	for {
		r.rounds++
		numRead, isBehind := r.readAll()
		numDelivered, next := r.deliver()
		r.runCommands()
		var err error
		switch {
		case isBehind || 0 <= next && next <= tick/2: // one round did not do all there is
			r.slept = true
		case numRead+numDelivered > 0:
			r.slept = true
			err = wait(nil, tick)
		default:
			r.slept = false
			err = wait(poll, next)
		}
		if err != nil && err != unix.EINTR {
			return err
		}
	}
}

// wait sleeps until a descriptor is readable or the time is over; negative: no limit.
func wait(poll []unix.PollFd, limit time.Duration) error {
	var spec *unix.Timespec
	if limit >= 0 {
		t := unix.NsecToTimespec(int64(limit))
		spec = &t
	}
	if limit < 0 || limit >= longWait {
		_, err := unix.Ppoll(poll, spec, nil)
		return err
	}
	fds := uintptr(unsafe.Pointer(unsafe.SliceData(poll)))
	_, _, number := unix.RawSyscall6(unix.SYS_PPOLL, fds, uintptr(len(poll)), uintptr(unsafe.Pointer(spec)), 0, 0, 0)
	runtime.KeepAlive(poll)
	if number != 0 {
		return number
	}
	return nil
}

// deliver writes packets that are due and returns how many, and the time until the next one is due;
// negative: none waits.
func (r *relay) deliver() (count int, next time.Duration) {
	now := r.now()
	next = -1
	for _, l := range r.flat {
		for i := 0; l.queue.count > 0; i++ {
			if wait := l.queue.front().due - now; wait > tick/2 || i == deliverBatch {
				if wait = max(wait, 0); next < 0 || wait < next {
					next = wait
				}
				break
			}
			p := l.queue.pop()
			l.delivered(p, now, r.late)
			if _, err := unix.Write(r.devices[l.target], r.pool.bytes(p.slot)[:p.size]); err != nil {
				r.refused++
			}
			r.pool.give(p.slot)
			count++
			now = r.now()
		}
	}
	return count, next
}

// readAll takes what the regions sent since the last time into their links; behind: one of them has perhaps sent more.
//
// A packet arrived at some time since its device was last found empty.
func (r *relay) readAll() (count int, behind bool) {
	for region := range r.devices {
		now := r.now()
		doubt := time.Duration(0)
		if r.slept {
			doubt = (now - r.emptied[region]) / 2
		}
		n := r.read(region, now-min(doubt, r.late), doubt > r.late)
		count += n
		if n == readBatch {
			behind = true
		} else {
			r.emptied[region] = now
		}
	}
	return count, behind
}

func (r *relay) read(region int, arrived time.Duration, late bool) (count int) {
	for range readBatch {
		slot, ok := r.pool.take()
		if !ok {
			r.exhausted++
			return count
		}
		buffer := r.pool.bytes(slot)
		n, err := unix.Read(r.devices[region], buffer)
		if err != nil || n <= 0 {
			r.pool.give(slot)
			return count
		}
		count++
		if !r.enqueue(region, slot, n, arrived, late) {
			r.pool.give(slot)
		}
	}
	return count
}

// enqueue says whether a link took the packet.
func (r *relay) enqueue(region int, slot uint32, n int, arrived time.Duration, late bool) bool {
	p := r.pool.bytes(slot)[:n]
	if neighbourly(p) {
		return false
	}
	target := r.routes.of(p)
	if target < 0 || r.links[region][target] == nil {
		r.unroutable++
		return false
	}
	l := r.links[region][target]
	// Where it waited for this thread for longer than the bound it is late, unless it had to wait for the link anyway.
	late = late && l.free < arrived
	due, ok := l.accept(arrived, n)
	if !ok {
		return false
	}
	if late {
		l.Late++
	}
	l.queue.push(packet{due: due, slot: slot, size: uint16(n)})
	return true
}

func (r *relay) runCommands() {
	for {
		select {
		case command := <-r.commands:
			var count [8]byte
			unix.Read(r.wake, count[:]) // never blocks
			command()
		default:
			return
		}
	}
}

// do runs a function on the loop's thread and waits for it.
func (r *relay) do(command func()) {
	done := make(chan struct{})
	r.commands <- func() { command(); close(done) }
	one := [8]byte{1}
	unix.Write(r.wake, one[:])
	<-done
}
