package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

const opPush = "push template"

// pushSnapshot sends the files of a snapshot to a registry. It makes a hidden image of them, which
// it removes afterwards. If the daemon dies meanwhile, the next one removes the image with the
// drafts of builds.
func (s *Service) pushSnapshot(ctx context.Context, m meaning, opts carrel.PushOptions,
	progress func(carrel.Progress)) (carrel.Pushed, error) {
	if m.foreign {
		return carrel.Pushed{}, &carrel.Error{Op: opPush, Kind: carrel.Unsupported, Field: "template",
			Err:  errors.New("another machine took this snapshot"),
			Hint: "push it there, or make a sandbox from it and snapshot that"}
	}
	pass, err := s.gates.enterBuild(ctx, opPush)
	if err != nil {
		return carrel.Pushed{}, err
	}
	defer pass.Done(nil)
	img, err := s.composeSnapshot(ctx, m)
	if errors.Is(err, snapshot.ErrReplaced) {
		img, err = s.composeSnapshot(ctx, m) // its files are whole now
	}
	if err != nil {
		return carrel.Pushed{}, &carrel.Error{Op: opPush, Kind: carrel.KindOf(err), Err: err,
			Hint: carrel.HintOf(err)}
	}
	pushed, err := s.opts.Images.Push(ctx, img.ID, opts, progress)
	return pushed, errors.Join(err, s.opts.Images.Delete(context.WithoutCancel(ctx), img.ID))
}

// composeSnapshot makes a hidden image of a snapshot's files. Its processes start like those of the
// snapshot's template, if the template is still there.
func (s *Service) composeSnapshot(ctx context.Context, m meaning) (img image.Image, err error) {
	sr := *m.moment
	t := carrel.Template{Name: image.DraftMark + string(carrel.NewID()), Project: sr.Snapshot.Project}
	if from, ok := s.opts.Images.ByID(sr.Record.Sandbox.Template); ok {
		t.Env, t.User, t.WorkDir, t.Start, t.Entry, t.Labels = from.Env, from.User, from.WorkDir,
			from.Start, from.Entry, from.Labels
	}
	err = s.archive.streamFiles(ctx, sr, func(root string, changes io.Reader) (err error) {
		if root == "" {
			return &carrel.Error{Kind: carrel.Unsupported, Field: "template",
				Err: fmt.Errorf("sandboxes of tier %s have no files of their own", sr.Snapshot.Tier)}
		}
		img, err = s.opts.Images.Compose(ctx, t, root, changes, skippedFiles(sr.Record.Sandbox.Network))
		return err
	})
	if err != nil && img.ID != "" { // the content was damaged
		_ = s.opts.Images.Delete(context.WithoutCancel(ctx), img.ID)
	}
	return img, err
}

// skippedFiles are the files that stay as they are in the sandbox's template. Rules that open TLS
// make the guest trust the wire's authority, in files of the system. An image must not trust it: it
// may run where somebody else holds the authority's key.
func skippedFiles(n carrel.Network) []string {
	if len(n.Rules) == 0 && (n.Policy == nil || len(n.Policy.Rules) == 0) {
		return image.IdentityFiles
	}
	return append(slices.Clone(image.IdentityFiles), "etc/ssl/certs", "etc/ssl/cert.pem",
		"etc/ssl/ca-bundle.pem", "etc/pki", "usr/local/share/ca-certificates")
}
