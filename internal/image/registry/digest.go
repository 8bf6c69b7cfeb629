package registry

import (
	"context"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/carrel-dev/carrel"
)

// Digest asks a registry for the digest of an image for this machine. Errors: as Pull.
func Digest(ctx context.Context, ref string, opts Options) (string, error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return "", &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "image", Err: err,
			Hint: "an image is named like python:3.12-slim or registry.example.com/team/app@sha256:…"}
	}
	if opts.Keychain == nil {
		opts.Keychain = authn.DefaultKeychain
	}
	remoteOpts := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(opts.Keychain), remote.WithUserAgent("carrel")}
	if opts.Transport != nil {
		remoteOpts = append(remoteOpts, remote.WithTransport(opts.Transport))
	}
	_, digest, err := resolve(r, remoteOpts)
	if err != nil {
		return "", classify(ref, err)
	}
	return digest.String(), nil
}
