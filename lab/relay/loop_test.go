package main

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// aRelay has two devices, each of which is one end of a socket; the other ends are what regions send and get.
func aRelay(t *testing.T) (r *relay, far [2]int) {
	r = &relay{
		pool: newPool(make([]byte, 1024*64), 64), late: 2 * ms, started: time.Now(),
		emptied: make([]time.Duration, 2), links: [][]*link{make([]*link, 2), make([]*link, 2)}, routes: &routes{},
	}
	for i := range 2 {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(pair[0]); unix.Close(pair[1]) })
		for _, fd := range pair {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20); err != nil {
				t.Fatal(err)
			}
		}
		r.devices, far[i] = append(r.devices, pair[0]), pair[1]
	}
	r.links[0][1] = &link{source: 0, target: 1, bytesPerSecond: 1e12, buffer: time.Second}
	r.flat = []*link{r.links[0][1]}
	return r, far
}

func TestARoundThatDidNotDeliverAllThatIsDueSaysSo(t *testing.T) {
	r, _ := aRelay(t)
	queue := &r.links[0][1].queue
	for range 5 {
		queue.push(packet{size: 20})
	}
	if count, next := r.deliver(); count != 5 || next >= 0 {
		t.Errorf("delivered %d, next in %v, want 5 and none", count, next)
	}
	for range deliverBatch + 1 {
		queue.push(packet{size: 20}) // a full socket refuses most of them, which takes their place all the same
	}
	if count, next := r.deliver(); count != deliverBatch || next != 0 {
		t.Errorf("delivered %d, next in %v, want %d and at once", count, next, deliverBatch)
	}
}

func TestARegionThatSentMoreThanOneRoundReadsIsBehind(t *testing.T) {
	r, far := aRelay(t)
	for region := range r.routes.region {
		r.routes.region[region] = -1
	}
	sent := make([]byte, 20)
	sent[0] = 0x45 // for nobody
	for num, want := range map[int]bool{readBatch - 1: false, readBatch: true} {
		for range num {
			if _, err := unix.Write(far[0], sent); err != nil {
				t.Fatal(err)
			}
		}
		if count, behind := r.readAll(); count != num || behind != want {
			t.Errorf("read %d of %d, behind %v, want %v", count, num, behind, want)
		}
	}
}
