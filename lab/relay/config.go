package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"time"
)

// config is the file that describes one lab's WAN; hulk_lab.wan.relay writes it.
type config struct {
	Socket       string         `json:"socket"`
	Device       string         `json:"device"`
	MTU          int            `json:"mtu"`
	BufferMicros int64          `json:"bufferMicroseconds"`
	LateMicros   int64          `json:"lateMicroseconds"`
	Regions      []regionConfig `json:"regions"`
	Links        []linkConfig   `json:"links"`
}

type regionConfig struct {
	Name  string         `json:"name"`
	Netns string         `json:"netns"`
	CIDRs []netip.Prefix `json:"cidrs"`
}

type linkConfig struct {
	Source         string  `json:"source"`
	Target         string  `json:"target"`
	DelayMicros    int64   `json:"delayMicroseconds"`
	BytesPerSecond float64 `json:"bytesPerSecond"` // of IP packets, headers included
}

func readConfig(path string) (*config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &config{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// routes is the region behind every address of the lab's /16, by the last two octets; -1 is no region.
type routes struct {
	high   [2]byte
	region [1 << 16]int8
}

func newRoutes(regions []regionConfig) (*routes, error) {
	r := &routes{}
	for i := range r.region {
		r.region[i] = -1
	}
	for i, region := range regions {
		for _, cidr := range region.CIDRs {
			first := cidr.Masked().Addr().As4()
			high := [2]byte(first[:2])
			if cidr.Bits() < 16 || (r.high != [2]byte{} && r.high != high) {
				return nil, fmt.Errorf("region %s: %s is not inside the lab's one /16 network", region.Name, cidr)
			}
			r.high = high
			base := int(first[2])<<8 | int(first[3])
			for k := range 1 << (32 - cidr.Bits()) {
				r.region[base+k] = int8(i)
			}
		}
	}
	return r, nil
}

// of says which region an IP packet goes to; -1 is none (another network). An IPv6 address of the lab ends with the IPv4
// address that it is the twin of.
func (r *routes) of(p []byte) int {
	var to []byte
	switch {
	case len(p) >= 20 && p[0]>>4 == 4:
		to = p[16:20]
	case len(p) >= 40 && p[0]>>4 == 6 && p[24] == 0xfd:
		to = p[36:40]
	default:
		return -1
	}
	if [2]byte(to[:2]) != r.high {
		return -1
	}
	return int(r.region[int(to[2])<<8|int(to[3])])
}

// neighbourly says whether a packet is what IPv6 tells all neighbours on its link, which no WAN carries.
func neighbourly(p []byte) bool {
	return len(p) >= 40 && p[0]>>4 == 6 && p[24] == 0xff
}

// newLinks is the matrix [source][target] of links, nil where the file names none.
func newLinks(c *config) ([][]*link, error) {
	index := map[string]int{}
	links := make([][]*link, len(c.Regions))
	for i, region := range c.Regions {
		index[region.Name] = i
		links[i] = make([]*link, len(c.Regions))
	}
	for _, l := range c.Links {
		source, okSource := index[l.Source]
		target, okTarget := index[l.Target]
		if !okSource || !okTarget || l.DelayMicros < 0 || l.BytesPerSecond <= 0 {
			return nil, fmt.Errorf("link %s->%s: delay %d us, %g B/s between regions %v", l.Source, l.Target,
				l.DelayMicros, l.BytesPerSecond, c.Regions)
		}
		links[source][target] = &link{
			source: source, target: target, bytesPerSecond: l.BytesPerSecond,
			delay:  time.Duration(l.DelayMicros) * time.Microsecond,
			buffer: time.Duration(c.BufferMicros) * time.Microsecond,
		}
	}
	return links, nil
}
