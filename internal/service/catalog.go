package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service/filediff"
)

const (
	opPackages = "list packages"
	opChanges  = "compare templates"
	opUses     = "count uses of templates"
	opCollect  = "collect templates"
)

// leastUnused is the shortest time after its last use in which an image stays whole: longer than
// anybody takes from finding an image to opening it.
const leastUnused = time.Minute

// open opens the files of a template. Errors: NotFound, Unsupported (it has none).
func (t *templates) open(ctx context.Context, op,
	nameOrID string) (image.Image, image.Files, error) {
	found, err := t.resolver.template(ctx, op, nameOrID)
	if err != nil {
		return image.Image{}, nil, err
	}
	img, err := t.opts.Images.Get(ctx, found.ID)
	if err != nil {
		return img, nil, err
	}
	if img.Path == "" {
		return img, nil, &carrel.Error{Op: op, Kind: carrel.Unsupported, Field: "template",
			Err: fmt.Errorf("%s has no files of its own", img.Name)}
	}
	files, err := t.opts.Images.Files(ctx, img.Path)
	return img, files, err
}

// TemplatePackages implements carrel.Catalog.
func (t *templates) TemplatePackages(ctx context.Context,
	nameOrID string) (carrel.TemplatePackages, error) {
	if t.opts.Packages == nil {
		return carrel.NoCatalog{}.TemplatePackages(ctx, nameOrID)
	}
	img, files, err := t.open(ctx, opPackages, nameOrID)
	if err != nil {
		return carrel.TemplatePackages{}, err
	}
	defer func() { _ = files.Close() }() // it was only read
	list, system, err := t.opts.Packages(ctx, files)
	if err != nil {
		return carrel.TemplatePackages{}, &carrel.Error{Op: opPackages, Kind: carrel.KindOf(err),
			Err: err}
	}
	return carrel.TemplatePackages{Template: img.Name, ID: img.ID, Digest: img.Digest, System: system,
		Packages: list}, nil
}

// TemplateChanges implements carrel.Catalog.
func (t *templates) TemplateChanges(ctx context.Context, from,
	to string) ([]carrel.FileChange, error) {
	a, before, err := t.open(ctx, opChanges, from)
	if err != nil {
		return nil, err
	}
	defer func() { _ = before.Close() }() // it was only read
	b, after, err := t.open(ctx, opChanges, to)
	if err != nil {
		return nil, err
	}
	defer func() { _ = after.Close() }()
	if a.ID == b.ID {
		return nil, nil
	}
	changes, err := filediff.Trees(ctx, before, after)
	if err != nil {
		return nil, &carrel.Error{Op: opChanges, Kind: carrel.KindOf(err), Err: err,
			Hint: carrel.HintOf(err)}
	}
	return changes, nil
}

// TemplateUses implements carrel.Catalog. It counts what belongs to a project; "" is all of them.
func (s *Service) TemplateUses(_ context.Context, project string) ([]carrel.TemplateUse, error) {
	uses := map[string]*carrel.TemplateUse{}
	of := func(id string) *carrel.TemplateUse {
		if uses[id] == nil {
			uses[id] = &carrel.TemplateUse{ID: id}
		}
		return uses[id]
	}
	for _, b := range s.table.snapshot() {
		if sb := b.public(); project == "" || sb.Project == project {
			of(sb.Template).Sandboxes++
		}
	}
	for _, sr := range s.archive.snaps.All() {
		sb := sr.Record.Sandbox
		if sr.Snapshot.Cause != carrel.CauseBuild && (project == "" || sb.Project == project) {
			of(sb.Template).Snapshots++
		}
	}
	all := []carrel.TemplateUse{}
	for _, u := range uses {
		all = append(all, *u)
	}
	slices.SortFunc(all, func(x, y carrel.TemplateUse) int { return strings.Compare(x.ID, y.ID) })
	return all, nil
}

// CollectTemplates implements carrel.Catalog, for a project; "" is all of them. A layer stays as
// long as a sandbox or another snapshot needs it: DropLayers sees to that. A build that runs holds
// the layers and bases that it goes on from. Any other base may go: a sandbox made from it has a
// link of its own to the file.
func (s *Service) CollectTemplates(ctx context.Context, project string,
	opts carrel.CollectOptions) (carrel.Collected, error) {
	if opts.OlderThan < 0 {
		return carrel.Collected{}, &carrel.Error{Op: opCollect, Kind: carrel.Invalid, Field: "olderThan",
			Err: errors.New("it is negative")}
	}
	limit := time.Now().Add(-opts.OlderThan)
	out := carrel.Collected{Items: []carrel.CollectedItem{}}
	var layers []carrel.SnapshotID
	for _, sr := range s.archive.snaps.All() {
		sn := sr.Snapshot
		if sn.Cause != carrel.CauseBuild || sn.Created.After(limit) || project != "" &&
			sr.Record.Sandbox.Project != project || s.archive.snaps.IsHeld(sn.ID) {
			continue
		}
		layers = append(layers, sn.ID)
		out.Items = append(out.Items, carrel.CollectedItem{Kind: "layer", ID: string(sn.ID),
			Name: sn.Detail, Bytes: sn.Size, Created: sn.Created})
	}
	bases, err := s.collectCaches(ctx, layers, opts.DryRun, func(img image.Image) bool {
		return !img.Created.After(limit) && (project == "" || img.Project == project)
	})
	if err != nil {
		return carrel.Collected{}, err
	}
	if !opts.DryRun {
		out.Items = slices.DeleteFunc(out.Items, func(it carrel.CollectedItem) bool {
			_, stays := s.archive.snaps.Get(carrel.SnapshotID(it.ID))
			return stays
		})
	}
	for _, img := range bases {
		out.Items = append(out.Items, carrel.CollectedItem{Kind: "base", ID: img.ID, Name: img.Source,
			Bytes: img.Size, Created: img.Created})
	}
	if !opts.DryRun {
		thin, err := s.opts.Images.Thin(ctx, image.ThinOptions{Unused: max(opts.OlderThan, leastUnused),
			May: func(img image.Image) bool { return project == "" || img.Project == project }})
		for _, img := range thin {
			out.Items = append(out.Items, carrel.CollectedItem{Kind: "image", ID: img.ID,
				Name: cmp.Or(strings.TrimPrefix(img.Name, image.HiddenMark), img.Source), Bytes: img.Size,
				Created: img.Created})
		}
		if err != nil {
			return out, err
		}
	}
	slices.SortFunc(out.Items, func(x, y carrel.CollectedItem) int {
		return x.Created.Compare(
			y.Created)
	})
	for _, it := range out.Items {
		out.Bytes += it.Bytes
	}
	return out, nil
}

// collectCaches removes layers, and the bases of builds that may go. It returns those bases. A dry
// run removes nothing.
func (s *Service) collectCaches(ctx context.Context, layers []carrel.SnapshotID, dry bool,
	may func(image.Image) bool) ([]image.Image, error) {
	if dry {
		return slices.DeleteFunc(s.opts.Images.Collectable(),
			func(img image.Image) bool { return !may(img) }), nil
	}
	if err := s.DropLayers(ctx, layers); err != nil {
		return nil, err
	}
	return s.opts.Images.Collect(ctx, may)
}
