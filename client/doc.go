// Package client is [carrel.Service] over HTTP. It has the same interface as a service that
// carrel.Open runs inside the process, but talks to a daemon.
//
//	svc, err := client.New("http://127.0.0.1:7070", os.Getenv("CARREL_API_KEY"))
//	sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: 5 * time.Minute})
//	c, err := svc.Computer(ctx, sb.ID)
//	res, err := c.Run(ctx, carrel.Command{Shell: "echo hello"})
//
// Calls about the life of sandboxes go to the daemon's /carrel/v1 endpoints. Calls about the inside
// of a sandbox go to its guest over raw streams, which the daemon opens for the owner of the API
// key. Commands, files and ports all work this way, loopback ports included, and nothing is
// translated on the way.
//
// Errors are the daemon's errors, restored: [carrel.KindOf] and [carrel.HintOf] return the same on
// both sides. If the daemon can't be reached, the error is Unavailable.
package client
