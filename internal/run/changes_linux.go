package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
	"github.com/carrel-dev/carrel/internal/refusal"
)

// upper makes the directories for changes below lower, if the kernel accepts them.
func (j *Job) upper(undo *cleanup.Stack, lower string) (layer, error) {
	var errs []error
	for _, parent := range []string{os.TempDir(), filepath.Join(j.Box.Home, ".cache"), "/dev/shm"} {
		dir, err := os.MkdirTemp(parent, "carrel-overlay-")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		remove := func() {
			if !j.keep {
				_ = overlay.Remove(dir)
			}
		}
		l := layer{lower: lower, upper: filepath.Join(dir, "upper"), work: filepath.Join(dir, "work")}
		err = errors.Join(os.Mkdir(l.upper, 0o755), os.Mkdir(l.work, 0o700))
		if info, statErr := os.Stat(lower); statErr == nil {
			err = errors.Join(err, os.Chmod(l.upper, info.Mode().Perm()))
		}
		if err == nil {
			err = overlay.Probe(lower, dir)
		}
		if err != nil {
			remove()
			errs = append(errs, err)
			continue
		}
		undo.Add(remove)
		j.layers = append(j.layers, l)
		return l, nil
	}
	return layer{}, &carrel.Error{Op: "run", Kind: carrel.Unsupported, Field: "--overlay", Err: errors.Join(errs...),
		Hint: "set TMPDIR to a directory on a plain filesystem such as ext4, xfs or tmpfs"}
}

// changes handles the changes in overlays.
func (j *Job) changes(ctx context.Context) error {
	for _, l := range j.layers {
		list, err := overlay.Changes(ctx, l.lower, l.upper, overlay.Options{})
		if err == nil {
			err = j.Kept(ctx, l.lower, l.upper, list)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Kept reports the changes to the directory lower, which were kept apart. If the user wants that,
// it carries them out.
func (j *Job) Kept(ctx context.Context, lower, upper string, list []overlay.Change) error {
	if j.opts.diff != "" {
		if err := j.diff(ctx, lower, upper, list); err != nil {
			return err
		}
	}
	if !j.opts.apply {
		j.say("%s in %s kept apart and thrown away (--diff shows, --apply keeps them)", count(len(list), "change"), printable(lower))
		return nil
	}
	skipped, err := overlay.Apply(ctx, lower, upper, list, overlay.Options{Protected: j.protected(lower), Since: j.started})
	if err != nil {
		j.keep = true // somebody's work is in there
		j.say("the changes are kept in %s", printable(upper))
		return err
	}
	for _, s := range skipped {
		j.Log.Add(refusal.Refusal{Kind: refusal.Write, What: filepath.Join(lower, s.Path), Operation: "apply", Rule: s.Rule,
			Reason: "it was changed apart and left there", Certain: true})
	}
	j.say("%s carried out in %s", count(len(list)-len(skipped), "change"), printable(lower))
	return nil
}

// diff writes the changes to the target of --diff.
func (j *Job) diff(ctx context.Context, lower, upper string, list []overlay.Change) error {
	w, err := j.diffTarget()
	if err != nil {
		return err
	}
	return errors.Join(overlay.Diff(ctx, w, lower, upper, list), w.Close())
}

// say prints to the person, unless the flags say to be quiet.
func (j *Job) say(format string, args ...any) {
	if !j.opts.quiet {
		fmt.Fprintf(j.Err, "carrel: "+format+"\n", args...)
	}
}

// protected returns a function that decides about paths relative to a directory.
func (j *Job) protected(lower string) func(string) (string, bool) {
	return func(path string) (string, bool) {
		if rule, ok := Protected(j.Box, filepath.Join(lower, path)); ok {
			return rule, true
		}
		return "", false
	}
}

// count returns "1 change", "2 changes".
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
