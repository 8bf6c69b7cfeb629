// Package local gives a program sandboxes of its own: no daemon, no port, no client. Import it for
// its effect, as one imports a driver of database/sql, and call [carrel.Open]:
//
//	import (
//		"github.com/carrel-dev/carrel"
//		_ "github.com/carrel-dev/carrel/local"
//	)
//
//	svc, err := carrel.Open(ctx, carrel.Config{})
//
// The zero Config gives sandboxes of the simulated tier, which need nothing from the host.
// [carrel.Config] and [carrel.CreateOptions] can choose another tier, ns or gvisor. If this host
// lacks something that the tier needs, Open or Create returns Unsupported, and its hint says what
// to do.
//
// # The program starts itself again
//
// For sandboxes of the tiers ns and gvisor, the program starts copies of itself that play other
// parts. The init function of this package finds out whether it runs in such a copy. If so, it
// plays that part, and the program's main does not run. The init functions of other packages may
// run before it and should therefore do little. For gvisor the program must be linked statically
// (CGO_ENABLED=0).
//
// # Nothing outlives the service
//
// Close kills every sandbox. It removes all files of the service except those in Config.DataDir,
// which holds templates and secrets. A program that ends without Close leaves no sandbox and no
// file either, even when it is killed: with the first sandbox of ns or gvisor it starts a small
// process that waits for the program's end and cleans up. Simulated sandboxes live in the program's
// memory. Their service also has one small directory in the temporary directory; after a program
// that ended without Close, the next Open removes it.
package local
