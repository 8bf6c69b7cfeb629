// Package registry tests a real daemon with a container registry of its own: an image is pulled
// with credentials, a sandbox runs it, and the template goes back as an image. It also sends
// hostile archives to the daemon.
package registry
