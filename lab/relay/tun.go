package main

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// openTun attaches to the TUN device `name` of a network namespace. The device outlives the relay, so addresses and
// routes on it do as well.
func openTun(netns, name string) (int, error) {
	type result struct {
		fd  int
		err error
	}
	done := make(chan result)
	go func() {
		// Never unlocked: the thread that entered the namespace ends with this goroutine.
		runtime.LockOSThread()
		fd, err := attach(netns, name)
		done <- result{fd, err}
	}()
	r := <-done
	if r.err != nil {
		return -1, fmt.Errorf("device %s in %s: %w", name, netns, r.err)
	}
	return r.fd, nil
}

func attach(netns, name string) (int, error) {
	ns, err := unix.Open(netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ns)
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		return -1, err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return -1, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	return fd, unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
}

// runPrecisely gives the calling goroutine a thread of its own that the kernel wakes on time: real-time priority where it
// is allowed, else the best ordinary one. It says which.
func runPrecisely() string {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return "ordinary: " + err.Error()
	}
	attributes := &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 10,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK, // the Go runtime's other threads stay ordinary
	}
	if err := unix.SchedSetAttr(0, attributes, 0); err == nil {
		return "real-time"
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20); err != nil {
		return "ordinary: " + err.Error()
	}
	return "nice -20"
}
