package seatbelt

import "github.com/carrel-dev/carrel/internal/settings"

// Notes lists the ways in which a box under Seatbelt is weaker than the same box on Linux. They are
// for a person, next to the description of the box.
func Notes(b *settings.Box) []string {
	notes := []string{
		"processes outside can be seen, not signalled; loopback is the machine's own: of it the box reaches only ports named by --publish",
		"hard links can't be made, nor directories that hold protected names, such as .git and .claude",
		"nothing ends what the command leaves behind: background processes outlive it, in their box",
	}
	for _, n := range []struct {
		when bool
		text string
	}{
		{b.MemoryMB > 0 || b.CPUs > 0 || b.Pids > 0, "no limit of memory, processors or processes"},
		{b.TmpMB > 0, "no limit of the temporary directory"},
		{everywhere(b) && !b.Host, "the network is open, the local one too: Seatbelt tells no address from another, but loopback"},
		{b.Bind && !b.Host, "programs that listen on IPv6 sockets for IPv4 (Java) need java.net.preferIPv4Stack or their like"},
	} {
		if n.when {
			notes = append(notes, n.text)
		}
	}
	return notes
}
