// Package carreltest is a Carrel for tests, as net/http/httptest is a web server
// for tests: a real daemon on a loopback port, with simulated sandboxes that start
// in microseconds and need nothing of the host.
//
//	func TestAgent(t *testing.T) {
//		srv := carreltest.New(t)
//		agent := NewAgent(srv.URL, srv.APIKey) // whatever speaks E2B's API
//		…
//		boxes, err := srv.Client().List(t.Context(), carrel.ListOptions{})
//	}
//
// The test's end kills the sandboxes and stops the daemon. Clients that name a
// template should name "sim"; "base" works too, but is first made from this
// machine's own toolchain, which takes a while.
package carreltest
