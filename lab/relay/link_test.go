package main

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

func exampleLink() *link {
	return &link{delay: 50 * ms, bytesPerSecond: 1000, buffer: 150 * ms}
}

func TestAcceptFollowsTheWorkedExample(t *testing.T) {
	l := exampleLink()
	for i, want := range []time.Duration{150 * ms, 250 * ms} {
		if due, ok := l.accept(0, 100); !ok || due != want {
			t.Errorf("packet %d: due %v, accepted %v, want %v", i, due, ok, want)
		}
	}
	if due, ok := l.accept(0, 100); ok || l.Drops != 1 {
		t.Errorf("third packet due %v with %d drops, want it dropped", due, l.Drops)
	}
	if due, ok := l.accept(200*ms, 100); !ok || due != 350*ms {
		t.Errorf("packet after the buffer drained: due %v, accepted %v, want 350ms", due, ok)
	}
}

func TestAnIdleLinkAcceptsAnyPacket(t *testing.T) {
	l := &link{bytesPerSecond: 10, buffer: ms}
	if due, ok := l.accept(0, 1500); !ok || due != 150*time.Second {
		t.Errorf("due %v, accepted %v, want 2m30s", due, ok)
	}
}

func TestALoweredDelayKeepsTheOrder(t *testing.T) {
	l := exampleLink()
	first, _ := l.accept(0, 10)
	l.delay = 0
	if second, _ := l.accept(1*ms, 10); second < first {
		t.Errorf("second packet due %v, before the first at %v", second, first)
	}
}

func TestACutLinkLosesEveryPacket(t *testing.T) {
	l := exampleLink()
	l.cut = true
	if _, ok := l.accept(0, 10); ok || l.CutDrops != 1 {
		t.Errorf("accepted %v with %d cut drops, want a loss", ok, l.CutDrops)
	}
}

func TestALossIsDrawnBySeedAndOccupiesTheLink(t *testing.T) {
	lost := func(seed uint64) (numbers []int) {
		l := &link{bytesPerSecond: 1e6, buffer: time.Hour, loss: newLoss(0.1, seed)}
		for i := range 10000 {
			if _, ok := l.accept(0, 100); !ok {
				numbers = append(numbers, i)
			}
		}
		if l.Losses != uint64(len(numbers)) || l.Drops != 0 || l.free != time.Second {
			t.Errorf("%d losses, %d drops, link busy until %v, want %d, 0, 1s", l.Losses, l.Drops, l.free, len(numbers))
		}
		return numbers
	}
	first := lost(1)
	if len(first) < 900 || len(first) > 1100 {
		t.Errorf("%d of 10000 packets lost, want about 1000", len(first))
	}
	if !slices.Equal(first, lost(1)) || slices.Equal(first, lost(2)) {
		t.Error("the seed must decide which packets are lost")
	}
}

func TestALossIsSetAndHealed(t *testing.T) {
	l := exampleLink()
	r := &relay{names: []string{"a", "b"}, flat: []*link{l}}
	l.target = 1
	for _, share := range []float64{0.01, 0} {
		if err := r.change(request{Op: "set", Source: "a", Target: "b", Loss: &share}); err != nil || l.loss.share != share {
			t.Errorf("loss %g, error %v, want %g", l.loss.share, err, share)
		}
	}
	wrong := 1.5
	if err := r.change(request{Op: "set", Source: "a", Target: "b", Loss: &wrong}); err == nil {
		t.Error("a loss of 1.5 is accepted")
	}
}

func TestDeliveredCountsLatePackets(t *testing.T) {
	l := exampleLink()
	l.delivered(packet{due: 10 * ms, size: 100}, 11*ms, ms)
	l.delivered(packet{due: 10 * ms, size: 100}, 13*ms, ms)
	want := counters{Packets: 2, Bytes: 200, Late: 1, MaxLate: 3000}
	if l.counters != want {
		t.Errorf("got %+v, want %+v", l.counters, want)
	}
}

func TestTheQueueKeepsItsOrderWhileItGrows(t *testing.T) {
	q := &fifo{}
	pushed, popped := uint32(0), uint32(0)
	for round := range 50 {
		for range round {
			q.push(packet{slot: pushed})
			pushed++
		}
		for range round / 2 {
			if p := q.pop(); p.slot != popped {
				t.Fatalf("popped %d, want %d", p.slot, popped)
			}
			popped++
		}
	}
	if q.count != int(pushed-popped) {
		t.Errorf("%d left, want %d", q.count, pushed-popped)
	}
}

func TestThePoolGivesEveryPlaceOnce(t *testing.T) {
	p := newPool(make([]byte, 4*64), 64)
	seen := map[uint32]bool{}
	for range 4 {
		slot, ok := p.take()
		if !ok || seen[slot] || len(p.bytes(slot)) != 64 {
			t.Fatalf("slot %d, ok %v, seen %v", slot, ok, seen)
		}
		seen[slot] = true
	}
	if _, ok := p.take(); ok {
		t.Error("a fifth place from a pool of four")
	}
}

func ipv4(target string) []byte {
	p := make([]byte, 20)
	p[0] = 0x45
	address := netip.MustParseAddr(target).As4()
	copy(p[16:], address[:])
	return p
}

func ipv6(target string) []byte {
	p := make([]byte, 40)
	p[0] = 0x60
	address := netip.MustParseAddr(target).As16()
	copy(p[24:], address[:])
	return p
}

func TestRoutesByDestination(t *testing.T) {
	r, err := newRoutes([]regionConfig{
		{Name: "a", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.32.0/24"), netip.MustParsePrefix("10.9.48.1/32")}},
		{Name: "b", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.33.0/24")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]int{
		"10.9.32.255": 0, "10.9.48.1": 0, "10.9.33.0": 1, "10.9.48.2": -1, "10.8.32.1": -1, "192.0.2.1": -1,
	} {
		if got := r.of(ipv4(target)); got != want {
			t.Errorf("%s goes to region %d, want %d", target, got, want)
		}
	}
	for target, want := range map[string]int{
		"fd00:9::10.9.32.255": 0, "fd00:9::10.9.33.0": 1, "fd00:9::10.9.48.2": -1, "fd00:8::10.8.32.1": -1,
		"2001:db8::10.9.33.1": -1, "ff02::1": -1,
	} {
		if got := r.of(ipv6(target)); got != want {
			t.Errorf("%s goes to region %d, want %d", target, got, want)
		}
	}
	if got := r.of([]byte{0x60}); got != -1 {
		t.Errorf("a piece of an IPv6 packet goes to region %d, want none", got)
	}
	if !neighbourly(ipv6("ff02::16")) || neighbourly(ipv6("fd00:9::10.9.33.1")) || neighbourly(ipv4("10.9.33.1")) {
		t.Error("what is for all neighbours is not told from what is for one")
	}
}

func TestRoutesRefuseTwoLabNetworks(t *testing.T) {
	_, err := newRoutes([]regionConfig{
		{Name: "a", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.32.0/24"), netip.MustParsePrefix("10.8.32.0/24")}},
	})
	if err == nil {
		t.Error("no error for cidrs of two /16 networks")
	}
}
