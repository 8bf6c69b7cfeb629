package carrel

import (
	"context"
	"log/slog"
)

// Registries moves templates from and to registries of container images.
type Registries interface {
	// PullImage is [Templates].PullTemplate with options. Errors: Invalid (the image's name, its
	// content), NotFound, Unauthenticated (the registry's answer), Forbidden (an address that the
	// operator has not allowed), Unsupported (no image for this machine, or no registry at all:
	// the service is offline), Exhausted, Unavailable.
	PullImage(ctx context.Context, name string, opts PullOptions, progress func(Progress)) (Template,
		error)
	// PushTemplate sends a template, or the files of a snapshot, to a registry as an OCI image. Equal
	// templates become equal images: they have the same digest. A snapshot's image has no memory,
	// and no host name of the sandbox. Errors: those of PullImage, but NotFound is a missing
	// template or snapshot; Unsupported is also a snapshot whose tier has no files of its own.
	PushTemplate(ctx context.Context, nameOrID string, opts PushOptions,
		progress func(Progress)) (Pushed, error)
}

// PullOptions says which image to pull, and how.
type PullOptions struct {
	// Image is the image's name, such as python:3.12-slim.
	Image string `json:"image"`
	// Credentials are used for the image's registry only. Nil takes those of the daemon's docker
	// configuration, if the caller may use them.
	Credentials *RegistryCredentials `json:"credentials,omitempty"`
	// Platform is "" or the platform of this machine, such as linux/amd64. Every other is refused.
	Platform string `json:"platform,omitempty"`
	// Lazy lets sandboxes start before the whole image is here: layers with a table of contents
	// (eStargz) are fetched while they are used. Template.Lazy says how far that is.
	Lazy bool `json:"lazy,omitempty"`
}

// Lazy says how far the image of a template is that was pulled lazily.
type Lazy struct {
	State   string `json:"state"`
	Missing int64  `json:"missing,omitempty"` // bytes of files that are still in the registry
	// Reason is why a fill failed, or why layers were pulled whole.
	Reason string `json:"reason,omitempty"`
}

// The states of Lazy.
const (
	// LazyFilling: sandboxes can start. Pauses, builds and pushes wait for the whole image.
	LazyFilling = "filling"
	// LazyFailed: the rest can't be had. Pull the image again.
	LazyFailed = "failed"
	// LazyWhole is only in the answer to a pull: no part of the image could come later.
	LazyWhole = "whole"
)

// PushOptions says where a template is sent.
type PushOptions struct {
	// Image is the new image's name, with a tag.
	Image       string               `json:"image"`
	Credentials *RegistryCredentials `json:"credentials,omitempty"`
}

// Pushed describes an image that was sent to a registry.
type Pushed struct {
	Image  string `json:"image"`  // the name with its registry and tag
	Digest string `json:"digest"` // of its manifest
	Size   int64  `json:"size"`   // bytes of its parts, compressed
	Sent   int64  `json:"sent"`   // of these, bytes that the registry did not have
}

// RegistryCredentials open a registry. Each kind has its own fields. They are for one request: no
// record, log or layer holds them.
type RegistryCredentials struct {
	// Type is "registry" (a user and a password, also "") "aws" or "gcp".
	Type     string `json:"type,omitempty"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`

	// These are of an account that may read from Amazon ECR.
	AWSAccessKeyID     string `json:"awsAccessKeyId,omitempty"`
	AWSSecretAccessKey string `json:"awsSecretAccessKey,omitempty"`
	AWSRegion          string `json:"awsRegion,omitempty"`

	// ServiceAccountJSON is the key file of a Google Cloud service account.
	ServiceAccountJSON string `json:"serviceAccountJson,omitempty"`
}

// The types of RegistryCredentials.
const (
	CredentialsBasic = "registry"
	CredentialsAWS   = "aws"
	CredentialsGCP   = "gcp"
)

// String hides the credentials.
func (RegistryCredentials) String() string { return "(registry credentials)" }

// GoString hides the credentials.
func (RegistryCredentials) GoString() string { return "(registry credentials)" }

// LogValue hides the credentials.
func (c RegistryCredentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// NoRegistries is a [Registries] for services that reach none.
type NoRegistries struct{}

const noRegistries = "access to registries"

// PullImage implements Registries.
func (NoRegistries) PullImage(context.Context, string, PullOptions,
	func(Progress)) (Template, error) {
	return Template{}, lacking("pull template", noRegistries)
}

// PushTemplate implements Registries.
func (NoRegistries) PushTemplate(context.Context, string, PushOptions,
	func(Progress)) (Pushed, error) {
	return Pushed{}, lacking("push template", noRegistries)
}
