// Command runsc is gVisor's own command line, built from the same module version as Carrel. The
// bench measures it next to Carrel.
package main

import "gvisor.dev/gvisor/runsc/cli/maincli"

func main() { maincli.Main() }
