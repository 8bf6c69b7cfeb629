// Package move has the tests of sandboxes and templates that go from one daemon to another. The
// daemons share an S3 server and nothing else.
package move
