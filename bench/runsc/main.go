// Command runsc is gVisor's own command line, built from the same module version
// as Carrel, for the bench to measure beside it.
package main

import "gvisor.dev/gvisor/runsc/cli/maincli"

func main() { maincli.Main() }
