// Package local lets a program have sandboxes of its own: no daemon, no port, no
// client. Import it for its effect, as one imports a driver of database/sql, and
// call [carrel.Open]:
//
//	import (
//		"github.com/carrel-dev/carrel"
//		_ "github.com/carrel-dev/carrel/local"
//	)
//
//	svc, err := carrel.Open(ctx, carrel.Config{})
//
// The zero Config gives sandboxes of the simulated tier, which need nothing of the
// host. [carrel.Config] and [carrel.CreateOptions] choose another tier of those that a daemon
// has: ns or gvisor. Where this host lacks what a tier needs, Open or Create says so: Unsupported,
// with what to do as the hint.
//
// # The program starts itself again
//
// Sandboxes of the tiers ns and gvisor are made by copies of this program that play other parts. That is
// what this package's init looks out for: in such a child it plays the part instead of the
// program's main. Other packages' init functions that run before it should therefore do little.
// For gvisor the program must be linked statically (CGO_ENABLED=0).
//
// # Nothing outlives the service
//
// Close kills every sandbox and removes what the service kept outside of Config.DataDir,
// where templates and secrets are. A program that ends without Close leaves no sandbox and no file either, even
// when it is killed: with the first sandbox of ns or gvisor it starts a small process that waits for the program's end and
// cleans up. Simulated sandboxes are memory of the program. Their service has one small
// directory more, in the temporary directory, which the next Open removes.
package local
