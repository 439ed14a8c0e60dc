package main

import "math/rand/v2"

// loss strikes packets independently of one another, each with the same probability.
type loss struct {
	share float64
	draw  *rand.Rand
}

func newLoss(share float64, seed uint64) loss {
	return loss{share: share, draw: rand.New(rand.NewPCG(seed, 0))}
}

// strikes says whether the next packet is lost.
func (l *loss) strikes() bool { return l.share > 0 && l.draw.Float64() < l.share }
