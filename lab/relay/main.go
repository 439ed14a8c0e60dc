// Relay is the lab's WAN: it carries IP packets between one TUN device per region, and gives every directed region pair
// the delay, rate and router buffer of the lab's file. It exists because few kernels in containers and small machines
// have netem, and because a user-space relay can count the packets it failed to deliver on time.
//
// usage: relay CONFIG.json
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const poolBytes = 256 << 20 // reserved, touched only as far as packets wait

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: relay CONFIG.json")
		os.Exit(2)
	}
	if err := start(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

func start(path string) error {
	c, err := readConfig(path)
	if err != nil {
		return err
	}
	r, err := newRelay(c)
	if err != nil {
		return err
	}
	if err := os.Remove(c.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", c.Socket)
	if err != nil {
		return err
	}
	go func() {
		fmt.Fprintln(os.Stderr, "relay: control:", r.serve(listener))
		os.Exit(1)
	}()
	fmt.Printf("relay: %d regions, %d links, priority %s\n", len(r.names), len(r.flat), runPrecisely())
	return r.run()
}

func newRelay(c *config) (*relay, error) {
	memory, err := unix.Mmap(-1, 0, poolBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	r := &relay{
		pool: newPool(memory, (c.MTU+63)/64*64), late: time.Duration(c.LateMicros) * time.Microsecond,
		started: time.Now(), emptied: make([]time.Duration, len(c.Regions)), commands: make(chan func(), 16), wake: wake,
	}
	if r.routes, err = newRoutes(c.Regions); err != nil {
		return nil, err
	}
	if r.links, err = newLinks(c); err != nil {
		return nil, err
	}
	for i, region := range c.Regions {
		fd, err := openTun(region.Netns, c.Device)
		if err != nil {
			return nil, err
		}
		r.names, r.devices = append(r.names, region.Name), append(r.devices, fd)
		for _, l := range r.links[i] {
			if l != nil {
				r.flat = append(r.flat, l)
			}
		}
	}
	return r, nil
}
