// Package registry moves images from and to container registries. A pull resolves a name, downloads
// the layers in parallel into files, and hands them to package archive, lowest first. A push sends
// an image of one layer.
//
// # Nothing is trusted
//
// Each part is checked against its digest and its size while it arrives. So a registry, or an
// attacker between, can refuse an image but can't change one that is named by digest. A download
// that is cut off goes on where it was (HTTP ranges). One that only drips is ended.
//
// # Callers are not trusted either
//
// The name of an image comes from a caller of the daemon, and the daemon sees more of the network
// than the caller does. So a guard judges the address of every request: of the registry, of the
// server of its tokens, and of each redirect. Addresses of this machine and of private networks are
// refused, and so is HTTP without TLS, unless the operator allowed the host. The guard resolves a
// name once and dials only the addresses that it judged. See guard.go.
//
// Credentials go to the registry that they are for, and to the server of tokens that it names. They
// go to no other host after a redirect.
//
// # Layers are kept
//
// A [Cache] keeps compressed layers by digest. Each project has its own part of it, so nobody
// learns or gets a layer of another project. A pull always asks the registry for the manifest
// first, with the caller's credentials.
package registry
